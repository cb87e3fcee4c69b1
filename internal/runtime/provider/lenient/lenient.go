// Package lenient holds JSON types for fields whose type differs between servers that claim the same dialect. A detail
// that nobody needs must not cost an answer: what has another type reads as the zero value.
//
// The package is a pure leaf: it imports the standard library only.
package lenient

import "encoding/json"

// String is a JSON string; null and every other type are empty.
type String string

// UnmarshalJSON implements json.Unmarshaler.
func (s *String) UnmarshalJSON(raw []byte) error {
	if len(raw) == 0 || raw[0] != '"' {
		*s = ""
		return nil
	}
	return json.Unmarshal(raw, (*string)(s))
}

// maxInt is the largest integer that every JSON implementation holds exactly.
const maxInt = 1 << 53

// Int is a JSON number without its fraction; null, negative and absurd numbers and every other type are 0.
type Int int64

// UnmarshalJSON implements json.Unmarshaler.
func (n *Int) UnmarshalJSON(raw []byte) error {
	var f float64
	if json.Unmarshal(raw, &f) != nil || f < 0 || f > maxInt {
		*n = 0
		return nil
	}
	*n = Int(f)
	return nil
}

// Present tells whether a field says anything: it is there, and not null, false or empty.
func Present(raw json.RawMessage) bool {
	switch string(raw) {
	case "", "null", "false", `""`:
		return false
	}
	return true
}
