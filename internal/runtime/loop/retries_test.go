package loop_test

import (
	"context"
	"strings"
	"testing"

	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/loop"
)

func TestARunWithoutRetriesSendsEachTurnOnce(t *testing.T) {
	s := newScene(t, `legs: {a: {steps: [{calls: [{name: look, arguments: {}}]}, {calls: [{name: look, arguments: {}}]}, {status: 503, times: Forever}]}, b: `+answers+`}`, "a", "b")
	s.contract.Limits.MaxModelRetries = new(0)
	end := s.finish()
	if end.Reason != "RetriesExhausted" || !strings.Contains(end.Message, "maxModelRetries of the run is 0") {
		t.Errorf("ended as %s: %s", end.Reason, end.Message)
	}
	s.expectRequests("a=3 b=0")
}

// TestARequestThatAShutdownCutIsNoRetry stops the run again and again in the middle of an answer. What was cut is paid for,
// and brings a run that may not retry no nearer to its end.
func TestARequestThatAShutdownCutIsNoRetry(t *testing.T) {
	s := newScene(t, `legs: {a: {steps: [
	  {calls: [{name: look, arguments: {}}]}, {answer: "never the end", cutAfterEvents: 2, cut: Silence, times: 3}, {answer: "whole"}]}}`, "a")
	s.contract.Limits.MaxModelRetries = new(0)
	for stop := 1; stop <= 3; stop++ {
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		var end loop.End
		go func() {
			var err error
			end, err = s.runContext(ctx)
			ended <- err
		}()
		s.until(func() bool { n := s.requests("a"); return n == stop+1 && s.providers.Requests()[n-1].Status == 200 })
		cancel(loop.ErrShutdown)
		if err := <-ended; err != nil || end.Suspended == nil {
			t.Fatalf("stop %d: %+v, %v; want suspended", stop, end, err)
		}
	}
	s.expectEnd("Completed", "whole")
	s.expectRequests("a=5")
	end, err := s.run()
	if err != nil || end.State.Retries != 0 {
		t.Errorf("%d retries (%v), want none", end.State.Retries, err)
	}
	if leg := end.State.Account.Legs[0]; leg.Requests != 5 || leg.Failed != 3 || !leg.Charge.Usage.Estimated {
		t.Errorf("books %+v, want five requests of which three failed, paid for as estimates", leg)
	}
	if n := len(find[record.BreakerChanged](s)); n != 0 {
		t.Errorf("%d breaker changes for our own stops", n)
	}
}
