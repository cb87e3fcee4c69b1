package guard

import (
	"fmt"
	"testing"
)

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
	t.Run("what failed beside a success is not counted", func(t *testing.T) {
		newRun(nil).story(t, []played{
			then("-", bad(1), ok("write", "a", "created a")), then("-", bad(2)), then("Repair", bad(3)), then("LoopWarning", good(4), bad(4))})
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
