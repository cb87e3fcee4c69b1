package tools

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestOnlyTheModelsOwnMistakesAreCorrectable(t *testing.T) {
	for kind, want := range map[ErrorKind]bool{
		KindUnknownTool: true, KindInvalidArguments: true, KindNotFound: true, KindExecutionFailed: true, KindTimeout: true,
		KindNone: false, KindCancelled: false, KindDenied: false, KindRevoked: false, KindAuth: false, KindRateLimited: false,
		KindProcessCrashed: false, KindInDoubt: false, "Unheard": false,
	} {
		if got := kind.Correctable(); got != want {
			t.Errorf("%q: %v, want %v", kind, got, want)
		}
	}
}

func TestIDsAndNamesHaveANarrowGrammar(t *testing.T) {
	for id, want := range map[string]bool{"Ab3dE9xQ1": true, "Ab3dE9xQ": false, "Ab3dE9xQ12": false, "Ab3dE9x-1": false, "": false, "äbcdefgh": false} {
		if ValidCallID(id) != want {
			t.Errorf("call id %q: want %v", id, want)
		}
	}
	for name, want := range map[string]bool{"files__put": true, "a-b": true, strings.Repeat("x", 64): true, strings.Repeat("x", 65): false, "": false, "a.b": false, "a b": false} {
		if ValidName(name) != want {
			t.Errorf("name %q: want %v", name, want)
		}
	}
}

func TestDigestsIgnoreOrderAndWhiteSpaceOnly(t *testing.T) {
	digest := func(name, schema string) string {
		d, err := Digest(name, json.RawMessage(schema))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	base := digest("t", `{"type":"object","maximum":10000000000000000001}`)
	if base != digest("t", "{ \"maximum\": 10000000000000000001,\n \"type\": \"object\" }") {
		t.Error("order or white space changed the digest")
	}
	for _, other := range []string{digest("u", `{"type":"object","maximum":10000000000000000001}`), digest("t", `{"type":"object","maximum":10000000000000000002}`)} {
		if base == other {
			t.Error("another tool has the same digest")
		}
	}
	if _, err := Digest("t", json.RawMessage(`{`)); err == nil {
		t.Error("a schema that is not JSON has a digest")
	}
	none, err := ArgumentsDigest(nil)
	if empty, err2 := ArgumentsDigest(json.RawMessage(" { } ")); err != nil || err2 != nil || none != empty {
		t.Errorf("no arguments and {} differ: %v %v", err, err2)
	}
}

func TestViolationsNameThePlaceAndStayShort(t *testing.T) {
	tool := Tool{Name: "t", InputSchema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer","minimum":1},"s":{"type":"string"}},"required":["n"],"additionalProperties":false}`)}
	var v Validator
	for arguments, want := range map[string]string{
		`{"n":1}`: "", `{"n":1,"s":"x"}`: "", `{}`: `"n"`, ``: `"n"`, `null`: `"n"`, `{"n":"1"}`: "/properties/n", `{"n":0}`: "minimum",
		`{"n":1.5}`: `"integer"`, `{"n":1,"extra":2}`: "extra", `[1]`: "an array", `"x"`: "a string", `true`: "a boolean", `5`: "a number",
		`{"n":1} {}`: "text follows", `{"n":`: "not valid JSON",
	} {
		err := v.Validate(tool, json.RawMessage(arguments))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", arguments, err, want)
		}
	}
	err := v.Validate(tool, json.RawMessage(`{"n":"`+strings.Repeat("é", 5000)+`"}`))
	if err == nil || len(err.Error()) > 1024 {
		t.Errorf("a violation that quotes a long value: %v", err)
	}
}

func TestASchemaThatCannotBeReadIsAnError(t *testing.T) {
	var v Validator
	for _, schema := range []string{`{"type":5}`, `{"$ref":"#/missing"}`, ``} {
		if err := v.Validate(Tool{Name: "t", InputSchema: json.RawMessage(schema)}, nil); err == nil {
			t.Errorf("%q is taken for a schema", schema)
		}
	}
}
