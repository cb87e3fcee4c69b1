package breaker

import (
	"testing"
	"time"

	"belay.dev/belay/internal/runtime/failure"
)

var t0 = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return t0.Add(time.Duration(seconds * float64(time.Second))) }

var (
	success = Result{Outcome: Success}
	blind   = Result{Outcome: Blind, Kind: failure.ServerError, HTTPStatus: 503}
	neutral = Result{Outcome: Neutral, Kind: failure.InvalidRequest}
)

func informed(wait time.Duration) Result {
	return Result{Outcome: Informed, Kind: failure.RateLimited, HTTPStatus: 429, Wait: wait}
}

func quota(wait time.Duration) Result {
	return Result{Outcome: CredentialCooling, Kind: failure.QuotaExhausted, Wait: wait}
}

// run applies results one after the other at t, each of a request that began in the current generation.
func run(cfg Config, s State, t time.Time, results ...Result) State {
	for _, r := range results {
		var generation int64
		s, generation = Begin(cfg, s, t)
		s = Record(cfg, s, Event{Result: r, Generation: generation}, t)
	}
	return s
}

func TestARouteOpensAtExactlyTheThresholdOfConsecutiveBlindFailures(t *testing.T) {
	for _, tc := range []struct {
		name    string
		results []Result
		want    Position
	}{
		{"no failure", nil, Closed},
		{"one", []Result{blind}, Closed},
		{"two", []Result{blind, blind}, Closed},
		{"three", []Result{blind, blind, blind}, Open},
		{"a success in between resets", []Result{blind, blind, success, blind, blind}, Closed},
		{"three after a reset", []Result{blind, blind, success, blind, blind, blind}, Open},
		{"a neutral failure neither counts nor resets", []Result{blind, neutral, blind, neutral, blind}, Open},
		{"neutral failures alone never open", []Result{neutral, neutral, neutral, neutral}, Closed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := run(DefaultConfig(), State{}, t0, tc.results...)
			if got := s.Position(DefaultConfig(), t0); got != tc.want {
				t.Errorf("position = %s, want %s", got, tc.want)
			}
		})
	}
}

func TestInformedFailuresCoolWithoutCountingUnlessConfigured(t *testing.T) {
	cfg := DefaultConfig()
	s := run(cfg, State{}, t0, blind, blind, informed(5*time.Second))
	if s.Failures != 2 || s.Position(cfg, t0) != Cooling {
		t.Errorf("failures %d, position %s; want 2, Cooling", s.Failures, s.Position(cfg, t0))
	}
	if got := s.Position(cfg, at(5)); got != Closed {
		t.Errorf("position at the hint = %s, want Closed", got)
	}
	cfg.InformedTrips = true
	s = run(cfg, State{}, t0, blind, blind, informed(5*time.Second))
	if got := s.Position(cfg, t0); got != Open {
		t.Errorf("with informed: Trip, position = %s, want Open", got)
	}
}

func TestCooldownsDoubleFrom30To900SecondsAndEndInclusively(t *testing.T) {
	cfg := DefaultConfig()
	now := t0
	s := run(cfg, State{}, now, blind, blind, blind)
	for trip, seconds := range []int{30, 60, 120, 240, 480, 900, 900, 900} {
		end := now.Add(time.Duration(seconds) * time.Second)
		if got := s.Position(cfg, end.Add(-time.Nanosecond)); got != Open {
			t.Fatalf("trip %d: position just before %d s = %s, want Open", trip+1, seconds, got)
		}
		if got := s.Position(cfg, end); got != HalfOpen {
			t.Fatalf("trip %d: position at %d s = %s, want HalfOpen", trip+1, seconds, got)
		}
		if s.Trips != trip+1 {
			t.Fatalf("trips = %d, want %d", s.Trips, trip+1)
		}
		now = end
		s = run(cfg, s, now, blind)
	}
}

func TestAZeroBaseCooldownDisablesOpening(t *testing.T) {
	cfg := DefaultConfig()
	cfg.BaseCooldown = 0
	s := run(cfg, State{}, t0, blind, blind, blind, blind, blind)
	if got := Allow(cfg, s, t0); !got.Allowed || got.Position != Closed {
		t.Errorf("verdict = %+v, want allowed and Closed", got)
	}
}

