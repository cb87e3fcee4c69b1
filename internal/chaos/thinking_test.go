package chaos_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"belay.dev/belay/internal/chaos"
)

const thinkingScript = `
legs:
  claude: {dialect: AnthropicMessages, steps: [{thinking: "Hm.", redactedThinking: "hidden words", calls: [{name: shell, arguments: {cmd: ls}}]}, {answer: done, times: Forever}]}
  claude-b: {dialect: AnthropicMessages, steps: [{answer: done, times: Forever}]}
`

// thinkingTurn asks for the first turn without a stream, and returns its blocks.
func thinkingTurn(t *testing.T, r *rig) []any {
	t.Helper()
	o := claudeConversation()
	delete(o, "stream")
	setMessages(o, object{"role": "user", "content": "List the files."})
	got := r.post("claude", encode(t, o))
	var answer struct{ Content []any }
	if err := json.Unmarshal([]byte(got.body), &answer); err != nil || got.status != 200 || len(answer.Content) != 3 {
		t.Fatalf("got %d, %v: %s", got.status, err, got.body)
	}
	return answer.Content
}

// back returns the request that sends blocks back with a result for the call in the last of them.
func back(t *testing.T, blocks []any, change func(o object)) string {
	t.Helper()
	o := claudeConversation()
	id := blocks[len(blocks)-1].(object)["id"].(string)
	setMessages(o, object{"role": "user", "content": "List the files."}, object{"role": "assistant", "content": blocks},
		object{"role": "user", "content": []any{claudeResult(id)}})
	change(o)
	return encode(t, o)
}

func with(block any, field, value string) object {
	out := object{}
	for k, v := range block.(object) {
		out[k] = v
	}
	out[field] = value
	return out
}

func TestThinkingMustComeBackAsItWasGiven(t *testing.T) {
	keep := func(object) {}
	for _, c := range []struct {
		name   string
		leg    string
		blocks func(given []any) []any
		change func(o object)
		says   string // empty: accepted
	}{
		{name: "unmodified", blocks: func(g []any) []any { return g }},
		{name: "with other words", blocks: func(g []any) []any { return []any{with(g[0], "thinking", "Ha."), g[1], g[2]} }, says: "invalid `signature`"},
		{name: "with another signature", blocks: func(g []any) []any { return []any{with(g[0], "signature", "AAAA"), g[1], g[2]} }, says: "invalid `signature`"},
		{name: "with another blob", blocks: func(g []any) []any { return []any{g[0], with(g[1], "data", "AAAA"), g[2]} }, says: "invalid `data`"},
		{name: "without the hidden part", blocks: func(g []any) []any { return []any{g[0], g[2]} }, says: "cannot be modified"},
		{name: "in another order", blocks: func(g []any) []any { return []any{g[1], g[0], g[2]} }, says: "cannot be modified"},
		{name: "behind the call", blocks: func(g []any) []any { return []any{g[0], object{"type": "text", "text": "x"}, g[1], g[2]} }, says: "must come before all other content"},
		{name: "not at all", blocks: func(g []any) []any { return g[2:] }, says: "cannot be modified"},
		{name: "not at all, with thinking disabled", blocks: func(g []any) []any { return g[2:] }, change: func(o object) { o["thinking"] = object{"type": "disabled"} }},
		{name: "not at all, under an id of one's own", blocks: func(g []any) []any { return []any{with(g[2], "id", "Ab3dE9xQ1")} }},
		{name: "dropped from a finished cycle", blocks: func(g []any) []any { return g[2:] }, change: func(o object) {
			o["messages"] = append(o["messages"].([]any), object{"role": "assistant", "content": "done"}, object{"role": "user", "content": "thanks"})
		}},
		{name: "to another leg", leg: "claude-b", blocks: func(g []any) []any { return g }, says: "invalid `signature`"},
		{name: "to another model", blocks: func(g []any) []any { return g }, change: func(o object) { o["model"] = "c2" }, says: "invalid `signature`"},
		{name: "to another leg, stripped", leg: "claude-b", blocks: func(g []any) []any { return g[2:] }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, thinkingScript)
			change, leg := c.change, c.leg
			if change == nil {
				change = keep
			}
			if leg == "" {
				leg = "claude"
			}
			got := r.post(leg, back(t, c.blocks(thinkingTurn(t, r)), change))
			switch {
			case c.says == "" && got.status != 200:
				t.Errorf("refused with %d %s", got.status, got.body)
			case c.says != "" && (got.status != 400 || !strings.Contains(got.body, c.says)):
				t.Errorf("got %d %s; want 400 that says %s", got.status, got.body, c.says)
			}
		})
	}
}

func TestThinkingIsBoundToTheServerThatSignedIt(t *testing.T) {
	issuer := newRig(t, thinkingScript)
	blocks := thinkingTurn(t, issuer)
	for seed, want := range map[uint64]int{7: 200, 8: 400, 0: 400} {
		server := chaos.NewServer(parse(t, thinkingScript), chaos.Options{Seed: seed})
		hs := httptest.NewServer(server.Handler())
		other := &rig{t: t, server: server, http: hs}
		if got := other.post("claude", back(t, blocks, func(object) {})); got.status != want {
			t.Errorf("a server of seed %d answers %d %s; want %d", seed, got.status, got.body, want)
		}
		hs.Close()
	}
}

func TestHiddenThinkingIsHidden(t *testing.T) {
	blocks := thinkingTurn(t, newRig(t, thinkingScript))
	if text := encode(t, blocks[1]); strings.Contains(text, "hidden") || !strings.Contains(text, "redacted_thinking") {
		t.Errorf("the block is %s", text)
	}
}

func TestASeedMakesAllAnswersRepeatable(t *testing.T) {
	bodies := func(seed uint64) string {
		server := chaos.NewServer(parse(t, `{legs: {a: {steps: [{calls: [{name: s}, {name: s}], times: 2}]}, b: {vendor: Mistral, steps: [{calls: [{name: s}]}]}}}`), chaos.Options{Seed: seed})
		hs := httptest.NewServer(server.Handler())
		defer hs.Close()
		r := &rig{t: t, server: server, http: hs}
		text := ""
		for _, leg := range []string{"a", "a", "b"} {
			text += r.post(leg, openAIHello).body
		}
		return regexp.MustCompile(`"created":\d+`).ReplaceAllString(text, "")
	}
	first := bodies(3)
	if bodies(3) != first {
		t.Error("two servers of one seed answer differently")
	}
	if bodies(4) == first {
		t.Error("servers of different seeds mint the same ids")
	}
	if random := bodies(0); bodies(0) == random {
		t.Error("servers without a seed mint the same ids")
	}
	ids := map[string]bool{}
	for _, id := range regexp.MustCompile(`"id":"(call_[0-9A-Za-z]{24}|[0-9A-Za-z]{9})"`).FindAllString(first, -1) {
		ids[id] = true
	}
	if len(ids) != 5 {
		t.Errorf("five calls have the ids %s", fmt.Sprint(ids))
	}
}
