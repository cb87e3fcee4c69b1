package provider

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/message"
)

// ControlMarker opens a note of the runtime in a user message, so that the model does not take it for the user's words.
const ControlMarker = "[Note from the runtime, not from the user]\n"

// ScopeOf is the issuer of what the target mints.
func ScopeOf(target Target) message.Scope {
	return message.Scope{
		Route:   string(target.Route.Name()),
		Dialect: string(target.Route.Dialect),
		Model:   target.Route.Model,
	}
}

// CheckImage tells whether the media can be sent to the target. Its error is a *failure.Cause.
func CheckImage(target Target, media *message.Media) error {
	switch {
	case media == nil:
		return failure.Causef(failure.InvalidRequest, "the trajectory has an empty media block")
	case !target.Images:
		return &failure.Cause{Kind: failure.InvalidRequest, Sub: failure.SubConfiguration,
			Message: fmt.Sprintf("the conversation holds an image, and leg %q does not declare the image capability", target.Leg)}
	case !strings.HasPrefix(media.MIMEType, "image/"):
		return &failure.Cause{Kind: failure.InvalidRequest, Sub: failure.SubConfiguration,
			Message: fmt.Sprintf("the conversation holds media of the type %q, and only images can be sent to leg %q", media.MIMEType, target.Leg)}
	case len(media.Data) == 0:
		return failure.Causef(failure.InvalidRequest, "the image %s of the conversation was not loaded", media.Blob.SHA256)
	}
	return nil
}

// InputSchema returns a tool's schema, or the schema of any object for a tool without one.
func InputSchema(t Tool) json.RawMessage {
	if IsJSONObject(t.InputSchema) {
		return t.InputSchema
	}
	return json.RawMessage(`{"type":"object"}`)
}

// maxToolName is the narrowest bound of the vendors.
const maxToolName = 64

// ReplayName returns the name of a call as every vendor accepts it in a history: [A-Za-z0-9_-]{1,64}. A model may have
// called a tool by a name that does not exist and that another vendor would refuse.
func ReplayName(name string) string {
	clean := []byte(name)
	for i, c := range clean {
		isLetter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !isLetter && (c < '0' || c > '9') && c != '_' && c != '-' {
			clean[i] = '_'
		}
	}
	if len(clean) == 0 {
		return "unnamed"
	}
	return string(clean[:min(len(clean), maxToolName)])
}

// ReplayArguments returns a call's arguments as they may be sent: a JSON object, without lone surrogates, which are
// valid in a JSON text and in no UTF-8 string that a server would make of it.
func ReplayArguments(arguments json.RawMessage) json.RawMessage {
	if !IsJSONObject(arguments) {
		return json.RawMessage("{}")
	}
	return replaceLoneSurrogates(arguments)
}

// IsJSONObject tells whether the bytes are one valid JSON object, as a call's arguments must be.
func IsJSONObject(raw []byte) bool {
	trimmed := bytes.TrimSpace(raw)
	return len(trimmed) > 0 && trimmed[0] == '{' && json.Valid(trimmed)
}

// replaceLoneSurrogates writes \ufffd over each \ud800–\udfff escape that is no half of a pair.
func replaceLoneSurrogates(raw json.RawMessage) json.RawMessage {
	var out []byte
	for i := 0; i+1 < len(raw); {
		if raw[i] != '\\' {
			i++
			continue
		}
		unit, ok := surrogate(raw[i:])
		if !ok {
			i += 2
			continue
		}
		if next, ok := surrogate(raw[i+6:]); unit < 0xdc00 && ok && next >= 0xdc00 {
			i += 12
			continue
		}
		if out == nil {
			out = bytes.Clone(raw)
		}
		copy(out[i:], `\ufffd`)
		i += 6
	}
	if out == nil {
		return raw
	}
	return out
}

// surrogate reads an escape \udXXX at the beginning of raw.
func surrogate(raw []byte) (rune, bool) {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return 0, false
	}
	var unit rune
	for _, c := range raw[2:6] {
		digit := bytes.IndexByte([]byte("0123456789abcdef"), c|0x20)
		if digit < 0 {
			return 0, false
		}
		unit = unit<<4 | rune(digit)
	}
	return unit, unit >= 0xd800 && unit <= 0xdfff
}

// NewCall returns a call as a decoder found it, without an ID. No arguments at all are an empty object, as models write
// a call without parameters; anything else that is no JSON object is kept raw.
func NewCall(name, arguments string) *message.Call {
	trimmed := strings.TrimSpace(arguments)
	switch {
	case trimmed == "":
		return &message.Call{Name: name, Arguments: json.RawMessage("{}")}
	case IsJSONObject([]byte(trimmed)):
		return &message.Call{Name: name, Arguments: json.RawMessage(trimmed)}
	default:
		return &message.Call{Name: name, Arguments: json.RawMessage("{}"), RawArguments: arguments}
	}
}
