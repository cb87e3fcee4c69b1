package provider

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"belay.dev/belay/internal/runtime/failure"
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
