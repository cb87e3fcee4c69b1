package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"
)

// maxViolationBytes bounds the text of a violation, which may quote a value.
const maxViolationBytes = 1024

// Validator checks arguments against the schemas of a fixed set of tools. It
// is safe for concurrent use.
type Validator struct {
	mu      sync.Mutex
	schemas map[string]*jsonschema.Resolved
}

// Validate reports how arguments violate the tool's schema; nil if they fit.
// The error's text is meant for the model.
func (v *Validator) Validate(tool Tool, arguments json.RawMessage) error {
	schema, err := v.resolve(tool)
	if err != nil {
		return err
	}
	object, err := decodeArguments(arguments)
	if err != nil {
		return err
	}
	if err := schema.Validate(object); err != nil {
		return errors.New(clip(err.Error(), maxViolationBytes))
	}
	return nil
}

func (v *Validator) resolve(tool Tool) (*jsonschema.Resolved, error) {
	key := string(tool.InputSchema)
	v.mu.Lock()
	defer v.mu.Unlock()
	if resolved, ok := v.schemas[key]; ok {
		return resolved, nil
	}
	var schema jsonschema.Schema
	if err := json.Unmarshal(tool.InputSchema, &schema); err != nil {
		return nil, fmt.Errorf("input schema of tool %q cannot be read: %w", tool.Name, err)
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		return nil, fmt.Errorf("input schema of tool %q cannot be resolved: %w", tool.Name, err)
	}
	if v.schemas == nil {
		v.schemas = make(map[string]*jsonschema.Resolved)
	}
	v.schemas[key] = resolved
	return resolved, nil
}

// decodeArguments reads arguments as one JSON object; nothing at all is {}.
func decodeArguments(arguments json.RawMessage) (map[string]any, error) {
	if len(bytes.TrimSpace(arguments)) == 0 {
		return map[string]any{}, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(arguments))
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, fmt.Errorf("arguments are not valid JSON: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("arguments are not valid JSON: text follows the object")
	}
	switch value := value.(type) {
	case map[string]any:
		return value, nil
	case nil:
		return map[string]any{}, nil
	default:
		return nil, fmt.Errorf("arguments must be a JSON object, not %s", jsonTypeName(value))
	}
}

func jsonTypeName(value any) string {
	switch value.(type) {
	case []any:
		return "an array"
	case string:
		return "a string"
	case bool:
		return "a boolean"
	default:
		return "a number"
	}
}
