package provider

import (
	"encoding/json"
	"testing"
)

func TestAStringIsReadAsEncodingJSONReadsIt(t *testing.T) {
	for _, in := range []string{`""`, `"a"`, `"a b"`, `"ä€😀"`, `"a\"b\\c\n"`, `"\u00e4\ud83d\ude00"`, `"\ud800"`, "\"a\xffb\"", `"\u0000"`, "\"\x7f\""} {
		var want string
		if err := json.Unmarshal([]byte(in), &want); err != nil {
			t.Fatal(err)
		}
		var got LenientString
		if err := json.Unmarshal([]byte(in), &got); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v, want %q", in, got, err, want)
		}
	}
}

func TestAnotherTypeInPlaceOfAStringIsEmpty(t *testing.T) {
	for _, in := range []string{`null`, `5`, `true`, `{"a":"b"}`, `["a"]`} {
		got := LenientString("before")
		if err := json.Unmarshal([]byte(in), &got); err != nil || got != "" && in != "null" {
			t.Errorf("%s: got %q, %v", in, got, err)
		}
	}
}

func TestANumberIsReadWithoutItsFraction(t *testing.T) {
	for in, want := range map[string]LenientInt{`0`: 0, `7`: 7, `123456789012345`: 123456789012345, `9007199254740992`: 1 << 53, `12.9`: 12,
		`1e3`: 1000, `-1`: 0, `1e300`: 0, `"5"`: 0, `true`: 0, `[]`: 0, `{}`: 0} {
		got := LenientInt(99)
		if err := json.Unmarshal([]byte(in), &got); err != nil || got != want {
			t.Errorf("%s: got %d, %v, want %d", in, got, err, want)
		}
	}
}

func TestPresenceNeedsAValue(t *testing.T) {
	for in, want := range map[string]bool{``: false, `null`: false, `false`: false, `""`: false, `"x"`: true, `{}`: true, `0`: true, `true`: true} {
		if got := IsPresent(json.RawMessage(in)); got != want {
			t.Errorf("%q: got %v, want %v", in, got, want)
		}
	}
}

func FuzzUnquoteJSON(f *testing.F) {
	f.Add(`"a"`)
	f.Add("\"\x01\"")
	f.Fuzz(func(t *testing.T, in string) {
		var want string
		if json.Unmarshal([]byte(in), &want) != nil || len(in) == 0 || in[0] != '"' || in[len(in)-1] != '"' {
			return // no JSON string: a decoder never hands one over
		}
		if got, err := UnquoteJSON([]byte(in)); err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", in, got, err, want)
		}
	})
}