func TestTheOutcomeOfAProbeDecides(t *testing.T) {
	cfg := DefaultConfig()
	halfOpen := run(cfg, State{}, t0, blind, blind, blind)
	for _, tc := range []struct {
		name      string
		result    Result
		want      Position
		wantTrips int
		wantUntil time.Time
		wantNext  bool // whether the next request is allowed at once
	}{
		{"success closes and forgets the trips", success, Closed, 0, time.Time{}, true},
		{"a blind failure opens for the next step", blind, Open, 2, at(90), false},
		{"a neutral failure frees the slot", neutral, HalfOpen, 1, time.Time{}, true},
		{"an informed failure frees the slot after its own time", informed(7 * time.Second), Cooling, 1, at(37), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := run(cfg, halfOpen, at(30), tc.result)
			v := Allow(cfg, s, at(30))
			if v.Position != tc.want || s.Trips != tc.wantTrips || !v.Until.Equal(tc.wantUntil) || v.Allowed != tc.wantNext {
				t.Errorf("got %+v, trips %d; want %s, trips %d, until %s, allowed %t", v, s.Trips, tc.want, tc.wantTrips, tc.wantUntil, tc.wantNext)
			}
		})
	}
}

func TestACooledHalfOpenRouteStillNeedsAProbe(t *testing.T) {
	cfg := DefaultConfig()
	s := run(cfg, State{}, t0, blind, blind, blind)
	s = run(cfg, s, at(30), informed(7*time.Second))
	if v := Allow(cfg, s, at(37)); !v.Probe || v.Position != HalfOpen {
		t.Errorf("after the route's own time the verdict is %+v, want a probe", v)
	}
}

func TestARejectedCredentialIsRememberedButNeutral(t *testing.T) {
	cfg := DefaultConfig()
	rejected := ResultOf(&failure.Failure{Kind: failure.AuthError, HTTPStatus: 401})
	s := run(cfg, State{}, t0, blind, blind, rejected)
	if s.Failures != 2 || !s.LastFailure.BlamesConfiguration() || s.LastFailure.HTTPStatus != 401 || s.Position(cfg, t0) != Closed {
		t.Errorf("got %+v", s)
	}
	if s = run(cfg, State{}, t0, neutral); s != (State{}) {
		t.Errorf("a failure that says nothing about the route left %+v", s)
	}
}

func TestOneProbeAtATimeAndALostOneExpires(t *testing.T) {
	cfg := DefaultConfig()
	s := run(cfg, State{}, t0, blind, blind, blind)
	s, lost := Begin(cfg, s, at(30))
	if v := Allow(cfg, s, at(31)); v.Allowed || !v.Until.Equal(at(30).Add(cfg.ProbeLease)) {
		t.Errorf("during a probe the verdict is %+v, want denied until the lease ends", v)
	}
	afterLease := at(30).Add(cfg.ProbeLease)
	if v := Allow(cfg, s, afterLease); !v.Allowed || !v.Probe {
		t.Fatalf("after the lease the verdict is %+v, want a new probe", v)
	}
	s, second := Begin(cfg, s, afterLease)
	s = Record(cfg, s, Event{Result: success, Generation: lost}, afterLease)
	if got := s.Position(cfg, afterLease); got != HalfOpen {
		t.Errorf("the lost probe's late success moved the breaker to %s", got)
	}
	s = Record(cfg, s, Event{Result: success, Generation: second}, afterLease)
	if got := s.Position(cfg, afterLease); got != Closed {
		t.Errorf("after the second probe the position is %s, want Closed", got)
	}
}

func TestResultsOfAnEarlierGenerationAreDiscarded(t *testing.T) {
	cfg := DefaultConfig()
	s, slow := Begin(cfg, State{}, t0)
	s = run(cfg, s, t0, blind, blind, blind)
	for name, r := range map[string]Result{"success": success, "blind": blind, "informed": informed(time.Hour), "neutral": neutral} {
		if got := Record(cfg, s, Event{Result: r, Generation: slow}, at(1)); got != s {
			t.Errorf("a late %s changed the state from %+v to %+v", name, s, got)
		}
	}
}

