package guard

import (
	"fmt"
	"testing"
	"time"

	"belay.dev/belay/internal/runtime/message"
)

func TestTheRepairBudget(t *testing.T) {
	bad := func(n int) move { return fails("write", fmt.Sprint(n), InvalidArguments) }
	good := func(n int) move { return ok("read", fmt.Sprint(n), fmt.Sprint("text ", n)) }
	stop := "ToolRepairExhausted"
	tests := map[string][]played{
		"one failing turn costs nothing but the hint on its result": {then("-", bad(1))},
		"the second in a row brings a directive, the third ends the run": {
			then("-", bad(1)), then("Repair", bad(2)), then(stop, bad(3))},
		"every class of failure charges the same budget": {
			then("-", fails("nosuch", "1", UnknownTool)), then("Repair", fails("read", "1", NotFound)), then(stop, fails("shell", "1", Timeout))},
		"a turn with one success among failures refills it": {
			then("-", bad(1)), then("Repair", bad(2)), then("LoopWarning", bad(3), good(1)), then("-", bad(4)), then("Repair", bad(5)), then(stop, bad(6))},
		"several failures in one turn are one failing turn": {
			then("-", bad(1), bad(2), bad(3), bad(4)), then("Repair", bad(5), bad(6)), then(stop, bad(7), bad(8))},
		"failing commands are tools that work": {
			then("-", exits("go test", "1 fails")), then("-", exits("go test", "2 fail")), then("-", exits("go test", "3 fail")),
			then("-", exits("go test", "4 fail")), then("-", exits("go test", "5 fail"))},
		"a failing command refills the budget": {
			then("-", bad(1)), then("Repair", bad(2)), then("-", exits("go test", "1 fails")), then("LoopWarning", bad(3)), then("Repair", bad(4))},
		"a command that is stopped at its time limit is a failed call": {
			then("-", fails("shell", "1", Timeout)), then("Repair", fails("shell", "2", Timeout)), then(stop, fails("shell", "3", Timeout))},
		"what lies with others neither charges nor refills": {
			then("-", bad(1)), then("-", other("shell", "1", message.ResultInDoubt, "InDoubt")),
			then("-", other("shell", "2", message.ResultNotRun, "Denied")), then("Repair", bad(2)),
			then("-", other("shell", "3", message.ResultError, "ProcessCrashed")), then("-", other("shell", "4", message.ResultNotRun, "Cancelled")),
			then(stop, bad(3))},
		"a crash beside a failure does not excuse the failure": {
			then("-", bad(1)), then("Repair", bad(2), other("shell", "1", message.ResultError, "ProcessCrashed"))},
		"a turn without calls is no turn": {
			then("-", bad(1)), then("-"), then("Repair", bad(2)), then("-"), then(stop, bad(3))},
		"a repeated failure is refused and charged like the failure": {
			then("-", bad(1)), then("repeat Repair", bad(1)), then("repeat ToolRepairExhausted", bad(1))},
	}
	for name, turns := range tests {
		t.Run(name, func(t *testing.T) { newRun(nil).story(t, turns) })
	}
}

func TestARepeatedFailureIsRefusedOnlyWhileNothingHappened(t *testing.T) {
	missing := fails("read", "a", NotFound)
	tests := map[string][]played{
		"at the second time": {then("-", missing), then("repeat Repair", missing)},
		"not with other arguments": {
			then("-", missing), then("Repair", fails("read", "b", NotFound))},
		"not by another tool": {
			then("-", fails("nosuch", "a", UnknownTool)), then("Repair", missing)},
		"in one turn as well": {then("repeat", missing, missing)},
		"not after a success": {then("-", missing), then("-", ok("write", "a", "created")), then("-", ok("read", "a", "text"))},
		"not after a success later in the same turn": {
			then("-", missing, ok("write", "a", "created")), then("-", ok("read", "a", "text"))},
		"although a success came before it in its turn": {
			then("-", ok("write", "b", "created"), missing), then("repeat", missing)},
		"not after a command that failed, since it may have changed something": {
			then("-", missing), then("-", exits("make a", "no")), then("-", ok("read", "a", "text"))},
		"not after a call that timed out": {
			then("-", missing), then("Repair", fails("shell", "make", Timeout)), then("-", ok("read", "a", "text"))},
		"not after a call in doubt": {
			then("-", missing), then("-", other("write", "a", message.ResultInDoubt, "InDoubt")), then("-", ok("read", "a", "text"))},
		"although another call was refused for its arguments": {
			then("-", missing), then("Repair", fails("write", "x", InvalidArguments)), then("repeat ToolRepairExhausted", missing)},
		"although another call was denied": {
			then("-", missing), then("-", other("shell", "x", message.ResultNotRun, "Denied")), then("repeat Repair", missing)},
		"both of two": {
			then("-", missing, fails("write", "x", InvalidArguments)),
			then("repeat repeat Repair", missing, fails("write", "x", InvalidArguments))},
		"not a call that failed for other reasons": {
			then("-", other("shell", "x", message.ResultError, "ProcessCrashed")), then("-", ok("shell", "x", "done"))},
		"not a command that failed by itself": {
			then("-", exits("flaky", "no")), then("-", ok("shell", "flaky", "yes"))},
		"a call that timed out": {
			then("-", fails("shell", "sleep", Timeout)), then("repeat Repair", fails("shell", "sleep", Timeout))},
	}
	for name, turns := range tests {
		t.Run(name, func(t *testing.T) { newRun(nil).story(t, turns) })
	}
}

