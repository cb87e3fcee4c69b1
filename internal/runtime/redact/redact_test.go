package redact

import "testing"

func TestKnownValuesAreReplacedInEveryForm(t *testing.T) {
	r := New("sk-canary-123/+", "sk-canary-123/+-long", "short")
	for in, want := range map[string]string{
		"key=sk-canary-123/+ end":          "key=[redacted] end",
		"sk-canary-123/+-long":             "[redacted]",
		"c2stY2FuYXJ5LTEyMy8r":             "[redacted]", // base64
		"sk-canary-123%2F%2B":              "[redacted]", // URL-escaped
		"a short word stays":               "a short word stays",
		"sk-canary-123 without its end":    "sk-canary-123 without its end",
		"sk-canary-123/+sk-canary-123/+":   "[redacted][redacted]",
		"\xff\xfe sk-canary-123/+ \x00 ok": "\xff\xfe [redacted] \x00 ok",
	} {
		if got := r.String(in); got != want {
			t.Errorf("String(%q) = %q, want %q", in, got, want)
		}
		if got := string(r.Bytes([]byte(in))); got != want {
			t.Errorf("Bytes(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestNoValuesReplaceNothing(t *testing.T) {
	for _, r := range []*Redactor{nil, {}, New(), New("", "abc")} {
		if got := r.String("abc"); got != "abc" {
			t.Errorf("String = %q", got)
		}
		if got := string(r.Bytes([]byte("abc"))); got != "abc" {
			t.Errorf("Bytes = %q", got)
		}
	}
}
