package loop_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/ladder"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/message"
	"belay.dev/belay/internal/runtime/provider"
)

// caps are the output caps of the requests that the last epoch made, in order.
func (s *scene) caps() []int64 {
	var out []int64
	for _, r := range find[record.LLMRequest](s) {
		out = append(out, r.Reserved.Usage.OutputTokens)
	}
	return out
}

func (s *scene) expectCaps(want ...int64) {
	s.t.Helper()
	if got := s.caps(); fmt.Sprint(got) != fmt.Sprint(want) {
		s.t.Errorf("output caps %v, want %v", got, want)
	}
}

func (s *scene) expectEnd(reason, text string) record.RunEnd {
	s.t.Helper()
	end := s.finish()
	if end.Reason != reason || end.Text != text {
		s.t.Errorf("ended as %s (%s) with %q, want %s with %q", end.Reason, end.Message, end.Text, reason, text)
	}
	return end
}

// tight leaves a leg's window no room for a higher cap than its own of 4,096 tokens.
func tight(s *scene) { s.ladder.Legs[0].ContextWindow = 5000 }

func TestAnAnswerThatItsCapCutIsAskedForAgainWithTwiceTheCap(t *testing.T) {
	s := newScene(t, `legs: {a: {steps: [{answer: "cut sho", finishReason: length, usage: {input: 10, output: 4096}}, {answer: "whole"}]}, b: `+answers+`}`, "a", "b")
	s.expectEnd("Completed", "whole")
	s.expectRequests("a=2 b=0")
	s.expectCaps(4096, 8192)
	receipts := find[record.LLMAttempt](s)
	if f := receipts[0].Failure; f == nil || f.Kind != failure.OutputTruncated || receipts[0].Partial == nil {
		t.Errorf("receipt = %+v, want OutputTruncated with the text kept aside", receipts[0])
	}
	if u := receipts[0].Charge.Usage; u.Estimated || u.OutputTokens != 4096 {
		t.Errorf("the cut answer was charged as %+v, want the reported 4096 tokens", u)
	}
}

func TestARaisedCapHoldsForTheRestOfTheRun(t *testing.T) {
	s := newScene(t, `legs: {a: {steps: [{answer: "x", finishReason: length}, {calls: [{name: look, arguments: {}}]}, {answer: "done"}]}}`, "a")
	s.expectEnd("Completed", "done")
	s.expectCaps(4096, 8192, 8192)
}

func TestWithoutRoomForAHigherCapACutAnswerIsContinued(t *testing.T) {
	s := newScene(t, `legs: {a: {steps: [{answer: "one ", finishReason: length}, {expect: {lastContains: "Continue exactly where it stopped"}, answer: "two"}]}}`, "a")
	tight(s)
	s.expectEnd("Completed", "one two")
	s.expectCaps(4096, 4096)
}

func TestNoCallOfACutTurnIsExecutedAndTheModelIsToldWhich(t *testing.T) {
	s := newScene(t, `legs: {a: {steps: [
	  {calls: [{name: act, arguments: {count: 1}}, {name: post, arguments: {count: 2}}], halfCall: true, finishReason: length},
	  {expect: {toolResults: [{call: 1, contains: "Not executed"}, {call: 2, contains: "in smaller pieces"}]}, calls: [{name: act, arguments: {count: 1}}]},
	  {answer: "done"}]}}`, "a")
	tight(s)
	s.expectEnd("Completed", "done")
	if n := len(s.workspace.dispatched); n != 1 {
		t.Errorf("calls %v, want the one that was sent again", s.workspace.dispatched)
	}
	for _, r := range find[record.ToolResult](s)[:2] {
		if r.Result.Status != message.ResultCancelled && r.Result.Status != message.ResultNotRun {
			t.Errorf("a call of the cut turn was answered as %s", r.Result.Status)
		}
	}
	if r := s.refusals(); len(r) > 0 {
		t.Errorf("the provider refused the conversation: %v", r)
	}
}