func TestIdenticalTurns(t *testing.T) {
	look := ok("read", "a", "text")
	tests := map[string][]played{
		"three are dispatched, the fourth is refused, the fifth ends the run": {
			then("-", look), then("-", look), then("-", look), then("loop", look), then("loop LoopDetected", look)},
		"a changed result starts the count anew": {
			then("-", look), then("-", look), then("-", ok("read", "a", "new")), then("-", look), then("-", look), then("-", look), then("loop", look)},
		"something else starts the count anew": {
			then("-", look), then("-", look), then("-", look), then("-", ok("read", "b", "b")), then("-", look), then("-", look), then("-", look), then("loop", look)},
		"a refused turn may be followed by another": {
			then("-", look), then("-", look), then("-", look), then("loop", look), then("-", ok("read", "b", "b")), then("-", look)},
		"failing commands with unchanged output count": {
			then("-", exits("go test", "no")), then("-", exits("go test", "no")), then("-", exits("go test", "no")),
			then("loop", exits("go test", "no")), then("loop LoopDetected", exits("go test", "no"))},
		"repetitions within one answer count once": {
			then("-", look, look, look, look, look, look), then("-", look), then("-", look, look), then("loop", look)},
		"the order of the calls does not matter": {
			then("-", look, ok("read", "b", "b")), then("-", ok("read", "b", "b"), look), then("-", look, ok("read", "b", "b")),
			then("loop loop", ok("read", "b", "b"), look)},
		"a turn is compared as a whole": {
			then("-", look, ok("read", "1", "1")), then("-", look, ok("read", "2", "2")), then("-", look, ok("read", "3", "3")),
			then("-", look, ok("read", "4", "4")), then("-", look, ok("read", "5", "5"))},
		"more calls than before are not refused": {
			then("-", look), then("-", look), then("-", look), then("-", look, ok("read", "b", "b"))},
		"a turn without calls in between changes nothing": {
			then("-", look), then("-", look), then("-"), then("-", look), then("loop", look)},
		"withdrawn calls compare to nothing": {
			then("-", other("read", "a", message.ResultNotRun, "Cancelled")), then("-", other("read", "a", message.ResultNotRun, "Cancelled")),
			then("-", other("read", "a", message.ResultNotRun, "Cancelled")), then("-", look), then("-", look), then("-", look), then("loop", look)},
		"crashes that are all alike count": {
			then("-", other("x", "", message.ResultError, "ProcessCrashed")), then("-", other("x", "", message.ResultError, "ProcessCrashed")),
			then("-", other("x", "", message.ResultError, "ProcessCrashed")), then("loop", other("x", "", message.ResultError, "ProcessCrashed"))},
		"with failures beside a success": {
			then("-", look, fails("read", "b", NotFound)), then("-", look, fails("read", "b", NotFound)), then("-", look, fails("read", "b", NotFound)),
			then("loop loop", look, fails("read", "b", NotFound)), then("loop loop LoopDetected", look, fails("read", "b", NotFound))},
	}
	for name, turns := range tests {
		t.Run(name, func(t *testing.T) { newRun(nil).story(t, turns) })
	}
}

