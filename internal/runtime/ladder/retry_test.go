package ladder

import (
	"strings"
	"testing"
	"time"

	"belay.dev/belay/internal/runtime/failure"
)

func TestRateLimitsAreWaitedOutOnlyIfShort(t *testing.T) {
	for _, tc := range []struct {
		name string
		legs []Leg
		wait time.Duration
		want []string
	}{
		{"ten seconds, another leg available", []Leg{leg("a"), leg("b")}, 10 * time.Second, []string{"a", "a", "a", "b"}},
		{"more than ten seconds, another leg available", []Leg{leg("a"), leg("b")}, 10001 * time.Millisecond, []string{"a", "b"}},
		{"ten seconds, no other leg: the retry budget", []Leg{leg("a")}, 10 * time.Second, []string{"a", "a", "a", "a", "a", "a"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := drive(t, New("l", tc.legs...), Counts{})
			for _, want := range tc.want {
				d.fail(want, failsFor(failure.RateLimited, tc.wait))
			}
			if dec := d.next(); len(tc.legs) == 1 && (dec.Action != Wait || dec.Waiting != WaitRoutes) {
				t.Errorf("after the retry budget of the only leg: %+v, want a wait for its route", dec)
			}
		})
	}
}

func TestAStalledStreamIsTriedAgainOnlyWithoutAnAlternative(t *testing.T) {
	d := drive(t, New("l", leg("a")), Counts{})
	d.fail("a", fails(failure.StreamStalled))
	if second := d.fail("a", fails(failure.StreamStalled)); second.Try != 2 {
		t.Errorf("try %d, want 2, by which the windows widen", second.Try)
	}
}

func TestBackoffGrowsUnderFullJitterAndHeedsAHint(t *testing.T) {
	l := New("l", leg("a"))
	l.Breaker.BaseCooldown = 0
	l.Retry.MaxRetries = 9
	d := drive(t, l, Counts{})
	// Half of 0.5, 1, 2, 4, 8, 16, 30, 30 s.
	for i, want := range []float64{0.25, 0.5, 1, 2, 4, 8, 15, 15} {
		d.end(d.next(), fails(failure.ServerError), false)
		dec := d.next()
		if dec.Action != Wait || dec.Waiting != WaitBackoff || dec.For != time.Duration(want*1e9) {
			t.Fatalf("retry %d: %+v, want a wait of %v s", i+1, dec, want)
		}
		if again := d.next(); !again.Announced || again.For != dec.For {
			t.Fatalf("retry %d, asked again: %+v", i+1, again)
		}
		d.now = d.now.Add(dec.For)
	}
	d.end(d.next(), failsFor(failure.ServerError, 22*time.Second), false)
	if dec := d.next(); dec.For != 22*time.Second {
		t.Errorf("with a hint of 22 s: %+v", dec)
	}
}

func TestALongHintOfABlindFailureIsARoutingDecision(t *testing.T) {
	d := drive(t, New("l", leg("a"), leg("b")), Counts{})
	d.end(d.next(), failsFor(failure.ServerError, time.Minute), false)
	if dec := d.next(); dec.Action != Send || dec.Leg != "b" || dec.Fallback.Reason != FallbackWaitTooLong {
		t.Errorf("got %+v, want b at once", dec)
	}
}

func TestTwoPaidAndDiscardedAnswersAdvance(t *testing.T) {
	l := New("l", leg("a"), leg("b"))
	l.Breaker.FailureThreshold = 50
	d := drive(t, l, Counts{})
	d.end(d.until(), fails(failure.StreamTruncated), true)
	d.end(d.until(), fails(failure.Network), false)
	d.end(d.until(), fails(failure.StreamTruncated), true)
	dec := d.until()
	if dec.Leg != "b" || dec.Fallback == nil || dec.Fallback.Reason != FallbackPaidTwice {
		t.Errorf("got %+v, want b because a was paid twice", dec)
	}
}

func TestAProvidersWishNotToBeRetriedBindsItsLegOnly(t *testing.T) {
	d := drive(t, New("l", leg("a"), leg("b")), Counts{})
	f := fails(failure.ServerError)
	f.NoRetry = true
	d.fail("a", f)
	d.fail("b", fails(failure.ServerError))
}

func TestAMisconfiguredLegIsNotAskedAgainInTheTurn(t *testing.T) {
	d := drive(t, New("l", leg("a")), Counts{})
	f := fails(failure.Network)
	f.Sub = failure.SubConfiguration
	d.fail("a", f)
	d.wantStop(StopNoRouteAllowed)
}

