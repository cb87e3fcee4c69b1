package ladder

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"belay.dev/belay/internal/runtime/failure"
)

func TestAWalkRebuiltFromReceiptsHasTheSameCounts(t *testing.T) {
	l := New("l", leg("a"), leg("b"))
	l.Breaker.BaseCooldown = 0
	l.Retry.MaxAttemptsPerTurn = 14
	live := drive(t, l, Counts{Retries: 5})
	type receipt struct {
		leg string
		at  time.Time
	}
	var receipts []receipt
	rewalkedAt := -1
	for len(receipts) < 13 {
		dec := live.until()
		if live.walk.Rewalks() == 1 && rewalkedAt < 0 {
			rewalkedAt = len(receipts)
		}
		receipts = append(receipts, receipt{dec.Leg, live.now})
		live.end(dec, fails(failure.ServerError), false)
	}
	rebuilt := drive(t, l, Counts{Retries: 5})
	for i, r := range receipts {
		if i == rewalkedAt {
			rebuilt.walk.Rewalked()
		}
		rebuilt.walk.Record(r.leg, Result{Failure: fails(failure.ServerError)}, r.at)
	}
	rebuilt.walk.Restart()
	if rebuilt.walk.Attempts() != 13 || rebuilt.walk.Rewalks() != 1 || rebuilt.walk.Retries() != live.walk.Retries() {
		t.Errorf("attempts %d, rewalks %d, retries %d; live has %d, %d, %d", rebuilt.walk.Attempts(), rebuilt.walk.Rewalks(), rebuilt.walk.Retries(),
			live.walk.Attempts(), live.walk.Rewalks(), live.walk.Retries())
	}
	rebuilt.now = live.now
	rebuilt.fail("a", fails(failure.ServerError))
	rebuilt.wantStop(StopRetriesExhausted)
}

func TestARebuiltWalkRemembersAmendments(t *testing.T) {
	d := drive(t, New("l", leg("a"), leg("b")), Counts{})
	// The receipts of a turn whose request was repaired once already.
	d.walk.Record("a", Result{Failure: fails(failure.InvalidRequest)}, t0)
	d.walk.Record("a", Result{Failure: fails(failure.InvalidRequest)}, t0)
	d.walk.Restart()
	d.wantStop(StopInvalidRequest)
}

func TestReceiptsOfALegThatIsGoneCountTowardsTheTurn(t *testing.T) {
	d := drive(t, New("l", leg("a")), Counts{})
	d.walk.Record("removed", Result{Failure: fails(failure.Timeout)}, t0)
	if dec := d.next(); d.walk.Attempts() != 1 || dec.Leg != "a" {
		t.Errorf("%d attempts, then %+v", d.walk.Attempts(), dec)
	}
}

func TestTheSameClockSeedAndFailuresGiveTheSameDecisions(t *testing.T) {
	kinds := []failure.Kind{failure.Network, failure.RateLimited, failure.Unknown, failure.StreamStalled, failure.ServerError, failure.ModelNotFound, failure.QuotaExhausted}
	walk := func(seed uint64) []Decision {
		script := rand.New(rand.NewPCG(seed, 1))
		d := drive(t, New("l", leg("a"), leg("b"), leg("c")), Counts{MaxModelRetries: new(100)})
		d.rnd = rand.New(rand.NewPCG(seed, 2)).Float64
		var all []Decision
		for range 200 {
			dec := d.next()
			all = append(all, dec)
			switch dec.Action {
			case Send:
				d.end(dec, fails(kinds[script.IntN(len(kinds))]), script.IntN(3) == 0)
			case Wait:
				d.now = d.now.Add(dec.For)
			case Stop, Park, Amend:
				return all
			}
		}
		t.Fatalf("seed %d: 200 decisions without an end", seed)
		return nil
	}
	for seed := range uint64(200) {
		if diff := cmp.Diff(walk(seed), walk(seed)); diff != "" {
			t.Fatalf("seed %d: %s", seed, diff)
		}
	}
}

func TestWhateverFailsTheBoundsHold(t *testing.T) {
	kinds := []failure.Kind{
		failure.Network, failure.Timeout, failure.ServerError, failure.StreamTruncated, failure.StreamMalformed, failure.StreamStalled,
		failure.RateLimited, failure.Overloaded, failure.QuotaExhausted, failure.Billing, failure.ModelNotFound, failure.AuthError,
		failure.PermissionDenied, failure.InvalidRequest, failure.ContextLengthExceeded, failure.OutputTruncated, failure.ContentFiltered,
		failure.EmptyResponse, failure.Unknown,
	}
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 3))
		l := New("l", leg("a"), leg("b", window(int64(2_000+r.IntN(200_000)))), leg("c"))
		d := drive(t, l, Counts{MaxModelRetries: new(30)})
		d.rnd = r.Float64
		parks, amendments := 0, 0
		for steps := 0; ; steps++ {
			if steps > 500 {
				t.Fatalf("seed %d: 500 decisions without an end, requests %v", seed, d.sent)
			}
			dec := d.next()
			if dec.Action == Stop {
				if dec.Reason == "" || dec.Message == "" {
					t.Fatalf("seed %d: a stop without reason or message: %+v", seed, dec)
				}
				break
			}
			switch dec.Action {
			case Send:
				// end fails the test if a route is asked that its breaker forbids.
				f := fails(kinds[r.IntN(len(kinds))])
				if r.IntN(3) == 0 {
					f.Wait = &failure.Wait{Duration: time.Duration(r.IntN(120)) * time.Second}
				}
				d.end(dec, f, r.IntN(4) == 0)
			case Wait:
				if dec.For < 0 || dec.For > l.Waits.ParkAfter+10*time.Second {
					t.Fatalf("seed %d: a wait of %s", seed, dec.For)
				}
				d.now = d.now.Add(dec.For)
			case Amend:
				if amendments++; amendments > 1+2+2+3 {
					t.Fatalf("seed %d: %d amendments", seed, amendments)
				}
				if r.IntN(2) == 0 {
					d.walk.Amended(Need{InputTokens: 500})
				} else {
					d.walk.CannotAmend()
				}
			case Park:
				if parks++; parks > 20 {
					break
				}
				d.now = d.now.Add(time.Hour)
			case Stop:
			}
		}
		if d.walk.Attempts() > l.Retry.MaxAttemptsPerTurn || d.walk.Retries() > 30 || d.walk.Rewalks() > l.Endurance.MaxRewalks {
			t.Fatalf("seed %d: %d attempts, %d retries, %d rewalks", seed, d.walk.Attempts(), d.walk.Retries(), d.walk.Rewalks())
		}
	}
}
