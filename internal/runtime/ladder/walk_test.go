package ladder

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"belay.dev/belay/internal/runtime/breaker"
	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/route"
)

func TestEachKindGoesExactlyWhereTheTableSays(t *testing.T) {
	// Legs a, b, c; a fails with the kind until the walk leaves it. want is every request, the last one answered by b.
	for _, tc := range []struct {
		kind failure.Kind
		want []string
	}{
		// Three blind failures open a, although five retries are allowed.
		{failure.Network, []string{"a", "a", "a", "b"}},
		{failure.Timeout, []string{"a", "a", "a", "b"}},
		{failure.ServerError, []string{"a", "a", "a", "b"}},
		{failure.StreamTruncated, []string{"a", "a", "a", "b"}},
		{failure.StreamMalformed, []string{"a", "a", "a", "b"}},
		{failure.StreamStalled, []string{"a", "b"}},
		// Without a hint the waits are 2 and 4 s: two retries, since another leg is available.
		{failure.RateLimited, []string{"a", "a", "a", "b"}},
		{failure.Overloaded, []string{"a", "a", "a", "b"}},
		{failure.QuotaExhausted, []string{"a", "b"}},
		{failure.Billing, []string{"a", "b"}},
		{failure.ModelNotFound, []string{"a", "b"}},
		{failure.EmptyResponse, []string{"a", "a", "b"}},
		// Neutral and transient: the whole retry budget.
		{failure.Unknown, []string{"a", "a", "a", "a", "a", "a", "b"}},
	} {
		t.Run(string(tc.kind), func(t *testing.T) {
			d := drive(t, New("l", leg("a"), leg("b"), leg("c")), Counts{})
			for {
				dec := d.until()
				if dec.Action != Send {
					t.Fatalf("got %+v after %v", dec, d.sent)
				}
				if dec.Leg != "a" {
					d.end(dec, nil, false)
					break
				}
				d.end(dec, fails(tc.kind), false)
			}
			if diff := cmp.Diff(tc.want, d.sent); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestKindsThatAnotherLegWouldOnlyMaskEndTheRun(t *testing.T) {
	for _, tc := range []struct {
		kind   failure.Kind
		amends Amendment
		want   StopReason
	}{
		{failure.InvalidRequest, RepairRequest, StopInvalidRequest},
		{failure.OutputTruncated, RaiseOutputCap, StopOutputTruncated},
		{failure.ContentFiltered, "", StopContentFiltered},
		{failure.Cancelled, "", StopCancelled},
	} {
		t.Run(string(tc.kind), func(t *testing.T) {
			d := drive(t, New("l", leg("a"), leg("b")), Counts{})
			d.fail("a", fails(tc.kind))
			if tc.amends != "" {
				if dec := d.next(); dec.Action != Amend || dec.Amendment != tc.amends || dec.Leg != "a" {
					t.Fatalf("got %+v, want %s", dec, tc.amends)
				}
				d.walk.CannotAmend()
			}
			d.wantStop(tc.want)
			if len(d.sent) != 1 {
				t.Errorf("requests %v, want the one", d.sent)
			}
		})
	}
}

func TestARepairedRequestIsResentOnceToTheSameLeg(t *testing.T) {
	d := drive(t, New("l", leg("a"), leg("b")), Counts{})
	d.fail("a", fails(failure.InvalidRequest))
	if dec := d.next(); dec.Amendment != RepairRequest {
		t.Fatalf("got %+v", dec)
	}
	d.walk.Amended(Need{InputTokens: 900})
	d.fail("a", fails(failure.InvalidRequest))
	dec := d.wantStop(StopInvalidRequest)
	if !strings.Contains(dec.Message, "what InvalidRequest means") {
		t.Errorf("message %q does not carry the failure's own", dec.Message)
	}
}

func TestARejectedCredentialIsRereadOnceThenFollowsThePolicy(t *testing.T) {
	run := func(t *testing.T, p OnCredentialFailure) *driver {
		l := New("l", leg("a"), leg("b"))
		l.Policy.OnCredentialFailure = p
		d := drive(t, l, Counts{})
		effects := d.end(d.next(), fails(failure.AuthError), false)
		if diff := cmp.Diff([]Effect{CredentialRejected}, effects); diff != "" {
			t.Error(diff)
		}
		if dec := d.next(); dec.Amendment != RereadCredential {
			t.Fatalf("got %+v, want the credential read again", dec)
		}
		return d
	}
	t.Run("a new value is tried at the same leg, and a second rejection moves on", func(t *testing.T) {
		d := run(t, AdvanceOnCredentialFailure)
		d.walk.Amended(Need{InputTokens: 1000})
		d.fail("a", fails(failure.AuthError))
		d.fail("b", fails(failure.Unknown))
	})
	t.Run("Advance", func(t *testing.T) {
		d := run(t, AdvanceOnCredentialFailure)
		d.walk.CannotAmend()
		d.fail("b", fails(failure.AuthError))
		d.walk.CannotAmend()
		dec := d.wantStop(StopCredentialInvalid)
		for _, s := range []string{`leg "a" failed with AuthError`, `leg "b" failed with AuthError`} {
			if !strings.Contains(dec.Message, s) {
				t.Errorf("message %q does not say %q", dec.Message, s)
			}
		}
	})
	t.Run("Park", func(t *testing.T) {
		d := run(t, ParkOnCredentialFailure)
		d.walk.CannotAmend()
		if dec := d.next(); dec.Action != Park || dec.Parking != ParkCredential || !strings.Contains(dec.Message, `Secret "a"`) {
			t.Errorf("got %+v", dec)
		}
	})
	t.Run("Fail", func(t *testing.T) {
		d := run(t, FailOnCredentialFailure)
		d.walk.CannotAmend()
		d.wantStop(StopCredentialInvalid)
	})
}

func TestContentFilteredMayAdvance(t *testing.T) {
	l := New("l", leg("a"), leg("b"))
	l.Policy.OnContentFiltered = AdvanceOnContentFiltered
	d := drive(t, l, Counts{})
	d.fail("a", fails(failure.ContentFiltered))
	d.fail("b", fails(failure.ContentFiltered))
	d.wantStop(StopContentFiltered)
}

func TestEveryModelMissingEndsAsNoRouteAllowed(t *testing.T) {
	d := drive(t, New("l", leg("a"), leg("b")), Counts{})
	if diff := cmp.Diff([]Effect{ModelMissing}, d.end(d.next(), fails(failure.ModelNotFound), false)); diff != "" {
		t.Error(diff)
	}
	d.fail("b", fails(failure.ModelNotFound))
	d.wantStop(StopNoRouteAllowed)
}

func TestEmptyAnswersOfEveryLegEndAsEmptyResponse(t *testing.T) {
	d := drive(t, New("l", leg("a")), Counts{})
	d.fail("a", fails(failure.EmptyResponse))
	d.fail("a", fails(failure.EmptyResponse))
	d.wantStop(StopEmptyResponse)
}

func TestNothingIsSentWhenNoLegMayBeAsked(t *testing.T) {
	for _, tc := range []struct {
		name   string
		legs   []Leg
		policy RunPolicy
		want   StopReason
		says   string
	}{
		{"a foreign class", []Leg{leg("a"), leg("b")}, RunPolicy{SecurityClass: Restricted}, StopNoRouteAllowed, "ClassTooLow"},
		{"denied metered legs", []Leg{leg("a", metered)}, RunPolicy{}, StopNoRouteAllowed, "MeteredDenied"},
		{"all drained", []Leg{leg("a", drained)}, RunPolicy{}, StopNoRouteAllowed, "Drained"},
		{"no credential", []Leg{leg("a", credential(CredentialMissing)), leg("b", credential(CredentialInvalid))}, RunPolicy{}, StopCredentialInvalid, "CredentialMissing"},
		{"one without a credential, one denied", []Leg{leg("a", credential(CredentialMissing)), leg("b", metered)}, RunPolicy{}, StopCredentialInvalid, "MeteredDenied"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := drive(t, New("l", tc.legs...), Counts{})
			d.begin(New("l", tc.legs...), tc.policy, Need{InputTokens: 1}, Counts{})
			dec := d.next()
			if dec.Action != Stop || dec.Reason != tc.want || !strings.Contains(dec.Message, tc.says) {
				t.Errorf("got %s %s %q; want %s naming %s", dec.Action, dec.Reason, dec.Message, tc.want, tc.says)
			}
		})
	}
}

func TestAllLegsOpenWaitsInPlaceParksOrFailsWithoutARequest(t *testing.T) {
	l := New("l", leg("a"), leg("b"))
	t.Run("within the wait in place", func(t *testing.T) {
		d := drive(t, l, Counts{})
		d.open(l.Legs[0])
		d.now = at(5)
		d.open(l.Legs[1])
		d.begin(l, RunPolicy{}, Need{}, Counts{})
		dec := d.next()
		// a reopens at 30 s, in 25 s; half of a tenth of it is added.
		if dec.Action != Wait || dec.Waiting != WaitRoutes || dec.For != 26250*time.Millisecond || dec.Announced {
			t.Fatalf("got %+v", dec)
		}
		if diff := cmp.Diff([]route.Name{l.Legs[0].Route.Name(), l.Legs[1].Route.Name()}, dec.Routes); diff != "" {
			t.Errorf("the wait does not name its routes: %s", diff)
		}
		if again := d.next(); again.For != dec.For || !again.Announced {
			t.Errorf("asked again: %+v, want the same wait, announced", again)
		}
		d.now = d.now.Add(dec.For)
		probe := d.next()
		if probe.Action != Send || probe.Leg != "a" || !probe.Probe {
			t.Errorf("after the wait: %+v, want a probe of a", probe)
		}
	})
	parkBeyond := func(l Ladder, counts Counts) *driver {
		d := drive(t, l, counts)
		for _, leg := range l.Legs {
			d.open(leg)
		}
		d.begin(l, RunPolicy{}, Need{}, counts)
		return d
	}
	short := l
	short.Waits.ParkAfter = 10 * time.Second
	t.Run("beyond it", func(t *testing.T) {
		dec := parkBeyond(short, Counts{Parks: 11}).next()
		if dec.Action != Park || dec.Parking != ParkRoutes || !dec.Until.Equal(at(30)) || len(dec.Routes) != 2 {
			t.Errorf("got %+v", dec)
		}
	})
	t.Run("after twelve parks without an answer", func(t *testing.T) {
		dec := parkBeyond(short, Counts{Parks: 12}).wantStop(StopAllRoutesTripped)
		want := `no leg may be asked now: leg "a" is open for another 30s after ServerError; leg "b" is open for another 30s after ServerError; ` +
			`the run has parked 12 times without an answer`
		if dec.Message != want {
			t.Errorf("message %q\nwant    %q", dec.Message, want)
		}
	})
	t.Run("onAllTripped: Fail", func(t *testing.T) {
		failing := l
		failing.Waits.OnAllTripped = FailOnAllTripped
		parkBeyond(failing, Counts{}).wantStop(StopAllRoutesTripped)
	})
	t.Run("onAllTripped: Fail waits for a leg that is merely cooling", func(t *testing.T) {
		failing := New("l", leg("a"))
		failing.Waits.OnAllTripped = FailOnAllTripped
		d := drive(t, failing, Counts{})
		d.fail("a", failsFor(failure.RateLimited, time.Minute))
		if dec := d.next(); dec.Action != Wait || dec.Waiting != WaitRoutes {
			t.Errorf("got %+v", dec)
		}
	})
}

func TestAFallbackIsToldOnceAndFailoverFromEveryTime(t *testing.T) {
	l := New("l", leg("a"), leg("b"), leg("c"))
	d := drive(t, l, Counts{LastLeg: "a"})
	for range 3 {
		d.fail("a", fails(failure.ServerError))
	}
	dec := d.until()
	want := &Fallback{From: "a", To: "b", Kind: failure.ServerError, Reason: FallbackRouteOpen}
	if diff := cmp.Diff(want, dec.Fallback); diff != "" || dec.FailoverFrom != "a" {
		t.Errorf("failoverFrom %q, %s", dec.FailoverFrom, diff)
	}
	d.end(dec, fails(failure.Unknown), false)
	if dec = d.until(); dec.FailoverFrom != "a" || dec.Fallback != nil {
		t.Errorf("the retry at b: %+v, want failoverFrom a and no second fallback", dec)
	}
	// The next turn, with a still open, starts at b.
	d.begin(l, RunPolicy{}, Need{}, Counts{LastLeg: "b"})
	if dec = d.until(); dec.Leg != "b" || dec.FailoverFrom != "a" || dec.Fallback != nil {
		t.Errorf("the next turn: %+v", dec)
	}
	// A new run meets the open leg for the first time: that is news.
	d.begin(l, RunPolicy{}, Need{}, Counts{})
	if dec = d.until(); dec.Fallback == nil || dec.Fallback.Reason != FallbackRouteOpen {
		t.Errorf("a first turn: %+v", dec)
	}
	// When a is well again, the run is back at the top.
	d.now = at(60)
	p, _ := d.health.Begin(l.Legs[0].Route.Name(), d.now)
	d.health.Finish(p, breaker.Result{Outcome: breaker.Success}, d.now)
	d.begin(l, RunPolicy{}, Need{}, Counts{LastLeg: "b"})
	if dec = d.until(); dec.Leg != "a" || dec.FailoverFrom != "" || dec.Fallback != nil {
		t.Errorf("after the recovery: %+v", dec)
	}
}

func TestAnOverflowIsReducedTwiceThenOnlyALargerWindowWillDo(t *testing.T) {
	l := New("l", leg("a"), leg("same"), leg("large", window(1_000_000)))
	d := drive(t, l, Counts{})
	for range 2 {
		d.fail("a", fails(failure.ContextLengthExceeded))
		if dec := d.next(); dec.Amendment != ReduceContext || dec.Leg != "a" {
			t.Fatalf("got %+v, want a reduction", dec)
		}
		d.walk.Amended(Need{InputTokens: 800})
	}
	d.fail("a", fails(failure.ContextLengthExceeded))
	d.fail("large", fails(failure.ContextLengthExceeded))
	dec := d.wantStop(StopContextIrreducible)
	if !strings.Contains(dec.Message, "cannot be reduced further") {
		t.Errorf("message %q", dec.Message)
	}
}

func TestAnOverflowWithoutALargerWindowIsIrreducible(t *testing.T) {
	d := drive(t, New("l", leg("a"), leg("b")), Counts{})
	d.fail("a", fails(failure.ContextLengthExceeded))
	d.next()
	d.walk.CannotAmend()
	d.wantStop(StopContextIrreducible)
}

func TestASmallerLegIsReachedByReducingFirst(t *testing.T) {
	l := New("l", leg("a"), leg("small", window(20_000)))
	d := drive(t, l, Counts{})
	need := Need{InputTokens: 60_000}
	d.begin(l, RunPolicy{}, need, Counts{})
	for range 3 {
		d.fail("a", fails(failure.Timeout))
	}
	dec := d.until()
	if dec.Action != Amend || dec.Amendment != ReduceContext || dec.Leg != "small" {
		t.Fatalf("got %+v, want a reduction for the small leg", dec)
	}
	d.walk.Amended(Need{InputTokens: 12_000})
	dec = d.until()
	if dec.Action != Send || dec.Leg != "small" || dec.FailoverFrom != "a" {
		t.Errorf("got %+v, want the small leg", dec)
	}
}

func TestAWaitForOneLegIsGivenUpWhenAnotherRouteReopens(t *testing.T) {
	l := New("l", leg("a"), leg("b"))
	d := drive(t, l, Counts{})
	for _, x := range l.Legs {
		d.open(x)
	}
	d.begin(l, RunPolicy{}, Need{}, Counts{})
	if dec := d.next(); dec.Action != Wait {
		t.Fatalf("got %+v", dec)
	}
	d.health.Adopt(l.Legs[1].Route.Name(), breaker.Shared{Generation: 1, Position: breaker.Closed, Forced: true}, d.now, 0)
	if dec := d.next(); dec.Action != Send || dec.Leg != "b" {
		t.Errorf("after b was forced closed: %+v", dec)
	}
}
