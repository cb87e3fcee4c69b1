package report

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"belay.dev/belay/internal/runtime/breaker"
	"belay.dev/belay/internal/runtime/failure"
)

// world makes random histories of runs: what each of them has published so far, step by step.
type world struct {
	r       *rand.Rand
	history [][]Run
}

func newWorld(seed uint64, generation int64, coolings bool) *world {
	w := &world{r: rand.New(rand.NewPCG(seed, 7))}
	runs := 1 + w.r.IntN(24)
	for i := range runs {
		run := Run{Name: "n", UID: string(rune('a' + i)), Created: at(w.r.IntN(5)), Epoch: 1, ReportEpoch: 1, Live: w.r.IntN(8) > 0}
		level := breaker.Level{Generation: generation}
		steps := []Run{run}
		for step := range w.r.IntN(6) {
			now := at(step)
			switch w.r.IntN(6) {
			case 0:
				level.ConsecutiveBlind, level.LastSuccessTime = 0, now
			case 1:
				if coolings {
					level.LastFailure = breaker.LastFailure{Kind: failure.RateLimited, Time: now}
					level.CoolUntil = now.Add(time.Duration(w.r.IntN(40)) * time.Second)
				}
			case 2, 3:
				level.ConsecutiveBlind++
				level.LastFailure = breaker.LastFailure{Kind: failure.Timeout, Time: now}
			}
			published := level
			next := run
			next.Report = &Report{Level: published}
			steps = append(steps, next)
		}
		w.history = append(w.history, steps)
	}
	return w
}

// view is what a keeper sees at some moment: of each run some report, not always the newest, in any order.
func (w *world) view(final bool) []Run {
	var runs []Run
	for _, steps := range w.history {
		i := len(steps) - 1
		if !final {
			i = w.r.IntN(len(steps))
		}
		runs = append(runs, steps[i])
		if w.r.IntN(4) == 0 {
			runs = append(runs, steps[i])
		}
	}
	w.r.Shuffle(len(runs), func(i, j int) { runs[i], runs[j] = runs[j], runs[i] })
	return runs
}

// oracle judges a view by the words of the rule, in the plainest way.
func oracle(runs []Run, generation int64, threshold int) (sum int, opens bool) {
	seen := map[string]Run{}
	for _, r := range runs {
		seen[r.UID] = r
	}
	active, failing := 0, 0
	for _, r := range seen {
		if r.Live {
			active++
		}
	}
	for uid, r := range seen {
		if r.Report == nil || r.Report.Generation != generation || r.Report.ConsecutiveBlind == 0 {
			continue
		}
		refuted := false
		for other, o := range seen {
			if other != uid && o.Report != nil && o.Report.LastSuccessTime.After(r.Report.LastFailure.Time) {
				refuted = true
			}
		}
		if !refuted {
			sum += r.Report.ConsecutiveBlind
			failing++
		}
	}
	needed := active / 10
	if active%10 > 0 {
		needed++
	}
	needed = min(max(needed, 2), 10)
	if active < needed {
		needed = active
	}
	return sum, sum >= threshold && failing >= needed
}

// restart passes a status through what a keeper's restart leaves of it: what is stored.
func restart(t *testing.T, s Status) Status {
	t.Helper()
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var out Status
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestTheFoldIsExactHoweverReportsArrive(t *testing.T) {
	cfg := DefaultConfig()
	opened := 0
	for seed := range uint64(3000) {
		w := newWorld(seed, 1, false)
		s := closedAt(1)
		for range w.r.IntN(5) {
			// Lost, late, doubled and reordered reports, and a keeper that restarts between any two folds.
			view := w.view(false)
			sum, opens := oracle(view, 1, cfg.FailureThreshold)
			s = Fold(s, view, Wish{}, cfg, at(10)).Status
			if (s.State == breaker.Open) != opens || s.Failures != sum {
				t.Fatalf("seed %d: %s with %d failures, the oracle says %d, opens %t", seed, s.State, s.Failures, sum, opens)
			}
			if s.State == breaker.Open {
				break
			}
			s = restart(t, s)
		}
		if s.State == breaker.Open {
			opened++
			continue
		}
		// Whatever was seen before, the final reports decide, as if nothing else had ever been seen.
		final := w.view(true)
		got := Fold(s, final, Wish{}, cfg, at(20)).Status
		want := Fold(closedAt(1), final, Wish{}, cfg, at(20)).Status
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d: what was seen before the final reports left a trace: %s", seed, diff)
		}
		sum, opens := oracle(final, 1, cfg.FailureThreshold)
		if (got.State == breaker.Open) != opens || got.Failures != sum {
			t.Fatalf("seed %d: %s with %d failures, the oracle says %d, opens %t", seed, got.State, got.Failures, sum, opens)
		}
		if got.State == breaker.Open {
			opened++
		}
	}
	if opened < 100 || opened > 2900 {
		t.Errorf("%d of 3000 worlds opened: the worlds do not try both sides of the rule", opened)
	}
}

func TestTheFoldIsIdempotentAndDoesNotDependOnOrder(t *testing.T) {
	cfg := DefaultConfig()
	for seed := range uint64(2000) {
		w := newWorld(seed, 1, true)
		s := closedAt(1)
		for step := range 8 {
			now := at(step * 17)
			view := w.view(false)
			shuffled := append([]Run(nil), view...)
			w.r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
			once := Fold(s, view, Wish{}, cfg, now)
			if diff := cmp.Diff(once.Status, Fold(s, shuffled, Wish{}, cfg, now).Status); diff != "" {
				t.Fatalf("seed %d: the order of the runs matters: %s", seed, diff)
			}
			twice := Fold(restart(t, once.Status), view, Wish{}, cfg, now)
			if diff := cmp.Diff(once.Status, twice.Status); diff != "" || len(twice.Transitions) != 0 {
				t.Fatalf("seed %d, step %d: folding again changed it: %s %+v", seed, step, diff, twice.Transitions)
			}
			if once.Status.Generation < s.Generation || (once.Status.State != s.State && once.Status.Generation == s.Generation) {
				t.Fatalf("seed %d: %s in generation %d became %s in %d", seed, s.State, s.Generation, once.Status.State, once.Status.Generation)
			}
			s = once.Status
		}
	}
}
