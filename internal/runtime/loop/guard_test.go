package loop_test

import (
	"slices"
	"strings"
	"testing"

	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/tools"
)

const wrongForever = `legs: {a: {advance: PerConversation, steps: [{calls: [{name: act, arguments: {colour: red}}], times: 9}, {answer: "all is well"}]}}`

func TestAModelThatNeverMendsItsCallsIsToldThenStopped(t *testing.T) {
	s := newScene(t, wrongForever, "a")
	end := s.finish()
	if end.Reason != "ToolRepairExhausted" {
		t.Fatalf("ended as %s: %s", end.Reason, end.Message)
	}
	s.expectRequests("a=3")
	if len(s.workspace.dispatched) != 0 {
		t.Errorf("calls with wrong arguments were dispatched: %v", s.workspace.dispatched)
	}
	controls := find[record.Control](s)
	if len(controls) != 1 || controls[0].Kind != record.ControlRepair || controls[0].Turn != 2 {
		t.Fatalf("controls = %+v, want one repair directive after the second turn", controls)
	}
	if !strings.Contains(controls[0].Text, "act") || !strings.Contains(controls[0].Text, `"count"`) {
		t.Errorf("the directive does not restate the schema of act: %s", controls[0].Text)
	}
	if strings.Contains(end.Text, "all is well") || !strings.Contains(end.Text, "written by the runtime") {
		t.Errorf("the final text does not say who wrote it: %q", end.Text)
	}
	if strings.Contains(end.Message, "red") {
		t.Errorf("the message quotes the model: %s", end.Message)
	}
}

func TestTheRepairBudgetOutlivesAKillAtAnyRecord(t *testing.T) {
	whole := newScene(t, wrongForever, "a")
	whole.finish()
	records := lines(t, whole.dir)
	for n := 1; n < len(records); n++ {
		s := crashed(t, wrongForever, records[:n])
		before := read(t, s.dir)
		if end := s.finish(); end.Reason != "ToolRepairExhausted" {
			t.Errorf("after record %d: ended as %s: %s", n, end.Reason, end.Message)
		}
		if got, want := s.requests("a"), 3-before.committed; got != want {
			t.Errorf("after record %d: %d requests, want %d", n, got, want)
		}
		told := 0
		for _, l := range lines(t, s.dir) {
			if strings.Contains(string(l), `"type":"control"`) {
				told++
			}
		}
		if told != 1 {
			t.Errorf("after record %d: the directive was given %d times, want once", n, told)
		}
	}
}

func TestAFailingCommandIsNoCallToMend(t *testing.T) {
	s := newScene(t, `legs: {a: {advance: PerConversation, steps: [
	  {calls: [{name: act, arguments: {count: 1}}]}, {calls: [{name: act, arguments: {count: 2}}]},
	  {calls: [{name: act, arguments: {count: 3}}]}, {calls: [{name: act, arguments: {count: 4}}]}, {answer: "fixed"}]}}`, "a")
	runs := 0
	s.workspace.answer = func(tools.Call) tools.Outcome {
		runs++
		if runs == 4 {
			return tools.Outcome{Status: tools.OK, Text: "ok"}
		}
		code := 1
		return tools.Outcome{Status: tools.Error, ErrorKind: tools.KindExecutionFailed, ExitCode: &code, Text: "FAIL"}
	}
	if end := s.finish(); end.Reason != "Completed" || end.Text != "fixed" {
		t.Errorf("ended as %s (%s) with %q: three failing test runs must not end a run", end.Reason, end.Message, end.Text)
	}
}

func TestARunThatGoesInCirclesIsStopped(t *testing.T) {
	s := newScene(t, `legs: {a: {steps: [{calls: [{name: look, arguments: {count: 1}}], times: Forever}]}}`, "a")
	end := s.finish()
	if end.Reason != "LoopDetected" {
		t.Fatalf("ended as %s: %s", end.Reason, end.Message)
	}
	// Three are dispatched, the fourth and fifth are refused, and the fifth ends the run.
	s.expectRequests("a=5")
	if n := len(s.workspace.dispatched); n != 3 {
		t.Errorf("%d calls were dispatched, want 3", n)
	}
	refused := slices.DeleteFunc(find[record.ToolResult](s), func(r *record.ToolResult) bool { return r.Refusal == "" })
	if len(refused) != 2 || refused[0].Result.ErrorKind != string(tools.KindDenied) {
		t.Errorf("refusals = %+v, want two", refused)
	}
}

func TestATextAfterFailedCallsIsNoEvidence(t *testing.T) {
	s := newScene(t, `legs: {a: {steps: [{calls: [{name: act, arguments: {count: 1}}]}, {answer: "all is done and well"}]}}`, "a")
	s.workspace.answer = func(tools.Call) tools.Outcome {
		return tools.Failure(tools.KindExecutionFailed, "disk is on fire")
	}
	if end := s.finish(); end.Reason != "OutcomeUnknown" || !strings.Contains(end.Message, "turn 1") {
		t.Errorf("ended as %s: %s; want OutcomeUnknown that names the turn", end.Reason, end.Message)
	}
}
