// Package message holds the neutral trajectory of a run: what was said, called and answered, in a form that no provider
// owns. Dialect adapters render it; the ledger stores it. It has two layers: a semantic one that every provider can
// replay (text, thinking text, calls, results, media), and opaque credentials (signatures, encrypted reasoning, vendor
// ids) that only their issuer may see again.
//
// The package is a pure leaf: it imports the standard library only.
package message

import "encoding/json"

// Role says whose words a message holds.
type Role string

const (
	// RoleUser is the task and anything a person added to it.
	RoleUser Role = "User"
	// RoleAssistant is one committed model answer.
	RoleAssistant Role = "Assistant"
	// RoleTool is the results of one assistant turn's calls, one Result block for each call, in the calls' order.
	RoleTool Role = "Tool"
	// RoleControl is a note of the runtime to the model: a repair directive, a warning, the facts of an interrupted call.
	// Dialects without such a role render it as user input with a marker; it is never shown to people as the user's words.
	RoleControl Role = "Control"
)

// Message is one entry of the trajectory.
type Message struct {
	Role   Role    `json:"role"`
	Blocks []Block `json:"blocks"`
	// Origin is the issuer of an assistant message; its credentials are valid there and nowhere else. Nil for other roles.
	Origin *Scope `json:"origin,omitempty"`
	// Stop is why the model stopped; set on assistant messages only.
	Stop StopReason `json:"stop,omitempty"`
}

// BlockKind tells which field of a Block is set.
type BlockKind string

const (
	// BlockText is plain text in Block.Text.
	BlockText BlockKind = "Text"
	// BlockThinking is the model's visible reasoning in Block.Text, which may be empty when the provider hides it.
	BlockThinking BlockKind = "Thinking"
	// BlockCall is a tool call in Block.Call.
	BlockCall BlockKind = "Call"
	// BlockResult is a tool result in Block.Result.
	BlockResult BlockKind = "Result"
	// BlockMedia is an image or another blob in Block.Media.
	BlockMedia BlockKind = "Media"
)

// Block is one piece of a message. Exactly the field that Kind names is set.
type Block struct {
	Kind   BlockKind `json:"kind"`
	Text   string    `json:"text,omitempty"`
	Call   *Call     `json:"call,omitempty"`
	Result *Result   `json:"result,omitempty"`
	Media  *Media    `json:"media,omitempty"`
	// Credentials are replayed verbatim to their issuer at this block's place, and dropped for every other provider.
	Credentials []Credential `json:"credentials,omitempty"`
}

// Call is a tool call as the model asked for it.
type Call struct {
	// ID is the runtime's own id: exactly nine characters of [A-Za-z0-9], unique in the run. It satisfies the narrowest
	// published grammar (Mistral: nine alphanumerics). The vendor's id is kept as a credential.
	ID string `json:"id"`
	// Name is the tool as the model named it.
	Name string `json:"name"`
	// Arguments is a valid JSON object. It is `{}` when RawArguments is set, so that every replay parses.
	Arguments json.RawMessage `json:"arguments"`
	// RawArguments keeps the bytes as they arrived when they are not a JSON object. Such a call is answered with
	// InvalidArguments and never dispatched.
	RawArguments string `json:"rawArguments,omitempty"`
}

// ResultStatus is how a tool call ended, as far as it was observed.
type ResultStatus string

const (
	// ResultOK means that the tool answered with success.
	ResultOK ResultStatus = "OK"
	// ResultError means that the tool answered with an error, or could not be asked.
	ResultError ResultStatus = "Error"
	// ResultTimeout means that the call ran into its time limit and was ended.
	ResultTimeout ResultStatus = "Timeout"
	// ResultCancelled means that the call was ended because the run was.
	ResultCancelled ResultStatus = "Cancelled"
	// ResultInDoubt means that the call was started and its outcome was never observed.
	ResultInDoubt ResultStatus = "InDoubt"
	// ResultNotRun means that the call was never dispatched.
	ResultNotRun ResultStatus = "NotRun"
)

// Result answers one call.
type Result struct {
	CallID string       `json:"callID"`
	Name   string       `json:"name"`
	Status ResultStatus `json:"status"`
	// ErrorKind is the tool error's kind, empty for ResultOK.
	ErrorKind string `json:"errorKind,omitempty"`
	// Text is what the model is told.
	Text string `json:"text"`
	// Media are images that the tool returned.
	Media []Media `json:"media,omitempty"`
}

// Blob names bytes in the ledger's blob store.
type Blob struct {
	// SHA256 is the blob's name, in hex.
	SHA256 string `json:"sha256"`
	// Size is in bytes.
	Size int64 `json:"size"`
}

// Media is an image or other binary content, kept as a blob.
type Media struct {
	// MIMEType is the media type, for example image/png.
	MIMEType string `json:"mimeType"`
	Blob     Blob   `json:"blob"`
	// Data is the content. It is set only in memory, while a request is rendered.
	Data []byte `json:"-"`
}

// StopReason is why the model stopped, in the runtime's words.
type StopReason string

const (
	// StopEnd is a natural end.
	StopEnd StopReason = "End"
	// StopCalls is a turn that ends in tool calls.
	StopCalls StopReason = "Calls"
	// StopLength is a turn cut by the output limit; none of its calls may be executed.
	StopLength StopReason = "Length"
	// StopRefusal is a refusal by the model.
	StopRefusal StopReason = "Refusal"
	// StopPaused is a turn that the provider wants to be sent back to be continued.
	StopPaused StopReason = "Paused"
)

// Scope is the issuer of a credential: only the same dialect at the same endpoint, for the same model and credential
// name, may see it again.
type Scope struct {
	// Route is the route's name (package route).
	Route string `json:"route"`
	// Dialect is the wire format in which the credential was minted.
	Dialect string `json:"dialect"`
	// Model is the model id at the issuer.
	Model string `json:"model"`
}

// Credential is opaque data of one issuer. Its bytes are stored and replayed verbatim, and never shown as text.
type Credential struct {
	Scope Scope `json:"scope"`
	// Kind names the credential in its dialect, for example signature, redacted, callID or reasoning.
	Kind string `json:"kind"`
	Data []byte `json:"data"`
}

// Text returns the concatenated text blocks of the message.
func (m Message) Text() string {
	var text string
	for _, b := range m.Blocks {
		if b.Kind == BlockText {
			text += b.Text
		}
	}
	return text
}

// Calls returns the tool calls of the message, in order.
func (m Message) Calls() []Call {
	var calls []Call
	for _, b := range m.Blocks {
		if b.Kind == BlockCall && b.Call != nil {
			calls = append(calls, *b.Call)
		}
	}
	return calls
}
