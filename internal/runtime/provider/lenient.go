package provider

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// LenientString is a JSON string whose type differs between servers that claim the same dialect. A detail that nobody needs
// must not cost an answer, so null and every other type are empty.
type LenientString string

// UnmarshalJSON implements json.Unmarshaler.
func (s *LenientString) UnmarshalJSON(raw []byte) error {
	if len(raw) == 0 || raw[0] != '"' {
		*s = ""
		return nil
	}
	if n := len(raw); n >= 2 && string(raw[1:n-1]) == string(*s) && bytes.IndexByte(raw, '\\') < 0 {
		return nil
	}
	text, err := UnquoteJSON(raw)
	*s = LenientString(text)
	return err
}

// UnquoteJSON decodes a JSON string. Most pieces of a stream have no escapes, and are taken as they stand; the rest is left to
// encoding/json.
func UnquoteJSON(raw []byte) (string, error) {
	if n := len(raw); n >= 2 && raw[0] == '"' && bytes.IndexByte(raw, '\\') < 0 && utf8.Valid(raw) {
		return string(raw[1 : n-1]), nil
	}
	var text string
	err := json.Unmarshal(raw, &text)
	return text, err
}

// maxInt is the largest integer that every JSON implementation holds exactly.
const maxInt = 1 << 53

// LenientInt is a JSON number without its fraction; null, negative and absurd numbers and every other type are 0.
type LenientInt int64

// UnmarshalJSON implements json.Unmarshaler.
func (n *LenientInt) UnmarshalJSON(raw []byte) error {
	if digits, ok := decimal(raw); ok {
		*n = digits
		return nil
	}
	var f float64
	*n = 0
	if json.Unmarshal(raw, &f) == nil && f >= 0 && f <= maxInt {
		*n = LenientInt(f)
	}
	return nil
}

// decimal reads up to fifteen digits, which is what the integers of a stream are.
func decimal(raw []byte) (LenientInt, bool) {
	if len(raw) == 0 || len(raw) > 15 {
		return 0, false
	}
	var n LenientInt
	for _, c := range raw {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + LenientInt(c-'0')
	}
	return n, true
}

// IsPresent tells whether a field says anything: it is there, and not null, false or empty.
func IsPresent(raw json.RawMessage) bool {
	switch string(raw) {
	case "", "null", "false", `""`:
		return false
	}
	return true
}