// A ledger may have been written by a version that refused earlier.
func TestARefusedTurnIsLikeTheOneBeforeItOnly(t *testing.T) {
	look := Call{ID: "x", Tool: "read", Arguments: "a"}
	refused := Result{Refusal: RefusedLoop, Result: message.Result{CallID: "x", Status: message.ResultNotRun, ErrorKind: "Denied"}}
	s := New(nil)
	for n := 1; n <= IdenticalStop; n++ {
		s.Apply(Answer{Turn: n, Calls: []Call{look}})
		s.Apply(refused)
	}
	if d := s.Decide(nil); d.Stop != nil {
		t.Errorf("refused turns after nothing were taken for a loop: %v", d.Stop)
	}
	s.Apply(Answer{Turn: 6, Calls: []Call{look}})
	s.Apply(Result{Result: message.Result{CallID: "x", Status: message.ResultOK, Text: "text"}})
	for n := 7; n <= 10; n++ {
		s.Apply(Answer{Turn: n, Calls: []Call{look}})
		s.Apply(refused)
		if stopped := s.Decide(nil).Stop != nil; stopped != (n == 10) {
			t.Errorf("turn %d: stopped %v", n, stopped)
		}
	}
}

func TestImagesAreAPartOfAResult(t *testing.T) {
	image := func(name string) move {
		m := ok("read", "a", "")
		m.result.Media = []message.Media{{MIMEType: "image/png", Blob: message.Blob{SHA256: name}}}
		return m
	}
	newRun(nil).story(t, []played{
		then("-", image("1")), then("-", image("2")), then("-", image("3")), then("-", image("3")), then("-", image("3")), then("loop", image("3"))})
}

func TestCycles(t *testing.T) {
	at := func(name string) move { return ok("read", name, "text of "+name) }
	// cycle plays the names over and over, and returns the number of the turn in which the run is stopped.
	cycle := func(turns int, names ...string) int {
		r := newRun(nil)
		for n := range turns {
			r.turn(at(names[n%len(names)]))
			if r.stop != nil {
				return n + 1
			}
		}
		return 0
	}
	for _, test := range []struct {
		names []string
		want  int
	}{
		{[]string{"a", "b"}, 6},
		{[]string{"a", "b", "c"}, 9},
		{[]string{"a", "a", "b"}, 9},
		{[]string{"a", "b", "c", "d"}, 12},
		{[]string{"a", "b", "b", "c"}, 12},
		{[]string{"a", "b", "a", "c"}, 12},
		{[]string{"a", "b", "c", "d", "e"}, 0},
	} {
		if got := cycle(40, test.names...); got != test.want {
			t.Errorf("the cycle %v was stopped in turn %d, want %d", test.names, got, test.want)
		}
	}

	t.Run("is found after other turns", func(t *testing.T) {
		newRun(nil).story(t, []played{
			then("-", at("x")), then("-", at("y")), then("-", at("z")),
			then("-", at("a")), then("-", at("b")), then("-", at("a")), then("-", at("b")), then("-", at("a")), then("LoopDetected", at("b"))})
	})
	t.Run("is none while a result in it changes", func(t *testing.T) {
		r := newRun(nil)
		for n := range 30 {
			if got := r.turn(at("a")); got != "-" {
				t.Fatal(got)
			}
			if got := r.turn(ok("shell", "test", fmt.Sprint(n))); got != "-" {
				t.Fatal(got)
			}
		}
	})
	t.Run("names its turns and tools", func(t *testing.T) {
		r := newRun(nil)
		for range 3 {
			r.turn(at("a"))
			r.turn(exits("test", "no"))
		}
		contains(t, r.stop.Message, "The same 2 turns of calls (read, shell) came 3 times in a row", "(turns 1 to 6)")
	})
}

