package guard

import (
	"fmt"
	"testing"

	"belay.dev/belay/internal/runtime/message"
)

func TestTheFirstRuleThatCallsForAStopDecides(t *testing.T) {
	bad := func(n int) move { return fails("write", fmt.Sprint(n), InvalidArguments) }
	good := func(n int) move { return ok("read", fmt.Sprint(n), fmt.Sprint("text ", n)) }
	t.Run("the class of a tool may end a run whose budget is full", func(t *testing.T) {
		r := newRun(nil)
		for n := 1; n <= 7; n++ {
			r.turn(good(n), bad(n))
		}
		if got := r.turn(bad(8)); got != "LoopDetected" {
			t.Error(got)
		}
	})
	t.Run("the budget comes before the class when both are spent", func(t *testing.T) {
		r := newRun(nil)
		for n := 1; n <= 5; n++ {
			r.turn(good(n), bad(n))
		}
		r.turn(bad(6))
		r.turn(bad(7))
		if got := r.turn(bad(8)); got != "ToolRepairExhausted" {
			t.Error(got)
		}
	})
	t.Run("a stopped run is told nothing more", func(t *testing.T) {
		// Eight failures of write end the run in the turn that brings the third of shell.
		r := newRun(nil)
		for n := 1; n <= 8; n++ {
			moves := []move{good(n), bad(n)}
			if n >= 6 {
				moves = append(moves, fails("shell", fmt.Sprint(n), Timeout))
			}
			r.turn(moves...)
		}
		if r.stop == nil || r.noted != nil {
			t.Errorf("got the stop %v and the notes %v", r.stop, r.noted)
		}
	})
}

// A run that was not stopped, by a version without the rule, is judged by what it does next.
func TestAStopIsDueUntilTheNextAnswer(t *testing.T) {
	loops := func() *run {
		r := newRun(nil)
		for range IdenticalStop {
			r.turn(ok("read", "a", "text"))
		}
		if r.stop == nil || r.state.Decide(nil).Stop == nil {
			t.Fatal("the run was not stopped, or not when it was asked again")
		}
		return r
	}
	r := loops()
	r.state.Apply(Answer{Turn: 6})
	if d := r.state.Decide(nil); d.Stop != nil {
		t.Errorf("stopped after an answer without calls: %v", d.Stop)
	}
	r = loops()
	r.state.Apply(Answer{Turn: 6, Calls: []Call{{ID: "x", Tool: "read", Arguments: "a"}}})
	if d := r.state.Decide(nil); d.Stop != nil {
		t.Errorf("stopped while a call has no result: %v", d.Stop)
	}
	r = newRun(nil)
	for n := range ClassStop {
		r.turn(ok("read", fmt.Sprint(n), fmt.Sprint(n)), fails("write", fmt.Sprint(n), InvalidArguments))
	}
	if got := r.turn(ok("read", "a", "text")); got != "-" {
		t.Errorf("after a turn without a failure of the class: %s", got)
	}
}

func TestACallHasOneResult(t *testing.T) {
	s := New(nil)
	for n := 1; n <= 2; n++ {
		s.Apply(Answer{Turn: n, Calls: []Call{{ID: "a", Tool: "read", Arguments: fmt.Sprint(n)}, {ID: "b", Tool: "write", Arguments: fmt.Sprint(n)}}})
		for _, id := range []string{"a", "a", "nosuch"} {
			s.Apply(Result{Result: message.Result{CallID: id, Status: message.ResultError, ErrorKind: "ExecutionFailed"}})
		}
		if d := s.Decide(nil); d.Notes != nil {
			t.Errorf("turn %d was judged before its last result: %v", n, d)
		}
		s.Apply(Result{Result: message.Result{CallID: "b", Status: message.ResultError, ErrorKind: "ExecutionFailed"}})
	}
	if d := s.Decide(nil); len(d.Notes) != 1 {
		t.Errorf("got %v, want the directive", d)
	}
}
