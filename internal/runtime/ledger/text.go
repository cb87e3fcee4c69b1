package ledger

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// Text is a string that may hold any bytes, such as the output of a tool. Valid
// UTF-8 is encoded as a JSON string, anything else as {"base64":"…"}; plain Go
// strings would silently lose invalid bytes, because encoding/json replaces them
// with U+FFFD.
type Text string

type encodedText struct {
	Base64 []byte `json:"base64"`
}

// MarshalJSON encodes t so that UnmarshalJSON gives back the same bytes.
func (t Text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		return marshal(string(t))
	}
	return marshal(encodedText{Base64: []byte(t)})
}

// UnmarshalJSON accepts both forms. Null leaves t unchanged, as encoding/json
// demands.
func (t *Text) UnmarshalJSON(data []byte) error {
	data = bytes.TrimSpace(data)
	switch {
	case len(data) > 0 && data[0] == '"':
		return json.Unmarshal(data, (*string)(t))
	case bytes.Equal(data, []byte("null")):
		return nil
	case len(data) > 0 && data[0] == '{':
		var wrapped struct {
			Base64 *[]byte `json:"base64"`
		}
		if err := json.Unmarshal(data, &wrapped); err != nil {
			return err
		}
		if wrapped.Base64 == nil {
			return fmt.Errorf(`decoding text: object has no member "base64"`)
		}
		*t = Text(*wrapped.Base64)
		return nil
	default:
		return fmt.Errorf(`decoding text: want a string or {"base64":"…"}`)
	}
}

// marshal is the one JSON encoder of the ledger. It leaves <, > and & alone: the
// escapes would only lengthen the lines, and hide secrets from redaction.
func marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}