func TestEnduranceWalksAgainWithoutTheLegsThatFailedForGood(t *testing.T) {
	l := New("l", leg("a"), leg("b"))
	l.Retry.MaxRetries = 0
	l.Retry.MaxAttemptsPerTurn = 100
	d := drive(t, l, Counts{})
	d.fail("a", fails(failure.ModelNotFound))
	d.fail("b", fails(failure.Unknown))
	// Half of 2, 4, 8, 16, 30, 30 s.
	for i, want := range []float64{1, 2, 4, 8, 15, 15} {
		dec := d.next()
		if dec.Action != Wait || dec.Waiting != WaitRewalk || dec.For != time.Duration(want*1e9) || dec.Leg != "" {
			t.Fatalf("walk %d: %+v, want a backoff of %v s", i+2, dec, want)
		}
		if again := d.next(); !again.Announced || again.For != dec.For {
			t.Fatalf("asked again: %+v", again)
		}
		d.fail("b", fails(failure.Unknown))
	}
	dec := d.wantStop(StopRetriesExhausted)
	if !strings.Contains(dec.Message, "maxRewalks 6") || !strings.Contains(dec.Message, `leg "a" failed with ModelNotFound`) {
		t.Errorf("message %q", dec.Message)
	}
	if d.walk.Rewalks() != 6 || len(d.sent) != 8 {
		t.Errorf("%d rewalks, requests %v", d.walk.Rewalks(), d.sent)
	}
}

func TestATurnsAttemptsAreSharedByLegsAndWalks(t *testing.T) {
	d := drive(t, New("l", leg("a"), leg("b"), leg("c")), Counts{})
	for range 20 {
		dec := d.until()
		d.end(dec, fails(failure.Unknown), false)
	}
	dec := d.wantStop(StopRetriesExhausted)
	if !strings.Contains(dec.Message, "all 20 requests") {
		t.Errorf("message %q", dec.Message)
	}
	// Six each.
	if d.sent[5] != "a" || d.sent[6] != "b" || d.sent[12] != "c" || d.sent[18] != "a" {
		t.Errorf("requests %v", d.sent)
	}
}

func TestARunWithoutRetriesSendsEachTurnOnce(t *testing.T) {
	d := drive(t, New("l", leg("a"), leg("b")), Counts{MaxModelRetries: new(0)})
	d.fail("a", fails(failure.ServerError))
	if dec := d.wantStop(StopRetriesExhausted); !strings.Contains(dec.Message, "limits.maxModelRetries of the run is 0") {
		t.Errorf("message %q", dec.Message)
	}
}

func TestTheRunsCeilingOnRetriesSpansTurns(t *testing.T) {
	d := drive(t, New("l", leg("a")), Counts{Retries: 98, MaxModelRetries: new(100)})
	d.fail("a", fails(failure.Unknown)) // the first of the turn is no retry
	d.fail("a", fails(failure.Unknown))
	d.fail("a", fails(failure.Unknown))
	dec := d.wantStop(StopRetriesExhausted)
	if !strings.Contains(dec.Message, "limits.maxModelRetries") || d.walk.Retries() != 100 {
		t.Errorf("%d retries, message %q", d.walk.Retries(), dec.Message)
	}
}

func TestProbesCountTowardsTheRunsCeilingOnly(t *testing.T) {
	l := New("l", leg("a"), leg("b"))
	d := drive(t, l, Counts{})
	d.open(l.Legs[0])
	d.now = at(30)
	d.begin(l, RunPolicy{}, Need{}, Counts{})
	if dec := d.fail("a", fails(failure.Timeout)); !dec.Probe {
		t.Fatalf("%+v is no probe", dec)
	}
	if d.walk.Attempts() != 0 || d.walk.Retries() != 1 {
		t.Errorf("%d attempts, %d retries; want 0 and 1", d.walk.Attempts(), d.walk.Retries())
	}
	d.fail("b", fails(failure.Unknown))
}

func TestAProbeThatSaysNothingGetsNoSecondTry(t *testing.T) {
	l := New("l", leg("a"), leg("b"))
	d := drive(t, l, Counts{})
	d.open(l.Legs[0])
	d.now = at(30)
	d.begin(l, RunPolicy{}, Need{}, Counts{})
	d.fail("a", fails(failure.Unknown))
	d.fail("b", fails(failure.Unknown))
}
