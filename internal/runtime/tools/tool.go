package tools

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"
)

// Effect says what a call may change, and therefore what may be done with a
// call that was started and whose outcome was never observed.
type Effect string

const (
	// ReadOnly calls change nothing and may simply run again.
	ReadOnly Effect = "ReadOnly"
	// Keyed calls carry an idempotency key and may run again with the same key.
	Keyed Effect = "Keyed"
	// Supervised calls are spooled by the workspace's supervisor, which knows
	// afterwards whether they began and how they ended.
	Supervised Effect = "Supervised"
	// Opaque calls may have had any effect and are never repeated. It is the
	// class of every tool that nobody classified.
	Opaque Effect = "Opaque"
)

// Tool is one tool as it is offered to the model.
type Tool struct {
	// Name is the name the model uses: [A-Za-z0-9_-]{1,64}.
	Name string `json:"name"`
	// Description is the text that tells the model when and how to use it.
	Description string `json:"description,omitempty"`
	// InputSchema is the JSON Schema (draft 2020-12 or draft-07) of the arguments.
	InputSchema json.RawMessage `json:"inputSchema"`
	// Effect is the class that recovery relies on.
	Effect Effect `json:"effect"`
	// Provider names the server that runs the tool; "workspace" for the toolbox.
	Provider string `json:"provider"`
	// Timeout bounds one call; 0 leaves the bound to the provider.
	Timeout time.Duration `json:"timeoutNanoseconds,omitempty"`
	// Digest identifies name and schema, see Digest.
	Digest string `json:"digest,omitempty"`
}

// Digest is the hex SHA-256 of a tool's name and input schema in canonical
// form (sorted keys, no white space), so that re-ordering a schema does not
// change it. The description is left out on purpose: it is frozen with the
// contract, and a better wording in a newer release must not end a run.
func Digest(name string, inputSchema json.RawMessage) (string, error) {
	canonical, err := canonicalJSON(inputSchema)
	if err != nil {
		return "", fmt.Errorf("input schema of tool %q: %w", name, err)
	}
	sum := sha256.Sum256(append([]byte(name+"\x00"), canonical...))
	return hex.EncodeToString(sum[:]), nil
}

// canonicalJSON is raw with sorted keys and without white space; numbers keep their digits.
func canonicalJSON(raw json.RawMessage) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, fmt.Errorf("not valid JSON: %w", err)
	}
	return json.Marshal(value)
}

// ValidName reports whether every provider dialect accepts name as a tool name.
func ValidName(name string) bool {
	if name == "" || len(name) > 64 {
		return false
	}
	for i := range len(name) {
		c := name[i]
		if !isAlphanumeric(c) && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// Call is one dispatch of a tool call.
type Call struct {
	// ID is the run-wide id of the call: nine ASCII letters or digits. It is
	// the key by which the supervisor recognises a call it has seen before.
	ID string
	// Attempt counts the dispatches of this id from 1. Only ReadOnly and Keyed
	// calls ever reach 2.
	Attempt int
	// Tool is the name of the tool.
	Tool string
	// Arguments is the JSON object of the arguments; empty means {}.
	Arguments json.RawMessage
	// Timeout bounds the call; 0 takes the tool's default.
	Timeout time.Duration
}

// callIDLength is the only length that every provider dialect accepts.
const callIDLength = 9

// ValidCallID reports whether id consists of exactly nine ASCII letters or digits.
func ValidCallID(id string) bool {
	if len(id) != callIDLength {
		return false
	}
	for i := range len(id) {
		if !isAlphanumeric(id[i]) {
			return false
		}
	}
	return true
}

func isAlphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// ArgumentsDigest is the hex SHA-256 of the arguments in canonical form. Two
// calls with the same id must have the same digest.
func ArgumentsDigest(arguments json.RawMessage) (string, error) {
	if len(bytes.TrimSpace(arguments)) == 0 {
		arguments = json.RawMessage("{}")
	}
	canonical, err := canonicalJSON(arguments)
	if err != nil {
		return "", fmt.Errorf("arguments: %w", err)
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:]), nil
}
