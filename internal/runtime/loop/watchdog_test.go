package loop_test

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/loop"
	"belay.dev/belay/internal/runtime/provider"
)

// impatient gives every leg windows of this length.
func (s *scene) impatient(idle, progress time.Duration) {
	for leg := range s.targets {
		s.target(leg, func(t *provider.Target) { t.Timeouts.Idle, t.Timeouts.Progress = idle, progress })
	}
}

func TestAStallAdvancesAtOnceWhenAnotherLegIsAvailable(t *testing.T) {
	for name, step := range map[string]string{
		"silence in the middle of an answer": `{answer: "never the end", cutAfterEvents: 2, cut: Silence}`,
		"comments and nothing else":          `{answer: "never", comments: Forever, delayMilliseconds: 5}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, `legs: {a: {steps: [`+step+`]}, b: `+answers+`}`, "a", "b")
			s.impatient(80*time.Millisecond, 160*time.Millisecond)
			s.expectEnd("Completed", "fine")
			s.expectRequests("a=1 b=1")
			if len(s.clock.waits) > 0 {
				t.Errorf("waits %v before the next leg, want none", s.clock.waits)
			}
			f := find[record.LLMAttempt](s)[0].Failure
			if f == nil || f.Kind != failure.StreamStalled || !strings.Contains(f.Message, "window") || !strings.Contains(f.Message, "last event: ") {
				t.Errorf("receipt of the stalled request: %+v, want a stall with its window and last event", f)
			}
			moves := find[record.RouteFallback](s)
			if len(moves) != 1 || moves[0].From != "a" || moves[0].To != "b" || moves[0].Kind != failure.StreamStalled {
				t.Errorf("fallbacks %+v, want one from a to b for the stall", moves)
			}
		})
	}
}

// TestAStallWidensTheWindowsWhenNoOtherLegIsAvailable has an only leg that pauses for longer than its window between any
// two events: the first try must stall, and the second, whose window is 30 s wider, must not.
func TestAStallWidensTheWindowsWhenNoOtherLegIsAvailable(t *testing.T) {
	slow := `{answer: "slow but whole", delayMilliseconds: 150}`
	s := newScene(t, `legs: {a: {steps: [`+slow+`, `+slow+`]}}`, "a")
	s.impatient(50*time.Millisecond, time.Minute)
	s.expectEnd("Completed", "slow but whole")
	s.expectRequests("a=2")
	requests, receipts := find[record.LLMRequest](s), find[record.LLMAttempt](s)
	if requests[0].Try != 1 || requests[1].Try != 2 || receipts[0].Failure == nil || receipts[0].Failure.Kind != failure.StreamStalled {
		t.Errorf("tries %d and %d after %+v, want 1, a stall, 2", requests[0].Try, requests[1].Try, receipts[0].Failure)
	}
	if requests[0].RequestSHA256 != requests[1].RequestSHA256 {
		t.Error("the second try sent another body")
	}
	scheduled := find[record.RetryScheduled](s)
	if len(scheduled) != 1 || scheduled[0].Leg != "a" || scheduled[0].Kind != failure.StreamStalled || scheduled[0].Reason != "Backoff" {
		t.Errorf("scheduled %+v, want one backoff of leg a after a stall", scheduled)
	}
}

// closing tells when each connection that it dials is closed by this side.
type closing struct {
	net.Conn
	once   sync.Once
	closed chan<- struct{}
	// events counts the events that were read; hungry is set when the reader has used up two of them and wants more.
	events int
	hungry *atomic.Bool
}

func (c *closing) Read(p []byte) (int, error) {
	if c.events >= 2 {
		c.hungry.Store(true)
	}
	n, err := c.Conn.Read(p)
	c.events += bytes.Count(p[:n], []byte("data: "))
	return n, err
}

func (c *closing) Close() error {
	c.once.Do(func() { c.closed <- struct{}{} })
	return c.Conn.Close()
}

func TestAShutdownInTheMiddleOfAnAnswerClosesTheSocketWithinASecond(t *testing.T) {
	s := newScene(t, `legs: {a: {steps: [{answer: "never the end", cutAfterEvents: 2, cut: Silence}, {answer: "whole"}]}}`, "a")
	closed := make(chan struct{}, 8)
	var hungry atomic.Bool
	s.conn = func(c net.Conn) net.Conn { return &closing{Conn: c, closed: closed, hungry: &hungry} }
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	var end loop.End
	go func() {
		var err error
		end, err = s.runContext(ctx)
		ended <- err
	}()
	s.until(hungry.Load)
	asked := time.Now()
	cancel(loop.ErrShutdown)
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Fatal("the socket is still open after 10 s")
	}
	if d := time.Since(asked); d > time.Second {
		t.Errorf("the socket was closed after %s, want within 1 s", d)
	}
	if err := <-ended; err != nil || end.Suspended == nil {
		t.Fatalf("%+v, %v; want suspended", end, err)
	}
	receipts := find[record.LLMAttempt](s)
	if len(receipts) != 1 || receipts[0].Failure.Kind != failure.Cancelled || !receipts[0].Charge.Usage.Estimated || receipts[0].Charge.Usage.InputTokens == 0 {
		t.Errorf("receipt %+v, want a cancelled one that is charged", receipts[0])
	}
	if n := len(find[record.BreakerChanged](s)); n != 0 {
		t.Errorf("%d breaker changes for our own cancellation", n)
	}
	s.conn = nil
	s.expectEnd("Completed", "whole")
}

func TestEveryStepOfAnOutageIsOnRecord(t *testing.T) {
	s := newScene(t, `legs: {a: {steps: [{status: 503, times: 3}, {answer: "back"}]}, b: {steps: [{calls: [{name: look, arguments: {}}]}]}}`, "a", "b")
	s.workspace.answer = s.rest(30 * time.Second)
	s.expectEnd("Completed", "back")
	// Half of 0.5 s and of 1 s before the second and the third try.
	scheduled := find[record.RetryScheduled](s)
	if len(scheduled) != 2 || scheduled[0].DelayMilliseconds != 250 || scheduled[1].DelayMilliseconds != 500 {
		t.Errorf("scheduled %+v, want backoffs of 250 and 500 ms", scheduled)
	}
	moves := find[record.RouteFallback](s)
	if len(moves) != 1 || *moves[0] != (record.RouteFallback{Turn: 1, From: "a", To: "b", Kind: failure.ServerError, Reason: "RouteOpen"}) {
		t.Errorf("fallbacks %+v", moves)
	}
	changes := find[record.BreakerChanged](s)
	if len(changes) != 2 || changes[0].Leg != "a" || changes[0].From != "Closed" || changes[0].To != "Open" || changes[0].Until == nil ||
		changes[1].Leg != "a" || changes[1].From != "HalfOpen" || changes[1].To != "Closed" {
		t.Errorf("breaker changes %+v, want leg a to open, then from half-open to close", changes)
	}
	circuit := ""
	for _, r := range find[record.LLMAttempt](s) {
		circuit += r.Leg + ":" + r.FailoverFrom + ":" + r.CircuitState + " "
	}
	if want := "a::Closed a::Closed a::Closed b:a:Closed a::HalfOpen "; circuit != want {
		t.Errorf("receipts %s, want %s", circuit, want)
	}
}
