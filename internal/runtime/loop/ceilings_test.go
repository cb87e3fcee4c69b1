package loop_test

import (
	"strings"
	"testing"
	"time"

	"belay.dev/belay/internal/runtime/ladder"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/loop"
)

func TestATurnHasItsAttemptsOnceForAllLegsWalksAndRestarts(t *testing.T) {
	s := newScene(t, `legs: {a: `+down("503", "")+`, b: `+down("503", "")+`}`, "a", "b")
	s.ladder.Breaker.BaseCooldown = 0 // nothing but the ceiling ends it
	s.ladder.Retry.MaxRetries = 2
	s.ladder.Retry.MaxAttemptsPerTurn = 10
	whole := s.finish()
	if whole.Reason != "RetriesExhausted" || !strings.Contains(whole.Message, "all 10 requests of the ladder's retry.maxAttemptsPerTurn") {
		t.Fatalf("ended as %s: %s", whole.Reason, whole.Message)
	}
	s.expectRequests("a=6 b=4") // a, a, a, b, b, b, and a rewalk of a, a, a, b
	records := lines(t, s.dir)
	for n := 2; n < len(records); n++ {
		again := newScene(t, `legs: {a: `+down("503", "")+`, b: `+down("503", "")+`}`, "a", "b")
		again.ladder.Breaker.BaseCooldown, again.ladder.Retry = 0, s.ladder.Retry
		again.plant(records[:n])
		before := 0
		for _, r := range records[:n] {
			if strings.Contains(string(r), `"type":"llm.request"`) {
				before++
			}
		}
		if end := again.finish(); end.Reason != "RetriesExhausted" {
			t.Errorf("after record %d: ended as %s", n, end.Reason)
		}
		if got := again.requests("a") + again.requests("b"); got != 10-before {
			t.Errorf("resumed after %d requests: %d more, want %d", before, got, 10-before)
		}
	}
}

func TestTheRunsCeilingOnRetriesOutlivesRestarts(t *testing.T) {
	// Each turn costs two retries.
	turn := `{status: 500, times: 2}, {calls: [{name: look, arguments: {}}]}`
	script := `legs: {a: {steps: [` + strings.Repeat(turn+`, `, 9) + turn + `]}}`
	s := newScene(t, script, "a")
	s.contract.Limits.MaxModelRetries = new(5)
	epochs, end := 0, record.RunEnd{}
	for {
		s.disk = killAfter(9)
		got, err := s.run()
		epochs++
		if err == nil && got.Finished != nil {
			end = *got.Finished
			break
		}
		if epochs > 100 {
			t.Fatal("the run gets nowhere")
		}
	}
	if end.Reason != "RetriesExhausted" || !strings.Contains(end.Message, "all 5 retries of limits.maxModelRetries") {
		t.Errorf("ended as %s: %s", end.Reason, end.Message)
	}
	last, err := s.run()
	if err != nil {
		t.Fatal(err)
	}
	if epochs < 3 || last.State.Retries != 5 {
		t.Errorf("%d retries over %d epochs, want 5 over several", last.State.Retries, epochs)
	}
	// Three turns begin, and of each the first request is no retry.
	if n := s.requests("a"); n > 3+5 {
		t.Errorf("%d requests, want at most 8", n)
	}
}

func TestTwelveParksWithoutAnAnswerEndTheRun(t *testing.T) {
	s := newScene(t, `legs: {a: `+down("503", "")+`}`, "a")
	s.ladder.Waits.ParkAfter = time.Second
	s.contract.Limits.MaxModelRetries = nil
	s.ladder.Retry.MaxAttemptsPerTurn = 100
	for park := 1; park <= 12; park++ {
		end, err := s.run()
		if err != nil || end.Parked == nil {
			t.Fatalf("park %d: %+v, %v", park, end.Finished, err)
		}
		s.clock.SetTime(end.Parked.Until)
	}
	before := s.requests("a")
	end := s.finish()
	if end.Reason != "AllRoutesTripped" || !strings.Contains(end.Message, "parked 12 times") {
		t.Errorf("ended as %s: %s", end.Reason, end.Message)
	}
	if n := s.requests("a") - before; n > 1 {
		t.Errorf("%d requests in the last epoch, want at most its probe", n)
	}
}

