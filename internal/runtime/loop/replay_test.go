package loop_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"belay.dev/belay/internal/runtime/breaker"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/loop"
	"belay.dev/belay/internal/runtime/provider"
	"belay.dev/belay/internal/runtime/route"
)

// untouchable is a cluster and a set of providers that a replay must leave alone.
type untouchable struct{ t *testing.T }

func (u untouchable) touched(what string) { u.t.Errorf("a replay %s", what) }

func (u untouchable) Prepare(provider.Target, provider.Request) (provider.Prepared, error) {
	u.touched("rendered a request")
	return provider.Prepared{}, errors.New("untouchable")
}

func (u untouchable) Refused(error) provider.Attempt {
	u.touched("was refused a request")
	return provider.Attempt{}
}

func (u untouchable) Do(context.Context, provider.Target, provider.Prepared, provider.Try) provider.Attempt {
	u.touched("sent a request")
	return provider.Attempt{}
}

func (u untouchable) Shared() map[route.Name]breaker.Shared {
	u.touched("read the shared health")
	return nil
}

func (u untouchable) Changed() <-chan struct{} {
	u.touched("waited for the shared health")
	return nil
}

func TestAReplayOfAFinishedLedgerTouchesNothing(t *testing.T) {
	s := newScene(t, batchScript, "a")
	first := s.finish()
	s.models = func(loop.Models) loop.Models { return untouchable{t} }
	s.health = untouchable{t}
	s.current = func(int, *loop.Ladder) { t.Error("a replay read the ladder") }
	s.workspace = nil
	if again := s.finish(); again != first {
		t.Errorf("replayed as %+v, want %+v", again, first)
	}
	s.expectRequests("a=3")
}

// counted counts what is sent.
type counted struct {
	loop.Models
	asked int
}

func (c *counted) Do(ctx context.Context, t provider.Target, p provider.Prepared, try provider.Try) provider.Attempt {
	c.asked++
	return c.Models.Do(ctx, t, p, try)
}

func TestCommittedTurnsAreNeverAskedForAgain(t *testing.T) {
	whole := newScene(t, batchScript, "a")
	whole.finish()
	records := lines(t, whole.dir)
	for n := 1; n < len(records); n++ {
		s := newScene(t, batchScript, "a")
		s.plant(records[:n])
		before := read(t, s.dir)
		models := &counted{}
		s.models = func(m loop.Models) loop.Models { models.Models = m; return models }
		s.finish()
		if want := 3 - before.committed; models.asked != want {
			t.Errorf("after record %d: %d requests, want %d", n, models.asked, want)
		}
	}
}

// decisions are the records of a run that decide something, without what was measured.
func (s *scene) decisions() []any {
	var out []any
	for _, p := range s.seen {
		switch p := p.(type) {
		case *record.TurnPlan, *record.LLMRequest, *record.RetryScheduled, *record.RouteFallback, *record.BreakerChanged, *record.RunEnd, *record.RunPark:
			out = append(out, p)
		}
	}
	return out
}

func TestTheSameClockSeedAndFaultsGiveTheSamePlans(t *testing.T) {
	script := `legs: {
	  a: {steps: [{status: 503, times: 4}, {calls: [{name: look, arguments: {}}]}, {status: 429, retryAfter: {milliseconds: 3000}}, {reset: {}, times: Forever}]},
	  b: {steps: [{status: 529}, {answer: "cut", cutAfterEvents: 1}, {calls: [{name: look, arguments: {}}], times: 2}, {status: 500, times: 2}, {answer: "end"}]}}`
	run := func(seed uint64) []any {
		s := newScene(t, script, "a", "b")
		s.random = rand.New(rand.NewPCG(seed, 1)).Float64
		s.finish()
		return s.decisions()
	}
	for seed := range uint64(5) {
		once, twice := run(seed), run(seed)
		if len(once) < 15 {
			t.Fatalf("seed %d: only %d decisions", seed, len(once))
		}
		if diff := cmp.Diff(once, twice); diff != "" {
			t.Errorf("seed %d: %s", seed, diff)
		}
	}
	if diff := cmp.Diff(run(1), run(2)); diff == "" {
		t.Error("another seed gives the same delays: the seed is not used")
	}
}
