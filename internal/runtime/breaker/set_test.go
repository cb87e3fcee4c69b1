package breaker

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"belay.dev/belay/internal/runtime/route"
)

func routeOf(model, secret string) route.Route {
	return route.Route{BaseURL: "https://api.example/v1", Dialect: route.OpenAIChat, Model: model, SecretName: secret, SecretKey: "key"}
}

var (
	alpha = routeOf("alpha", "one")
	beta  = routeOf("beta", "one")
	gamma = routeOf("gamma", "two")
)

func newSet() *Set {
	s := NewSet(DefaultConfig())
	s.Track(alpha, beta, gamma)
	return s
}

// ask sends a request and ends it, and fails the test if it may not be sent.
func ask(t *testing.T, s *Set, r route.Route, now time.Time, results ...Result) []Transition {
	t.Helper()
	var changed []Transition
	for _, res := range results {
		p, ok := s.Begin(r.Name(), now)
		if !ok {
			t.Fatalf("route %s may not be asked at %s: %+v", r.Name(), now, s.Health(r.Name(), now))
		}
		changed = append(changed, s.Finish(p, res, now)...)
	}
	return changed
}

func TestATripIsToldOnceWithItsEnd(t *testing.T) {
	s := newSet()
	got := ask(t, s, alpha, t0, blind, blind, blind)
	want := []Transition{{Route: alpha.Name(), From: Closed, To: Open, Until: at(30), Kind: blind.Kind}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, ok := s.Begin(alpha.Name(), at(29)); ok {
		t.Error("an open route was asked")
	}
}

func TestASpentQuotaCoolsEveryRouteOfItsCredentialAndNoOther(t *testing.T) {
	s := newSet()
	ask(t, s, alpha, t0, quota(time.Hour))
	for _, r := range []route.Route{alpha, beta} {
		if v := s.Health(r.Name(), at(1)); v.Allowed || v.Position != Cooling || !v.Until.Equal(at(3600)) {
			t.Errorf("%s: %+v, want cooling for an hour", r.Model, v)
		}
	}
	if v := s.Health(gamma.Name(), at(1)); !v.Allowed {
		t.Errorf("another credential's route: %+v, want allowed", v)
	}
}

func TestRoutesWithoutACredentialShareNone(t *testing.T) {
	s := NewSet(DefaultConfig())
	one, two := routeOf("one", ""), routeOf("two", "")
	one.SecretKey, two.SecretKey = "", ""
	s.Track(one, two)
	ask(t, s, one, t0, quota(time.Hour))
	if v := s.Health(two.Name(), t0); !v.Allowed {
		t.Errorf("%+v, want allowed", v)
	}
}

func TestTheStricterOfLocalAndSharedIsObeyed(t *testing.T) {
	for _, tc := range []struct {
		name   string
		local  []Result
		shared Shared
		now    time.Time
		want   Verdict
	}{
		{"both closed", nil, Shared{Generation: 1, Position: Closed}, t0,
			Verdict{Position: Closed, Allowed: true}},
		{"local open, shared closed", []Result{blind, blind, blind}, Shared{Generation: 1, Position: Closed}, at(1),
			Verdict{Position: Open, Until: at(30), Kind: blind.Kind}},
		{"local closed, shared open", nil, Shared{Generation: 2, Position: Open, Trips: 1, OpenUntil: at(30)}, at(1),
			Verdict{Position: Open, Until: at(30)}},
		{"shared cooling ends by time", nil, Shared{Generation: 2, Position: Cooling, CoolUntil: at(10)}, at(10),
			Verdict{Position: Closed, Allowed: true}},
		{"both cooling: the later end", []Result{informed(time.Minute)}, Shared{Generation: 1, Position: Cooling, CoolUntil: at(10)}, at(1),
			Verdict{Position: Cooling, Until: at(60), Kind: "RateLimited"}},
		{"half-open with another's probe", nil, Shared{Generation: 3, Position: HalfOpen, ProbeExpires: at(90)}, at(1),
			Verdict{Position: HalfOpen, Until: at(60)}},
		{"half-open with our probe", nil, Shared{Generation: 3, Position: HalfOpen, ProbeToken: "t", ProbeExpires: at(90)}, at(1),
			Verdict{Position: HalfOpen, Allowed: true, Probe: true}},
		{"our probe has expired", nil, Shared{Generation: 3, Position: HalfOpen, ProbeToken: "t", ProbeExpires: at(1)}, at(1),
			Verdict{Position: HalfOpen, Until: at(60)}},
		{"forced open without an end", nil, Shared{Generation: 3, Position: Open, Forced: true}, at(86400),
			Verdict{Position: Open}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSet()
			s.Adopt(alpha.Name(), Shared{Generation: tc.shared.Generation, Position: Closed, ProbeExpires: at(-1)}, t0, 0)
			ask(t, s, alpha, t0, tc.local...)
			s.Adopt(alpha.Name(), tc.shared, t0, 0)
			if diff := cmp.Diff(tc.want, s.Health(alpha.Name(), tc.now)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestANewSharedGenerationResetsTheOwnCount(t *testing.T) {
	s := newSet()
	s.Adopt(alpha.Name(), Shared{Generation: 1, Position: Closed}, t0, 0)
	ask(t, s, alpha, t0, blind, blind)
	s.Adopt(alpha.Name(), Shared{Generation: 2, Position: Cooling, CoolUntil: at(1)}, t0, 0)
	if got := s.Level(alpha.Name()); got.ConsecutiveBlind != 0 || got.Generation != 2 {
		t.Errorf("level %+v, want no failures in generation 2", got)
	}
	ask(t, s, alpha, at(1), blind, blind)
	if v := s.Health(alpha.Name(), at(1)); !v.Allowed {
		t.Errorf("two failures of the new generation opened the route: %+v", v)
	}
}

func TestOnlyAProvenRouteOrAnOperatorEndsTheOwnCooling(t *testing.T) {
	cool := func(t *testing.T) *Set {
		s := newSet()
		s.Adopt(alpha.Name(), Shared{Generation: 1, Position: Closed}, t0, 0)
		ask(t, s, alpha, t0, informed(5*time.Hour))
		return s
	}
	for _, tc := range []struct {
		name  string
		views []Shared
		want  bool
	}{
		{"the capped shared cooling ends", []Shared{{Generation: 2, Position: Cooling, CoolUntil: at(900)}, {Generation: 3, Position: Closed}}, false},
		{"a probe elsewhere succeeded", []Shared{{Generation: 2, Position: Open, OpenUntil: at(30)}, {Generation: 3, Position: HalfOpen}, {Generation: 4, Position: Closed}}, true},
		{"an operator forced it closed", []Shared{{Generation: 2, Position: Closed, Forced: true}}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := cool(t)
			for _, v := range tc.views {
				s.Adopt(alpha.Name(), v, at(1000), 0)
			}
			if got := s.Health(alpha.Name(), at(1000)).Allowed; got != tc.want {
				t.Errorf("allowed = %t, want %t", got, tc.want)
			}
		})
	}
}

func TestAnOldViewIsIgnoredAndANewObjectStartsOver(t *testing.T) {
	s := newSet()
	s.Adopt(alpha.Name(), Shared{UID: "x", Generation: 7, Position: Open, OpenUntil: at(30)}, t0, 0)
	s.Adopt(alpha.Name(), Shared{UID: "x", Generation: 6, Position: Closed}, t0, 0)
	if s.Health(alpha.Name(), t0).Allowed {
		t.Error("an old view closed the route")
	}
	s.Adopt(alpha.Name(), Shared{UID: "y", Generation: 1, Position: Closed}, t0, 0)
	if !s.Health(alpha.Name(), t0).Allowed {
		t.Error("the view of a new object was ignored")
	}
}

func TestTheClustersProbeIsSentOnceAndItsResultIsPublishedWithTheToken(t *testing.T) {
	for _, tc := range []struct {
		result Result
		want   ProbeResult
	}{{success, ProbeSucceeded}, {blind, ProbeFailed}, {neutral, ProbeReleased}, {informed(time.Second), ProbeReleased}} {
		s := newSet()
		s.Adopt(alpha.Name(), Shared{Generation: 3, Position: HalfOpen, ProbeToken: "t", ProbeExpires: at(90)}, t0, 0)
		p, ok := s.Begin(alpha.Name(), at(1))
		if !ok || !p.Probe {
			t.Fatalf("permit %+v, %t; want a probe", p, ok)
		}
		if l := s.Level(alpha.Name()); l.ProbeToken != "t" || l.ProbeResult != "" {
			t.Errorf("under way the level is %+v, want token t without a result", l)
		}
		if _, again := s.Begin(alpha.Name(), at(1)); again {
			t.Error("the probe was sent twice")
		}
		s.Finish(p, tc.result, at(2))
		if l := s.Level(alpha.Name()); l.ProbeToken != "t" || l.ProbeResult != tc.want {
			t.Errorf("after %s the level is %+v, want %s", tc.result.Outcome, l, tc.want)
		}
		if _, again := s.Begin(alpha.Name(), at(3)); again {
			t.Errorf("after %s another request was sent before the shared breaker moved", tc.result.Outcome)
		}
	}
}

func TestWithoutAKeeperARunProbesByItselfAfterTheGrace(t *testing.T) {
	// Open until 30 s, first cooldown 30 s, so that the grace is a minute; a jitter of a half adds 30 s.
	open := Shared{Generation: 2, Position: Open, Trips: 1, OpenUntil: at(30)}
	s := newSet()
	s.Adopt(alpha.Name(), open, t0, 0.5)
	if v := s.Health(alpha.Name(), at(119.9)); v.Allowed || !v.Until.Equal(at(120)) {
		t.Fatalf("before the grace: %+v, want denied until 120 s", v)
	}
	p, ok := s.Begin(alpha.Name(), at(120))
	if !ok || !p.Probe {
		t.Fatalf("after the grace: %+v, %t; want a probe", p, ok)
	}
	if _, second := s.Begin(alpha.Name(), at(121)); second {
		t.Error("a second probe was sent while the first is under way")
	}
	s.Finish(p, blind, at(121))
	if v := s.Health(alpha.Name(), at(122)); v.Allowed {
		t.Errorf("after a failed probe: %+v, want denied", v)
	}
	// The next one after a doubled grace with the same share of jitter: 120 s + 60 s.
	if v := s.Health(alpha.Name(), at(301)); !v.Allowed {
		t.Errorf("at the next probe: %+v, want allowed", v)
	}
	ask(t, s, alpha, at(301), success)
	if v := s.Health(alpha.Name(), at(302)); !v.Allowed || v.Probe {
		t.Errorf("after a proof: %+v, want closed", v)
	}
	s.Adopt(alpha.Name(), Shared{Generation: 3, Position: Open, Trips: 2, OpenUntil: at(400)}, at(340), 0)
	if v := s.Health(alpha.Name(), at(341)); v.Allowed {
		t.Errorf("the keeper came back and opened the route, but %+v", v)
	}
}

func TestARunThatMeetsAnOldTripSpreadsItsProbe(t *testing.T) {
	s := newSet()
	s.Adopt(alpha.Name(), Shared{Generation: 2, Position: Open, Trips: 1, OpenUntil: at(-7200)}, t0, 0.5)
	if v := s.Health(alpha.Name(), at(29)); v.Allowed {
		t.Error("the probe was not spread")
	}
	if v := s.Health(alpha.Name(), at(30)); !v.Allowed {
		t.Errorf("%+v, want a probe after half a minute of jitter", v)
	}
}

func TestASnapshotSurvivesTheLedgerAndAgesByTheClock(t *testing.T) {
	s := newSet()
	s.Adopt(gamma.Name(), Shared{Generation: 4, Position: Open, Trips: 1, OpenUntil: at(30)}, t0, 0)
	ask(t, s, alpha, t0, blind, blind, blind)
	ask(t, s, beta, t0, informed(time.Minute))
	b, err := json.Marshal(s.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	var snap Snapshot
	if err := json.Unmarshal(b, &snap); err != nil {
		t.Fatal(err)
	}
	restored := newSet()
	restored.Restore(snap)
	for _, r := range []route.Route{alpha, beta} {
		if diff := cmp.Diff(s.Health(r.Name(), at(10)), restored.Health(r.Name(), at(10))); diff != "" {
			t.Errorf("%s: %s", r.Model, diff)
		}
	}
	if restored.Health(gamma.Name(), at(10)).Allowed {
		t.Error("the shared trip was forgotten")
	}
	if v := restored.Health(alpha.Name(), at(30)); !v.Probe {
		t.Errorf("30 s later: %+v, want a probe", v)
	}
}

func TestARestoredProbeHoldsNoSlot(t *testing.T) {
	s := newSet()
	ask(t, s, alpha, t0, blind, blind, blind)
	if _, ok := s.Begin(alpha.Name(), at(30)); !ok {
		t.Fatal("no probe")
	}
	restored := newSet()
	restored.Restore(s.Snapshot())
	if v := restored.Health(alpha.Name(), at(31)); !v.Probe {
		t.Errorf("%+v, want a new probe: the old one died with its process", v)
	}
}

func TestReplayedReceiptsTeachWhatTheyTaughtAtFirst(t *testing.T) {
	live, replayed := newSet(), newSet()
	for i, r := range []Result{blind, blind, blind} {
		ask(t, live, alpha, at(float64(i)), r)
		replayed.Replay(alpha.Name(), r, at(float64(i)))
	}
	ask(t, live, alpha, at(40), blind)
	replayed.Replay(alpha.Name(), blind, at(40))
	want, got := live.Health(alpha.Name(), at(50)), replayed.Health(alpha.Name(), at(50))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if !got.Until.Equal(at(100)) {
		t.Errorf("open until %s, want %s", got.Until, at(100))
	}
}

func BenchmarkSkipOfAnOpenRoute(b *testing.B) {
	s := newSet()
	for range 3 {
		p, _ := s.Begin(alpha.Name(), t0)
		s.Finish(p, blind, t0)
	}
	name := alpha.Name()
	b.ReportAllocs()
	for b.Loop() {
		if s.Health(name, at(1)).Allowed {
			b.Fatal("open")
		}
	}
}
