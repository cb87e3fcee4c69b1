package guard

import (
	"fmt"
	"testing"

	"belay.dev/belay/internal/runtime/message"
)

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
		"although another thing was not found either": {
			then("-", missing), then("Repair", fails("read", "b", NotFound)), then("repeat ToolRepairExhausted", missing)},
		"although the tool itself refused another call's arguments": {
			then("-", missing), then("Repair", other("edit", "x", message.ResultError, "InvalidArguments")), then("repeat ToolRepairExhausted", missing)},
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
		"a refused repetition is like the failure that it repeats": {
			then("-", look, fails("write", "x", InvalidArguments)), then("repeat", fails("write", "x", InvalidArguments), look),
			then("LoopWarning", fails("write", "x", InvalidArguments), look), then("loop loop", look, fails("write", "x", InvalidArguments))},
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
	for range 2 * IdenticalStop {
		s.Apply(Answer{Turn: 6, Calls: []Call{{ID: "x", Tool: "read", Arguments: "b"}}})
		s.Apply(refused)
	}
	if d := s.Decide(nil); d.Stop != nil {
		t.Errorf("refused turns after another turn were taken for a loop: %v", d.Stop)
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

// What was started in an earlier epoch is dispatched again without being asked for.
func TestACallThatWasDispatchedAllTheSameKeepsItsOwnFailure(t *testing.T) {
	s := New(nil)
	var texts []string
	for n, text := range []string{"first", "second", "third"} {
		s.Apply(Answer{Turn: n, Calls: []Call{{ID: "a", Tool: "read", Arguments: "x"}}})
		s.Apply(Result{Result: message.Result{CallID: "a", Status: message.ResultError, ErrorKind: "NotFound", Text: text}})
		texts = append(texts, "NotFound: "+text)
	}
	contains(t, s.Decide(nil).Stop.Text, texts...)
}