func TestFailuresOfOneClass(t *testing.T) {
	good := func(n int) move { return ok("read", fmt.Sprint(n), fmt.Sprint("text ", n)) }
	bad := func(n int) move { return fails("write", fmt.Sprint(n), InvalidArguments) }

	t.Run("three are warned of, eight end the run, although other tools work", func(t *testing.T) {
		var turns []played
		for n := 1; n <= 8; n++ {
			want := map[int]string{3: "LoopWarning", 8: "LoopDetected"}[n]
			if want == "" {
				want = "-"
			}
			turns = append(turns, then("-", good(2*n)), then(want, bad(n), good(2*n+1)))
		}
		newRun(nil).story(t, turns)
	})
	t.Run("a turn counts once", func(t *testing.T) {
		newRun(nil).story(t, []played{
			then("-", good(1), bad(1), bad(2), bad(3), bad(4)), then("-", good(2), bad(5), bad(6)), then("LoopWarning", good(3), bad(7))})
	})
	t.Run("a success of the tool starts the count anew", func(t *testing.T) {
		newRun(nil).story(t, []played{
			then("-", bad(1)), then("Repair", bad(2)), then("-", ok("write", "3", "created")), then("-", bad(4)), then("Repair", bad(5)),
			then("-", good(1)), then("LoopWarning", bad(6))})
	})
	t.Run("a success of the tool in the same turn does, too", func(t *testing.T) {
		r := newRun(nil)
		for n := range 20 {
			if got := r.turn(fails("read", fmt.Sprint("missing ", n), NotFound), good(n)); got != "-" {
				t.Fatalf("turn %d: %s", n+1, got)
			}
		}
	})
	t.Run("classes are kept apart by tool and by kind", func(t *testing.T) {
		newRun(nil).story(t, []played{
			then("-", good(1), bad(1)), then("-", good(2), bad(2)),
			then("-", good(3), fails("write", "3", ExecutionFailed)), then("-", good(4), fails("shell", "4", InvalidArguments)),
			then("-", good(5), fails("write", "5", ExecutionFailed)), then("LoopWarning", good(6), bad(6))})
	})
	t.Run("unknown tools are one class, whatever their names", func(t *testing.T) {
		var turns []played
		for n := 1; n <= 8; n++ {
			want := map[int]string{3: "LoopWarning", 8: "LoopDetected"}[n]
			if want == "" {
				want = "-"
			}
			turns = append(turns, then(want, good(n), fails(fmt.Sprint("tool", n), "", UnknownTool)))
		}
		newRun(nil).story(t, turns)
	})
	t.Run("failing commands are no failures", func(t *testing.T) {
		r := newRun(nil)
		for n := range 30 {
			if got := r.turn(exits("go test", fmt.Sprint(n))); got != "-" {
				t.Fatalf("turn %d: %s", n+1, got)
			}
		}
	})
	t.Run("a failure is forgotten after twenty turns", func(t *testing.T) {
		// Failures in turns 1, 2 and 21: the first is 20 turns old and gone. One in turn 22 forgets the second.
		r := newRun(nil)
		for n := 1; n <= 23; n++ {
			moves := []move{good(n)}
			if n <= 2 || n >= 21 {
				moves = append(moves, bad(n))
			}
			want := "-"
			if n == 23 {
				want = "LoopWarning" // 21, 22, 23
			}
			if got := r.turn(moves...); got != want {
				t.Errorf("turn %d: got %q, want %q", n, got, want)
			}
		}
	})
	t.Run("a failure counts in the nineteenth turn after it", func(t *testing.T) {
		r := newRun(nil)
		for n := 1; n <= 20; n++ {
			moves := []move{good(n)}
			want := "-"
			if n <= 2 || n == 20 {
				moves = append(moves, bad(n))
			}
			if n == 20 {
				want = "LoopWarning"
			}
			if got := r.turn(moves...); got != want {
				t.Errorf("turn %d: got %q, want %q", n, got, want)
			}
		}
	})
}