func TestSuccessWhileClosedIsANoOpBeyondTheReset(t *testing.T) {
	cfg := DefaultConfig()
	got := run(cfg, State{}, t0, success)
	if want := (State{LastSuccessTime: t0}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	cooling := run(cfg, State{}, t0, informed(time.Minute))
	_, generation := Begin(cfg, cooling, t0)
	after := Record(cfg, cooling, Event{Result: success, Generation: generation}, at(1))
	if got := after.Position(cfg, at(1)); got != Cooling {
		t.Errorf("a success that overlapped ended the cooling: %s", got)
	}
}

func TestCoolingUsesTheHintOrDoublesWithoutOne(t *testing.T) {
	cfg := DefaultConfig()
	for _, tc := range []struct {
		name   string
		result Result
		// want are the ends of the cooling, in seconds after each of the failures in a row.
		want []float64
	}{
		{"a hint is taken as it is", informed(1500 * time.Millisecond), []float64{1.5, 1.5, 1.5}},
		{"a rate limit without a hint", informed(0), []float64{2, 4, 8, 16, 32, 60, 60}},
		{"a quota with a reset time", quota(2 * time.Hour), []float64{7200}},
		{"a quota without one", quota(0), []float64{60, 120, 240, 480, 960, 1920, 3600, 3600}},
		{"a hint beyond a day is cut", quota(48 * time.Hour), []float64{86400}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now, s := t0, State{}
			for i, seconds := range tc.want {
				s = run(cfg, s, now, tc.result)
				end := now.Add(time.Duration(seconds * float64(time.Second)))
				if !s.CoolUntil.Equal(end) {
					t.Fatalf("failure %d: cools for %s, want %v s", i+1, s.CoolUntil.Sub(now), seconds)
				}
				now = end
			}
		})
	}
}

func TestCoolingIsOnlyExtendedAndSuccessEndsTheDoubling(t *testing.T) {
	cfg := DefaultConfig()
	s := run(cfg, State{}, t0, informed(time.Minute), informed(time.Second))
	if !s.CoolUntil.Equal(at(60)) {
		t.Errorf("a shorter hint moved the end to %s, want %s", s.CoolUntil, at(60))
	}
	s = run(cfg, State{}, t0, informed(0), informed(0), informed(0))
	s = run(cfg, s, at(100), success)
	s = run(cfg, s, at(100), informed(0))
	if !s.CoolUntil.Equal(at(102)) {
		t.Errorf("after a success the cooling ends at %s, want %s", s.CoolUntil, at(102))
	}
}

func TestAClockThatJumpedBackLocksNoRouteOut(t *testing.T) {
	cfg := DefaultConfig()
	// The trip and the cooling were seen by a clock ten days ahead.
	ahead := at(10 * 86400)
	open := run(cfg, State{}, ahead, blind, blind, blind).Observe(cfg, t0)
	if got := open.Position(cfg, at(900)); got != HalfOpen {
		t.Errorf("900 s later the route is %s, want HalfOpen", got)
	}
	cooling := run(cfg, State{}, ahead, informed(time.Hour)).Observe(cfg, t0)
	if got := cooling.Position(cfg, at(86400)); got != Closed {
		t.Errorf("a day later the route is %s, want Closed", got)
	}
}

func TestEveryKindHasAnOutcome(t *testing.T) {
	want := map[failure.Kind]Outcome{
		failure.Network: Blind, failure.Timeout: Blind, failure.ServerError: Blind, failure.StreamTruncated: Blind,
		failure.StreamMalformed: Blind, failure.StreamStalled: Blind,
		failure.RateLimited: Informed, failure.Overloaded: Informed,
		failure.QuotaExhausted: CredentialCooling, failure.Billing: CredentialCooling,
		failure.ModelNotFound: Neutral, failure.AuthError: Neutral, failure.PermissionDenied: Neutral,
		failure.InvalidRequest: Neutral, failure.ContextLengthExceeded: Neutral, failure.OutputTruncated: Neutral,
		failure.ContentFiltered: Neutral, failure.EmptyResponse: Neutral, failure.Unknown: Neutral, failure.Cancelled: Neutral,
	}
	for kind, outcome := range want {
		if got := ResultOf(&failure.Failure{Kind: kind}).Outcome; got != outcome {
			t.Errorf("%s is %s, want %s", kind, got, outcome)
		}
	}
	if got := ResultOf(nil).Outcome; got != Success {
		t.Errorf("an answer is %s, want Success", got)
	}
}

func TestAllowAndRecordDoNotAllocate(t *testing.T) {
	cfg := DefaultConfig()
	s := State{}
	if n := testing.AllocsPerRun(100, func() {
		if Allow(cfg, s, t0).Allowed {
			_, generation := Begin(cfg, s, t0)
			s = Record(cfg, s, Event{Result: blind, Generation: generation}, t0)
		}
	}); n != 0 {
		t.Errorf("%v allocations for each request, want 0", n)
	}
}

func BenchmarkAllowAndRecord(b *testing.B) {
	cfg := DefaultConfig()
	s := State{}
	b.ReportAllocs()
	for b.Loop() {
		if !Allow(cfg, s, t0).Allowed {
			b.Fatal("a closed route must be allowed")
		}
		_, generation := Begin(cfg, s, t0)
		s = Record(cfg, s, Event{Result: success, Generation: generation}, t0)
	}
}
