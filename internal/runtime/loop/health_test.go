package loop_test

import (
	"errors"
	"testing"
	"time"

	"belay.dev/belay/internal/runtime/breaker"
	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/ladder"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/loop"
	"belay.dev/belay/internal/runtime/provider"
	"belay.dev/belay/internal/runtime/route"
)

// cluster shows one view of the shared health after another: the next with each wait for a change.
type cluster struct {
	views []map[route.Name]breaker.Shared
}

func (c *cluster) Shared() map[route.Name]breaker.Shared { return c.views[0] }

func (c *cluster) Changed() <-chan struct{} {
	changed := make(chan struct{})
	if len(c.views) > 1 {
		c.views = c.views[1:]
		close(changed)
	}
	return changed
}

func (s *scene) shared(leg string, generation int64, position breaker.Position, until time.Duration) map[route.Name]breaker.Shared {
	v := breaker.Shared{UID: "u", Generation: generation, Position: position, LastKind: failure.ServerError}
	if until > 0 {
		v.OpenUntil, v.Trips = s.clock.Now().Add(until), 1
	}
	return map[route.Name]breaker.Shared{s.targets[leg].Route.Name(): v}
}

func TestARouteThatTheClusterHoldsOpenIsNotAskedUntilItReopens(t *testing.T) {
	s := newScene(t, `legs: {a: `+answers+`}`, "a")
	s.clock.still = true // the wait ends because the cluster says so, or never
	open := s.shared("a", 1, breaker.Open, time.Minute)
	s.health = &cluster{views: []map[route.Name]breaker.Shared{open, open, s.shared("a", 2, breaker.Closed, 0)}}
	s.expectEnd("Completed", "fine")
	s.expectRequests("a=1")
	// A change that leaves the route open begins no new wait.
	if waits := find[record.RetryScheduled](s); len(waits) != 1 || waits[0].Reason != string(ladder.WaitRoutes) {
		t.Errorf("scheduled %+v, want one wait for the route", waits)
	}
}

func TestARouteThatTheClusterHoldsOpenForLongIsParkedFor(t *testing.T) {
	s := newScene(t, `legs: {a: `+answers+`}`, "a")
	s.health = &cluster{views: []map[route.Name]breaker.Shared{s.shared("a", 1, breaker.Open, 10*time.Minute)}}
	end, err := s.run()
	if err != nil || end.Parked == nil || len(end.Parked.Routes) != 1 || end.Parked.Routes[0] != s.targets["a"].Route.Name() {
		t.Fatalf("%+v, %v; want parked for the route of a", end, err)
	}
	if left := end.Parked.Until.Sub(s.clock.Now()); left != 10*time.Minute {
		t.Errorf("parked for %s, want 10 min", left)
	}
	s.expectRequests("a=0")
}

func TestALegThatTheClusterHoldsOpenIsPassedOver(t *testing.T) {
	s := newScene(t, `legs: {a: `+answers+`, b: {steps: [{answer: "from b"}]}}`, "a", "b")
	s.health = &cluster{views: []map[route.Name]breaker.Shared{s.shared("a", 1, breaker.Open, time.Minute)}}
	s.expectEnd("Completed", "from b")
	s.expectRequests("a=0 b=1")
	receipt := find[record.LLMAttempt](s)[0]
	if receipt.FailoverFrom != "a" {
		t.Errorf("the receipt of b says that it stands in for %q, want a", receipt.FailoverFrom)
	}
}

func TestATurnWithoutToolsWaitsForTheDiskAtMostTwice(t *testing.T) {
	const turns = 3
	s := newScene(t, `legs: {a: {steps: [{answer: "on", finishReason: length, times: 2}, {answer: "end"}]}}`, "a")
	tight(s)
	syncs, per := 0, map[int]int{}
	s.disk = func(l loop.Ledger) loop.Ledger { return unsynced{l, &syncs} }
	s.watch = func(payload any) {
		if p, ok := payload.(*record.TurnPlan); ok {
			per[p.Turn] = syncs
		}
	}
	if end := s.finish(); end.Reason != "Completed" || end.Turn != turns {
		t.Fatalf("ended as %s in turn %d: %s", end.Reason, end.Turn, end.Message)
	}
	for turn := 1; turn < turns; turn++ {
		if n := per[turn+1] - per[turn]; n < 1 || n > 2 {
			t.Errorf("turn %d waited %d times for the disk, want 1 or 2", turn, n)
		}
	}
}

// TestAnAmendedTurnThatMovedOnIsResumed kills the runner after a leg's request was amended and its route opened before it
// could be sent: the turn had moved on to the next leg, and must not end for what the first one said.
func TestAnAmendedTurnThatMovedOnIsResumed(t *testing.T) {
	for name, first := range map[string]string{
		"a raised cap":       `{answer: "cut", finishReason: length}`,
		"a repaired history": `{status: 400, error: {type: invalid_request_error, message: "tool_calls must be followed by tool messages"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, `legs: {
			  a: {vendor: Compatible, steps: [{thinking: "hm", calls: [{name: look, arguments: {}}]}, `+first+`]},
			  b: {vendor: Compatible, steps: [{status: 503}, {answer: "from b"}]}}`, "a", "b")
			s.target("a", func(t *provider.Target) { t.Reasoning = provider.ReasoningReplayed })
			health := &cluster{views: []map[route.Name]breaker.Shared{s.shared("a", 1, breaker.Closed, 0)}}
			s.health = health
			killed := &mortal{left: 1 << 30, late: true}
			s.disk = func(l loop.Ledger) loop.Ledger { killed.Ledger = l; return killed }
			s.watch = func(payload any) {
				if d, ok := payload.(*record.Diagnostic); ok && d.Reason == "RequestAmended" {
					health.views[0] = s.shared("a", 2, breaker.Open, time.Hour)
				}
				if r, ok := payload.(*record.LLMAttempt); ok && r.Leg == "b" {
					killed.left = 1
				}
			}
			if _, err := s.run(); !errors.Is(err, errKilled) {
				t.Fatalf("err = %v, want a kill after the first receipt of b", err)
			}
			s.expectRequests("a=2 b=1")
			s.disk = nil
			s.expectEnd("Completed", "from b")
			s.expectRequests("a=2 b=2")
		})
	}
}
