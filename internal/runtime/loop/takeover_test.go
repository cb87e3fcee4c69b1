package loop_test

import (
	"strings"
	"testing"
	"time"

	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/provider"
	"belay.dev/belay/internal/runtime/tools"
)

// rest is a tool that takes so long.
func (s *scene) rest(d time.Duration) func(tools.Call) tools.Outcome {
	return func(c tools.Call) tools.Outcome {
		s.clock.Step(d)
		return tools.Outcome{Status: tools.OK, Text: "done " + c.Tool}
	}
}

// servedBy are the legs of the committed turns, in order.
func (s *scene) servedBy() string {
	var legs []string
	for _, r := range find[record.LLMResponse](s) {
		legs = append(legs, r.Leg)
	}
	return strings.Join(legs, " ")
}

// TestATaskMovesBetweenDialectsAndBackInTheMiddleOfItsToolCalls runs through an outage of an OpenAIChat leg, back to it by
// its probe, and through a spent quota to the AnthropicMessages leg again. Both fakes refuse what the vendors refuse: a
// foreign signature, a call without its result, ids out of their grammar.
func TestATaskMovesBetweenDialectsAndBackInTheMiddleOfItsToolCalls(t *testing.T) {
	for name, parameters := range map[string]string{
		"without a thinking budget": ``,
		"with a thinking budget":    `{"thinking": {"type": "enabled", "budget_tokens": 1024}}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, `legs:
  gpt:
    steps:
    - {text: "I look.", calls: [{name: look, arguments: {count: 1}}, {name: act, arguments: {count: 2}}]}
    - {status: 503, times: 3}
    - {expect: {assistantTurns: 2, toolResults: [{call: 3, contains: "done act"}]}, calls: [{name: look, arguments: {count: 4}}]}
    - {status: 429, error: {type: insufficient_quota, code: insufficient_quota}, times: Forever}
  claude:
    dialect: AnthropicMessages
    steps:
    - {thinking: "What did the other one find?", redactedThinking: "hidden", expect: {toolResults: [{call: 1, contains: "done look"}, {call: 2, contains: "done act"}]}, calls: [{name: act, arguments: {count: 3}}]}
    - {thinking: "Once more.", expect: {assistantTurns: 3}, calls: [{name: look, arguments: {count: 5}}]}
    - {thinking: "Now I know.", answer: "done by three"}
`, "gpt", "claude")
			s.target("claude", func(t *provider.Target) { t.Parameters = []byte(parameters) })
			s.workspace.answer = s.rest(31 * time.Second) // which outlasts the cooldown of 30 s
			s.expectEnd("Completed", "done by three")
			if r := s.refusals(); len(r) > 0 {
				t.Errorf("refused: %v", r)
			}
			if got, want := s.servedBy(), "gpt claude gpt claude claude"; got != want {
				t.Errorf("turns served by %s, want %s", got, want)
			}
			var fallbacks []string
			for _, f := range find[record.RouteFallback](s) {
				fallbacks = append(fallbacks, f.From+">"+f.To+" "+f.Reason)
			}
			if got, want := strings.Join(fallbacks, ", "), "gpt>claude RouteOpen, gpt>claude NoRetry"; got != want {
				t.Errorf("fallbacks %q, want %q", got, want)
			}
		})
	}
}
