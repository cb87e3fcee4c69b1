package provider

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/message"
)

// Body builds a JSON object field by field, in the order of the calls, so that equal requests have equal bytes.
type Body struct {
	parameters map[string]json.RawMessage
	buf        bytes.Buffer
}

// NewBody begins a body. Parameters, an object or nil, override fields that the dialect sets, except the reserved ones:
// those carry the run itself. A parameter that is null removes its field.
func NewBody(parameters json.RawMessage, reserved ...string) (*Body, error) {
	b := &Body{}
	if len(bytes.TrimSpace(parameters)) > 0 {
		if err := json.Unmarshal(parameters, &b.parameters); err != nil {
			return nil, invalidParameters("they are not a JSON object")
		}
	}
	for _, name := range reserved {
		if _, ok := b.parameters[name]; ok {
			return nil, invalidParameters(fmt.Sprintf("they may not set %q", name))
		}
	}
	b.buf.WriteByte('{')
	return b, nil
}

func invalidParameters(why string) error {
	return &failure.Cause{Kind: failure.InvalidRequest, Sub: failure.SubConfiguration,
		Message: "the leg's parameters cannot be used: " + why}
}

// Overrides tells whether the parameters hold the field.
func (b *Body) Overrides(name string) bool {
	_, ok := b.parameters[name]
	return ok
}

// Set writes a field unless the parameters override it.
func (b *Body) Set(name string, value any) error {
	if b.Overrides(name) {
		return nil
	}
	raw, err := Marshal(value)
	if err != nil {
		return fmt.Errorf("encode field %s of the request: %w", name, err)
	}
	b.write(name, raw)
	return nil
}

func (b *Body) write(name string, raw []byte) {
	if b.buf.Len() > 1 {
		b.buf.WriteByte(',')
	}
	key, _ := json.Marshal(name)
	b.buf.Write(key)
	b.buf.WriteByte(':')
	b.buf.Write(raw)
}

// Bytes ends the object with the parameters, sorted by name.
func (b *Body) Bytes() []byte {
	for _, name := range slices.Sorted(maps.Keys(b.parameters)) {
		if value := b.parameters[name]; string(bytes.TrimSpace(value)) != "null" {
			var compact bytes.Buffer
			if json.Compact(&compact, value) == nil {
				b.write(name, compact.Bytes())
			}
		}
	}
	b.buf.WriteByte('}')
	return b.buf.Bytes()
}

// Marshal encodes without escaping <, > and &, which models would see as tokens. Invalid UTF-8 becomes U+FFFD.
func Marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	encoder := json.NewEncoder(&buf)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(buf.Bytes(), "\n"), nil
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
