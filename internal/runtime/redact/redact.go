// Package redact replaces known secret values in what a run writes down or says to a model. It knows values, not
// patterns: a guess at what looks like a secret would corrupt tool output and still miss real ones.
//
// The package is a pure leaf: it imports the standard library only.
package redact

import (
	"encoding/base64"
	"net/url"
	"slices"
	"strings"
)

// Mark stands where a secret was.
const Mark = "[redacted]"

// minLength keeps trivial values, such as "1" or "true", from being cut out of every text.
const minLength = 6

// Redactor replaces a fixed set of values. Its zero value and a nil one replace nothing.
type Redactor struct{ replacer *strings.Replacer }

// New returns a redactor of the values, also where they appear in base64 or URL-escaped. Values shorter than six bytes
// are not replaced.
func New(values ...string) *Redactor {
	var forms []string
	for _, v := range values {
		if len(v) < minLength {
			continue
		}
		forms = append(forms, v, base64.StdEncoding.EncodeToString([]byte(v)), base64.RawURLEncoding.EncodeToString([]byte(v)), url.QueryEscape(v))
	}
	slices.Sort(forms)
	forms = slices.Compact(forms)
	// The longest first, so that a secret that contains another one is replaced whole.
	slices.SortStableFunc(forms, func(a, b string) int { return len(b) - len(a) })
	if len(forms) == 0 {
		return &Redactor{}
	}
	pairs := make([]string, 0, 2*len(forms))
	for _, f := range forms {
		pairs = append(pairs, f, Mark)
	}
	return &Redactor{replacer: strings.NewReplacer(pairs...)}
}

// String returns s without the values.
func (r *Redactor) String(s string) string {
	if r == nil || r.replacer == nil {
		return s
	}
	return r.replacer.Replace(s)
}

// Bytes returns b without the values.
func (r *Redactor) Bytes(b []byte) []byte {
	if r == nil || r.replacer == nil {
		return b
	}
	return []byte(r.replacer.Replace(string(b)))
}