func TestAnAnswerStartsTheCountOfParksAnew(t *testing.T) {
	s := newScene(t, `legs: {a: {steps: [{status: 503, times: 8}, {calls: [{name: look, arguments: {}}]}, {status: 503, times: Forever}]}}`, "a")
	s.ladder.Waits.ParkAfter = time.Second
	s.ladder.Retry.MaxAttemptsPerTurn, s.contract.Limits.MaxModelRetries = 100, nil
	parks := 0
	for {
		end, err := s.run()
		if err != nil {
			t.Fatal(err)
		}
		if end.Finished != nil {
			if end.Finished.Reason != "AllRoutesTripped" {
				t.Errorf("ended as %s: %s", end.Finished.Reason, end.Finished.Message)
			}
			break
		}
		if parks++; parks > 50 {
			t.Fatal("the run parks forever")
		}
		s.clock.SetTime(end.Parked.Until)
	}
	// Three requests and five probes fail before the answer: six parks; then twelve more.
	if parks != 18 {
		t.Errorf("%d parks, want 6 before the answer and 12 after", parks)
	}
}

func TestADrainedLegGetsNoNewTurn(t *testing.T) {
	s := newScene(t, `legs: {a: {steps: [{calls: [{name: look, arguments: {}}]}, {answer: "from a"}]}, b: {steps: [{answer: "from b"}]}}`, "a", "b")
	s.current = drainAfter(2)
	s.expectEnd("Completed", "from b")
	s.expectRequests("a=1 b=1")
	plan := find[record.TurnPlan](s)[1]
	if len(plan.Skipped) != 1 || plan.Skipped[0] != (record.Skipped{Leg: "a", Reason: string(ladder.DrainedLeg)}) {
		t.Errorf("the plan of the second turn skips %+v, want a as drained", plan.Skipped)
	}
}

func TestContentThatAFilterWithheldFollowsThePolicy(t *testing.T) {
	filtered := `{steps: [{answer: "with", finishReason: content_filter, times: Forever}]}`
	for policy, want := range map[ladder.OnContentFiltered]struct{ reason, requests string }{
		ladder.FailOnContentFiltered:    {"ContentFiltered", "a=1 b=0"},
		ladder.AdvanceOnContentFiltered: {"Completed", "a=1 b=1"},
	} {
		s := newScene(t, `legs: {a: `+filtered+`, b: `+answers+`}`, "a", "b")
		s.ladder.Policy.OnContentFiltered = policy
		if end := s.finish(); end.Reason != want.reason {
			t.Errorf("%s: ended as %s: %s", policy, end.Reason, end.Message)
		}
		s.expectRequests(want.requests)
	}
}

func TestEnduranceIsSpentAfterItsRewalks(t *testing.T) {
	s := newScene(t, `legs: {a: `+down("500", "")+`, b: `+down("404", body(`{"error":{"code":"model_not_found"}}`))+`}`, "a", "b")
	s.ladder.Breaker.BaseCooldown = 0
	s.ladder.Retry.MaxRetries, s.ladder.Endurance.MaxRewalks = 0, 2
	end := s.finish()
	if end.Reason != "RetriesExhausted" || !strings.Contains(end.Message, "endurance.maxRewalks 2") {
		t.Errorf("ended as %s: %s", end.Reason, end.Message)
	}
	s.expectRequests("a=3 b=1") // b failed for good in the first walk
	// Half of 2 s and of 4 s before the second and the third walk.
	if len(s.clock.waits) != 2 || s.clock.waits[0] != time.Second || s.clock.waits[1] != 2*time.Second {
		t.Errorf("waits %v, want 1 s and 2 s", s.clock.waits)
	}
}

// killAfter is a disk on which every epoch dies at its n-th record.
func killAfter(n int) func(loop.Ledger) loop.Ledger {
	return func(l loop.Ledger) loop.Ledger { return &mortal{Ledger: l, left: n, late: true} }
}

// drainAfter takes leg a out of use after the n-th look at the ladder.
func drainAfter(n int) func(int, *loop.Ladder) {
	return func(look int, l *loop.Ladder) {
		if look > n {
			l.Legs[0].State = ladder.Drained
		}
	}
}