func TestPolling(t *testing.T) {
	minutes := func(n int) Polling { return Polling{"status": time.Duration(n) * time.Minute} }
	// poll is asked once a minute.
	poll := func(r *run, m move, times int) (first map[string]int) {
		first = map[string]int{}
		r.pace = time.Minute
		for n := 1; n <= times && r.stop == nil; n++ {
			if got := r.turn(m); first[got] == 0 {
				first[got] = n
			}
		}
		return first
	}
	waiting := ok("status", "job", "running")

	t.Run("twenty polls with changing results are not flagged, declared or not", func(t *testing.T) {
		for _, polling := range []Polling{nil, minutes(1)} {
			r := newRun(polling)
			for n := range 20 {
				if got := r.turn(ok("status", "job", fmt.Sprintf("%d %%", 5*n))); got != "-" {
					t.Fatalf("poll %d: %s", n+1, got)
				}
			}
		}
	})
	t.Run("twenty polls with the same result are refused and stopped", func(t *testing.T) {
		first := poll(newRun(nil), waiting, 20)
		if first["loop"] != 4 || first["loop LoopDetected"] != 5 {
			t.Errorf("got %v", first)
		}
	})
	t.Run("a declared tool may return the same result for its time", func(t *testing.T) {
		// The first result is that of minute 0; those up to minute 10, the eleventh, are within the time. The next three
		// count, the fourth after them is refused.
		first := poll(newRun(minutes(10)), waiting, 40)
		if first["loop"] != 15 || first["loop LoopDetected"] != 16 {
			t.Errorf("got %v, want the 15th refused and the 16th to stop the run", first)
		}
	})
	t.Run("a changed result starts the time anew", func(t *testing.T) {
		r := newRun(minutes(10))
		r.pace = time.Minute
		for n := range 60 {
			if got := r.turn(ok("status", "job", fmt.Sprint("phase ", n/9))); got != "-" {
				t.Fatalf("poll %d: %s", n+1, got)
			}
		}
	})
	t.Run("the time belongs to a call, not to a tool", func(t *testing.T) {
		r := newRun(minutes(10))
		poll(r, waiting, 11)
		if got := r.turn(ok("status", "other", "running")); got != "-" {
			t.Error(got)
		}
		first := poll(r, ok("status", "other", "running"), 40)
		if first["loop"] != 14 {
			t.Errorf("the other call was refused at its poll %d, want 15", first["loop"]+1)
		}
	})
	t.Run("a tool that is not ready yet is no failure", func(t *testing.T) {
		first := poll(newRun(minutes(10)), fails("status", "job", NotFound), 11)
		if len(first) != 1 || first["-"] != 1 {
			t.Errorf("got %v", first)
		}
	})
	t.Run("but wrong arguments are", func(t *testing.T) {
		newRun(minutes(10)).story(t, []played{
			then("-", fails("status", "1", InvalidArguments)), then("repeat Repair", fails("status", "1", InvalidArguments)),
			then("ToolRepairExhausted", fails("status", "2", InvalidArguments))})
	})
	t.Run("failures count again when the time is up", func(t *testing.T) {
		first := poll(newRun(minutes(10)), fails("status", "job", NotFound), 40)
		if first["repeat Repair"] != 13 || first["repeat ToolRepairExhausted"] != 14 {
			t.Errorf("got %v, want the 13th refused and the 14th to stop the run", first)
		}
	})
	t.Run("a poll between them keeps other turns from being identical", func(t *testing.T) {
		r := newRun(minutes(60))
		for n := range 10 {
			if got := r.turn(ok("read", "log", "empty")); got != "-" {
				t.Fatalf("round %d: %s", n+1, got)
			}
			if got := r.turn(waiting); got != "-" {
				t.Fatalf("round %d: %s", n+1, got)
			}
		}
	})
	t.Run("is exempt only if the whole turn polls", func(t *testing.T) {
		look := ok("read", "a", "text")
		newRun(minutes(60)).story(t, []played{
			then("-", look, waiting), then("-", look, waiting), then("-", look, waiting), then("loop loop", look, waiting)})
	})
	t.Run("a clock that steps back gives time, and never takes any", func(t *testing.T) {
		r := newRun(minutes(10))
		r.pace = -time.Minute
		for n := range 20 {
			if got := r.turn(waiting); got != "-" {
				t.Fatalf("poll %d: %s", n+1, got)
			}
		}
	})
}

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

// An agent that keeps sending the same wrong call, whatever the guard tells it, or a new wrong one each time.
func TestArgumentsThatAreAlwaysWrongStopTheRunAtTheThirdTurn(t *testing.T) {
	for name, call := range map[string]func(n int) move{
		"always the same": func(int) move { return fails("write", "{}", InvalidArguments) },
		"always another":  func(n int) move { return fails("write", fmt.Sprint(n), InvalidArguments) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRun(nil)
			for n := 1; r.stop == nil && n < 400; n++ {
				r.turn(call(n))
			}
			if r.turns != 3 || r.stop.Reason != ToolRepairExhausted {
				t.Errorf("stopped in turn %d: %+v", r.turns, r.stop)
			}
		})
	}
}
