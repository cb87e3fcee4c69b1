package chaos_test

import (
	"errors"
	"strings"
	"testing"

	"belay.dev/belay/internal/chaos"
)

func TestAScriptsErrorsNameLegStepFieldAndLine(t *testing.T) {
	for _, c := range []struct {
		name, yaml string
		leg        string
		step       int
		field      string
		line       int
		says       string
	}{
		{"an unknown field of a step", "legs:\n  a:\n    steps:\n    - answer: x\n      wat: 3\n", "a", 1, "wat", 5, "unknown field"},
		{"an unknown field inside a step", "legs:\n  a:\n    steps:\n    - answer: x\n    - calls:\n      - name: s\n        argumnts: {}\n", "a", 2, "calls.0.argumnts", 7, "unknown field"},
		{"an unknown field of a leg", "legs:\n  a:\n    dialekt: x\n    steps: []\n", "a", 0, "dialekt", 3, "unknown field"},
		{"an unknown field of the script", "legs: {a: {steps: []}}\nlegz: {}\n", "", 0, "legz", 2, "unknown field"},
		{"an unknown dialect", "legs:\n  a:\n    dialect: Smoke\n    steps: []\n", "a", 0, "dialect", 3, `"Smoke" is none of OpenAIChat, AnthropicMessages`},
		{"a vendor of the wrong dialect", "legs:\n  a: {dialect: AnthropicMessages, vendor: Mistral, steps: []}\n", "a", 0, "vendor", 2, "only the dialect OpenAIChat"},
		{"times of nothing", "legs:\n  a:\n    steps:\n    - status: 503\n      times: 0\n", "a", 1, "times", 5, "0 is neither a number of at least 1 nor Forever"},
		{"times that are a word", "legs:\n  a:\n    steps:\n    - {status: 503, times: Always}\n", "a", 1, "times", 4, `"Always" is neither a number nor Forever`},
		{"a status that is text", "legs:\n  a:\n    steps:\n    - {status: bad}\n", "a", 1, "status", 4, "want int, got string"},
		{"a status that is no status", "legs:\n  a:\n    steps:\n    - {status: 99}\n", "a", 1, "status", 4, "99 is no final HTTP status"},
		{"a step that does nothing", "legs:\n  a:\n    steps:\n    - {delayMilliseconds: 5}\n", "a", 1, "", 4, "says nothing to do"},
		{"a step that does two things", "legs:\n  a:\n    steps:\n    - {answer: x, status: 200}\n", "a", 1, "", 4, "status and a model turn"},
		{"an answer with calls", "legs:\n  a:\n    steps:\n    - {answer: x, calls: [{name: s}]}\n", "a", 1, "answer", 4, "an answer ends the conversation"},
		{"a call without a name", "legs:\n  a:\n    steps:\n    - {calls: [{arguments: {}}]}\n", "a", 1, "calls[0].name", 4, "a call needs a name"},
		{"arguments that are a list", "legs:\n  a:\n    steps:\n    - {calls: [{name: s, arguments: [1]}]}\n", "a", 1, "calls[0].arguments", 4, "must be an object"},
		{"a cut without a place", "legs:\n  a:\n    steps:\n    - {answer: x, cut: Reset}\n", "a", 1, "cut", 4, "needs cutAfterEvents or cutAfterBytes"},
		{"an unknown cut", "legs:\n  a:\n    steps:\n    - {answer: x, cutAfterEvents: 1, cut: Hard}\n", "a", 1, "cut", 4, `"Hard" is none of`},
		{"a negative cut", "legs:\n  a:\n    steps:\n    - {answer: x, cutAfterEvents: -1}\n", "a", 1, "cutAfterEvents", 4, "negative"},
		{"a stream's field on a status", "legs:\n  a:\n    steps:\n    - {status: 503, finishReason: stop}\n", "a", 1, "finishReason", 4, "needs a model turn"},
		{"endless pings without a pause", "legs:\n  a:\n    steps:\n    - {answer: x, comments: Forever}\n", "a", 1, "comments", 4, "need delayMilliseconds"},
		{"reasoning where the API has none", "legs:\n  a:\n    steps:\n    - {answer: x, thinking: hm}\n", "a", 1, "thinking", 4, "set the leg's vendor"},
		{"a bill of less than nothing", "legs:\n  a:\n    steps:\n    - {answer: x, billing: {input: -1}}\n", "a", 1, "billing", 4, "negative"},
		{"a redirect to nowhere", "legs:\n  a:\n    steps:\n    - {redirect: {status: 307}}\n", "a", 1, "redirect.location", 4, "must not be empty"},
		{"a name that is no path segment", "legs:\n  a/b: {steps: []}\n", "a/b", 0, "", 2, "path segment"},
		{"the name of the control endpoints", "legs:\n  _chaos: {steps: []}\n", "_chaos", 0, "", 2, "path segment"},
		{"no legs", "legs: {}\n", "", 0, "legs", 1, "at least one leg"},
		{"a key given twice", "legs:\n  a: {steps: []}\n  a: {steps: []}\n", "", 0, "", 0, "already set"},
		{"text that is no YAML", "legs: [", "", 0, "", 0, "yaml"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := chaos.ParseScript([]byte(c.yaml))
			var scriptErr *chaos.ScriptError
			if !errors.As(err, &scriptErr) {
				t.Fatalf("got error %v, want a ScriptError", err)
			}
			got := *scriptErr
			if got.Leg != c.leg || got.Step != c.step || got.Field != c.field || got.Line != c.line || !strings.Contains(got.Problem, c.says) {
				t.Errorf("got leg %q, step %d, field %q, line %d: %s\nwant leg %q, step %d, field %q, line %d: …%s…",
					got.Leg, got.Step, got.Field, got.Line, got.Problem, c.leg, c.step, c.field, c.line, c.says)
			}
		})
	}
}

func TestAScriptsErrorsAreAllReported(t *testing.T) {
	_, err := chaos.ParseScript([]byte("legs:\n  b: {steps: [{status: 1}]}\n  a: {steps: [{answer: x}, {wat: 1}, {times: 0}]}\n"))
	want := `chaos script: line 3, leg "a", step 2, field wat: unknown field
chaos script: line 3, leg "a", step 3, field times: 0 is neither a number of at least 1 nor Forever
chaos script: line 2, leg "b", step 1, field status: 1 is no final HTTP status`
	if err == nil || err.Error() != want {
		t.Errorf("got:\n%v\nwant:\n%s", err, want)
	}
}

func FuzzParseScript(f *testing.F) {
	f.Add("legs: {primary: {steps: [{status: 503, headers: {a: b}, body: x, times: Forever}]}}")
	f.Add("legs: {b: {steps: [{calls: [{name: shell, arguments: {}}]}, {answer: x, delayMilliseconds: 50, cutAfterEvents: 3}, {reset: {}}, {silence: {}}]}}")
	f.Add("legs: &x {a: *x}")
	f.Add("legs: {? [a] : b}")
	f.Fuzz(func(t *testing.T, text string) {
		script, err := chaos.ParseScript([]byte(text))
		if (script == nil) == (err == nil) {
			t.Fatalf("got script %v and error %v; want exactly one", script, err)
		}
	})
}
