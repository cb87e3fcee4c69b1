package guard

import (
	"fmt"
	"testing"
	"time"
)

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
	t.Run("a refusal does not start the time anew", func(t *testing.T) {
		r := newRun(minutes(10))
		poll(r, waiting, 15)
		if got := r.turn(ok("read", "a", "text")); got != "-" {
			t.Error(got)
		}
		if first := poll(r, waiting, 20); first["loop"] != 4 {
			t.Errorf("got %v, want the fourth of the further polls refused", first)
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
