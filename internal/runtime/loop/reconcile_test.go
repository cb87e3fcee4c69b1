package loop_test

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"time"

	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/loop"
	"belay.dev/belay/internal/runtime/message"
)

// types are the types of the records that an epoch wrote, in order.
func (s *scene) types() []record.Type {
	var out []record.Type
	for _, p := range s.seen {
		out = append(out, record.TypeOf(p))
	}
	return out
}

// upTo is how many records a ledger has up to the n-th of a type, that one included.
func upTo(records [][]byte, typ record.Type, n int) int {
	for i, line := range records {
		if bytes.Contains(line, []byte(`"type":"`+string(typ)+`"`)) {
			if n--; n == 0 {
				return i + 1
			}
		}
	}
	panic("the ledger has no such record")
}

// TestAnUnansweredCallIsAnsweredBeforeTheNextRequest kills the run between the start of a call and its result. The strict
// provider refuses a conversation with a call that has no result, or two.
func TestAnUnansweredCallIsAnsweredBeforeTheNextRequest(t *testing.T) {
	whole := newScene(t, batchScript, "a")
	whole.finish()
	records := lines(t, whole.dir)
	for name, n := range map[string]int{
		"no call was started":                       upTo(records, record.TypeLLMResponse, 1),
		"the call that reads was started":           upTo(records, record.TypeToolStart, 1),
		"the call that others saw was started":      upTo(records, record.TypeToolStart, 2),
		"the call that nobody else saw was started": upTo(records, record.TypeToolStart, 3),
	} {
		t.Run(name, func(t *testing.T) {
			s := crashed(t, batchScript, records[:n])
			s.expectEnd("Completed", "all done")
			for _, r := range s.providers.Requests() {
				if r.Status != 200 || len(r.Problems) > 0 {
					t.Errorf("request %d was refused with %d: %v", r.Sequence, r.Status, r.Problems)
				}
			}
			results := map[string]int{}
			for e, err := range ledger.Replay(nil, s.dir) {
				if err != nil {
					t.Fatal(err)
				}
				payload, err := record.Decode(e.Type, e.Data, nil)
				if err != nil {
					t.Fatal(err)
				}
				if r, ok := payload.(*record.ToolResult); ok {
					results[r.Result.CallID]++
				}
			}
			for id, n := range results {
				if n != 1 {
					t.Errorf("call %s has %d results, want 1", id, n)
				}
			}
			if len(results) != 4 {
				t.Errorf("%d calls have results, want 4", len(results))
			}
		})
	}
}

func TestAnEpochReconcilesFirstAndAsksAfterwards(t *testing.T) {
	whole := newScene(t, batchScript, "a")
	whole.finish()
	records := lines(t, whole.dir)
	s := crashed(t, batchScript, records[:upTo(records, record.TypeToolStart, 3)])
	s.expectEnd("Completed", "all done")
	want := []record.Type{record.TypeEpochStart, record.TypeToolResult, record.TypeTurnPlan, record.TypeLLMRequest}
	if got := s.types(); len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
		t.Errorf("the epoch wrote %v, want it to begin with %v", got, want)
	}
	decision := find[record.ToolResult](s)[0]
	if !decision.Recovered || decision.Result.Status != message.ResultInDoubt {
		t.Errorf("the open call was answered with %+v, want a decision that its outcome is not known", decision)
	}
}

func TestAStopDuringReconciliationSuspends(t *testing.T) {
	whole := newScene(t, batchScript, "a")
	whole.finish()
	records := lines(t, whole.dir)
	s := crashed(t, batchScript, records[:upTo(records, record.TypeToolStart, 1)])
	ctx, cancel := context.WithCancelCause(t.Context())
	s.watch = func(p any) {
		if _, ok := p.(*record.EpochStart); ok {
			cancel(loop.ErrShutdown)
		}
	}
	end, err := s.runContext(ctx)
	if err != nil || end.Suspended == nil || s.types()[len(s.seen)-1] != record.TypeRunSuspend {
		t.Fatalf("%+v, %v after %v; want a suspended run whose last record says so", end, err, s.types())
	}
}

// TestAClockThatStepsBackChangesNothing sets the clock back by ten minutes at every record and at every restart.
func TestAClockThatStepsBackChangesNothing(t *testing.T) {
	back := func(s *scene) { s.clock.SetTime(s.clock.Now().Add(-10 * time.Minute)) }
	run := func(s *scene) loop.End {
		s.watch = func(any) { back(s) }
		end, err := s.run()
		if err != nil || end.Finished == nil || end.Finished.Reason != "Completed" || end.Finished.Text != "all done" {
			t.Fatalf("%+v, %v", end.Finished, err)
		}
		if end.State.Active < 0 {
			t.Errorf("the run was active for %s", end.State.Active)
		}
		for _, r := range find[record.LLMAttempt](s) {
			if r.DurationMilliseconds < 0 || r.FirstByteMilliseconds < 0 {
				t.Errorf("receipt %+v has a negative duration", r)
			}
		}
		return end
	}
	whole := newScene(t, batchScript, "a")
	run(whole)
	want, records := whole.bodies(), lines(t, whole.dir)
	for n := 1; n < len(records); n++ {
		s := crashed(t, batchScript, records[:n])
		s.workspace.jobs = whole.workspace.jobs
		for id, start := range read(t, s.dir).started {
			if start.Tool == "post" && !read(t, s.dir).finished[id] {
				want = want[:1] // an outcome that is in doubt is told with its time
			}
		}
		s.clock.SetTime(s.clock.Now().Add(-24 * time.Hour))
		run(s)
		if got := s.bodies(); len(want) == 3 && !slices.Equal(got, want[3-len(got):]) {
			t.Errorf("after record %d of %d the bodies are %q, want the last of %q", n, len(records), got, want)
		}
		want = whole.bodies()
	}
}
