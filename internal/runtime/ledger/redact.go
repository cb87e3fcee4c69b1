package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
)

// redactJSON applies redact to encoded JSON as it is, and to the decoded form of
// the strings that differ from their encoding: those with escapes, and the base64
// form of Text. Otherwise a secret that contains a quote, or that stands in binary
// output, would be missed.
func redactJSON(data []byte, redact func([]byte) []byte) ([]byte, error) {
	out := make([]byte, 0, len(data))
	rest := redact(data)
	lastKeyIsBase64 := false
	for {
		i := bytes.IndexByte(rest, '"')
		if i < 0 {
			break
		}
		out = append(out, rest[:i]...)
		rest = rest[i:]
		n := stringEnd(rest)
		if n < 0 {
			return nil, errRedactedShape
		}
		token := rest[:n]
		rest = rest[n:]
		isKey := len(rest) > 0 && rest[0] == ':'
		replaced, err := redactString(token, lastKeyIsBase64 && !isKey, redact)
		if err != nil {
			return nil, err
		}
		out = append(out, replaced...)
		lastKeyIsBase64 = isKey && string(token) == `"base64"`
	}
	out = append(out, rest...)
	if !json.Valid(out) {
		return nil, errRedactedShape
	}
	return out, nil
}

var errRedactedShape = errors.New("the redacted payload is no longer JSON")

// stringEnd returns the length of the JSON string that b begins with, or -1.
func stringEnd(b []byte) int {
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return -1
}

func redactString(token []byte, isBase64 bool, redact func([]byte) []byte) ([]byte, error) {
	if isBase64 {
		var raw []byte
		// A string that is no base64 after all is an ordinary string.
		if json.Unmarshal(token, &raw) == nil {
			if clean := redact(bytes.Clone(raw)); !bytes.Equal(clean, raw) {
				return marshal(clean)
			}
			return token, nil
		}
	}
	if bytes.IndexByte(token, '\\') < 0 {
		return token, nil
	}
	var text string
	if err := json.Unmarshal(token, &text); err != nil {
		return nil, errRedactedShape
	}
	if clean := redact([]byte(text)); string(clean) != text {
		return marshal(Text(clean))
	}
	return token, nil
}