func TestThreeCutAnswersInARowEndTheRun(t *testing.T) {
	for name, step := range map[string]string{
		"of text":  `{answer: "x", finishReason: length, times: Forever}`,
		"of calls": `{calls: [{name: act, arguments: {count: 1}}], finishReason: length, times: Forever}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, `legs: {a: {steps: [`+step+`]}}`, "a")
			tight(s)
			if end := s.finish(); end.Reason != "OutputTruncated" || !strings.Contains(end.Message, "maxOutputTokens") {
				t.Errorf("ended as %s: %s", end.Reason, end.Message)
			}
			s.expectRequests("a=3")
			if len(s.workspace.dispatched) > 0 {
				t.Errorf("calls of cut turns ran: %v", s.workspace.dispatched)
			}
		})
	}
}

func TestACapIsNotRaised(t *testing.T) {
	cut := `{answer: "one ", finishReason: length, usage: {input: 10, output: 100}}`
	for name, test := range map[string]struct {
		steps  string
		change func(*scene)
		caps   []int64
	}{
		"when the leg's parameters set it": {cut, func(s *scene) {
			s.target("a", func(t *provider.Target) { t.Parameters = []byte(`{"max_tokens": 100}`) })
		}, []int64{4096, 4096}},
		"when the run cannot pay for it":    {cut, func(s *scene) { s.contract.Limits.MaxTokens = 6000 }, []int64{4096, 4096}},
		"when the turn has no request left": {cut, func(s *scene) { s.ladder.Retry.MaxAttemptsPerTurn = 1 }, []int64{4096, 4096}},
		"when the run has no retry left":    {cut, func(s *scene) { s.contract.Limits.MaxModelRetries = new(1) }, []int64{4096, 4096}},
		"again when the provider refused it": {
			cut + `, {status: 400, error: {type: invalid_request_error, message: "max_tokens is too large"}}, ` + cut, nil,
			[]int64{4096, 8192, 4096, 4096}},
		"again when it did not fit": {
			cut + `, {status: 400, error: {type: invalid_request_error, code: context_length_exceeded}}, ` + cut, nil,
			[]int64{4096, 8192, 4096, 4096}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, `legs: {a: {steps: [`+test.steps+`, {answer: "two"}]}, b: `+answers+`}`, "a", "b")
			if test.change != nil {
				test.change(s)
			}
			s.expectEnd("Completed", "one two")
			s.expectCaps(test.caps...)
		})
	}
}

func TestAnAnswerThatReasoningUsedUpIsNotContinued(t *testing.T) {
	s := newScene(t, `legs: {a: {vendor: Compatible, steps: [{thinking: "so much to think about", text: "", answer: "", finishReason: length, times: Forever}]}}`, "a")
	tight(s)
	end := s.finish()
	if end.Reason != "OutputTruncated" || !strings.Contains(end.Message, `"a"`) {
		t.Errorf("ended as %s: %s", end.Reason, end.Message)
	}
	s.expectRequests("a=1")
}

func TestARestartKeepsWhatWasLearned(t *testing.T) {
	script := `legs: {a: {advance: PerConversation, steps: [{answer: "cut", finishReason: length}, {answer: "whole", times: 2}]}}`
	whole := newScene(t, `legs: {a: {steps: [{answer: "cut", finishReason: length}, {answer: "whole"}]}}`, "a")
	whole.expectEnd("Completed", "whole")
	records := lines(t, whole.dir)
	for n := 1; n < len(records); n++ {
		cut := bytes.Contains(bytes.Join(records[:n], nil), []byte(`"kind":"OutputTruncated"`))
		if !cut {
			continue
		}
		s := crashed(t, strings.Replace(script, `{answer: "cut", finishReason: length}, `, "", 1), records[:n])
		s.expectEnd("Completed", "whole")
		for _, c := range s.caps() {
			if c != 8192 {
				t.Errorf("after record %d of %d: a cap of %d, want the raised one of 8192", n, len(records), c)
			}
		}
	}
}

func TestThinkingThatItsOwnIssuerRefusesIsDroppedAndTheTurnSentAgain(t *testing.T) {
	script := `legs: {a: {dialect: AnthropicMessages, advance: PerConversation, steps: [
	  {thinking: "I must look.", calls: [{name: look, arguments: {count: 1}}]},
	  {thinking: "And again.", calls: [{name: look, arguments: {count: 2}}]},
	  {answer: "done"}]}}`
	first := newScene(t, script, "a")
	first.expectEnd("Completed", "done")
	records := lines(t, first.dir)
	committed := 0
	for n, r := range records {
		if bytes.Contains(r, []byte(`"type":"llm.response"`)) {
			committed = n
			break
		}
	}
	// The provider is replaced by another one at the same address: the signatures of the first turn are foreign to it.
	s := seededScene(t, 2, script, "a")
	s.plant(records[:committed+1])
	s.expectEnd("Completed", "done")
	if r := s.refusals(); len(r) != 1 || !strings.Contains(r[0], "signature") {
		t.Errorf("refused: %v, want one refusal of the signature", r)
	}
	s.expectRequests("a=3")
	if f := find[record.LLMAttempt](s)[0].Failure; f == nil || f.Sub != failure.SubHistoryShape {
		t.Errorf("first receipt: %+v, want history_shape", f)
	}
}

func TestARequestThatIsRefusedTwiceEndsTheRunAndAsksNoOtherLeg(t *testing.T) {
	refuse := `{status: 400, error: {type: invalid_request_error, message: "tool_use ids were found without tool_result blocks"}, times: Forever}`
	s := newScene(t, `legs: {a: {vendor: Compatible, steps: [{thinking: "hm", calls: [{name: look, arguments: {}}]}, `+refuse+`]}, b: `+answers+`}`, "a", "b")
	s.target("a", func(t *provider.Target) { t.Reasoning = provider.ReasoningReplayed })
	if end := s.finish(); end.Reason != "InvalidRequest" || !strings.Contains(end.Message, `"a"`) {
		t.Errorf("ended as %s: %s", end.Reason, end.Message)
	}
	s.expectRequests("a=3 b=0")
}

func TestAnAnswerIsFittedIntoWhatTheInputLeaves(t *testing.T) {
	s := newScene(t, `legs: {a: {dialect: AnthropicMessages, contextWindow: 3000, steps: [{answer: "fits"}]}, b: `+answers+`}`, "a", "b")
	s.expectEnd("Completed", "fits")
	s.expectRequests("a=2 b=0")
	if c := s.caps(); c[0] != 4096 || c[1] < 256 || c[1] >= 3000 {
		t.Errorf("caps %v, want 4096, then what the window of 3000 has left", c)
	}
	if f := find[record.LLMAttempt](s)[0].Failure; f.Sub != failure.SubOutputReservation || f.Limit-f.Requested != s.caps()[1] {
		t.Errorf("the cap of %d is not what %+v leaves", s.caps()[1], f)
	}
}

func TestARequestThatFitsNowhereSaysWhatItIsMadeOf(t *testing.T) {
	s := newScene(t, `legs: {a: `+answers+`, b: `+answers+`}`, "a", "b")
	s.ladder.Legs[0].ContextWindow, s.ladder.Legs[1].ContextWindow = 20_000, 30_000
	s.contract.Task = strings.Repeat("task ", 18_000)
	s.contract.System = strings.Repeat("sys ", 3_000)
	end := s.finish()
	if end.Reason != "ContextIrreducible" {
		t.Fatalf("ended as %s: %s", end.Reason, end.Message)
	}
	for _, part := range []string{`leg "a"`, `leg "b"`, "4000 tokens of system prompt", "30000 of task", "cannot be reduced", "none of which can be left out"} {
		if !strings.Contains(end.Message, part) {
			t.Errorf("%q does not say %q", end.Message, part)
		}
	}
	s.expectRequests("a=0 b=0")
}

func TestAnOverflowGoesToALegWithALargerWindowOnly(t *testing.T) {
	overflow := down("400", `, error: {type: invalid_request_error, code: context_length_exceeded}`)
	s := newScene(t, `legs: {a: `+overflow+`, b: `+answers+`, c: `+answers+`}`, "a", "b", "c")
	s.ladder.Legs[2].ContextWindow = 200_000
	s.expectEnd("Completed", "fine")
	s.expectRequests("a=1 b=0 c=1")
}

func TestALegThatCannotDoWhatTheTurnNeedsIsSkipped(t *testing.T) {
	s := newScene(t, `legs: {a: `+answers+`, b: `+answers+`}`, "a", "b")
	s.ladder.Legs[0].Capabilities = []ladder.Capability{}
	s.expectEnd("Completed", "fine")
	s.expectRequests("a=0 b=1")
	plan := find[record.TurnPlan](s)[0]
	if len(plan.Skipped) != 1 || plan.Skipped[0].Reason != "CapabilityMissing" {
		t.Errorf("plan = %+v", plan)
	}
}

func TestAProbeThatIsCutIsKept(t *testing.T) {
	s := newScene(t, `legs: {a: {steps: [{status: 503, times: 3}, {answer: "one ", finishReason: length}, {answer: "two"}]}}`, "a")
	s.expectEnd("Completed", "one two")
	s.expectCaps(4096, 4096, 4096, 4096, 4096)
	receipts := find[record.LLMAttempt](s)
	if !receipts[3].Probe || receipts[3].Failure != nil || receipts[4].CircuitState != "Closed" {
		t.Errorf("the probe %+v, then %+v; want it answered and the route closed", receipts[3], receipts[4])
	}
}

func TestALegWhoseWindowIsNearlyAllOutputIsNotLeft(t *testing.T) {
	s := newScene(t, `legs: {a: {dialect: AnthropicMessages, contextWindow: 3000, steps: [{answer: "fits"}]}, b: `+answers+`}`, "a", "b")
	// The estimate of the input fits beside 2,650 tokens of output; what the provider counts, escapes included, does not.
	s.contract.Task = strings.Repeat(`"`, 600)
	s.ladder.Legs[0].ContextWindow, s.ladder.Legs[0].MaxOutputTokens = 3000, 2650
	s.target("a", func(t *provider.Target) { t.MaxOutputTokens = 2650 })
	s.expectEnd("Completed", "fits")
	s.expectRequests("a=2 b=0")
}
