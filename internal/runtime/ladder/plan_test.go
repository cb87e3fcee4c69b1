package ladder

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"belay.dev/belay/internal/runtime/breaker"
	"belay.dev/belay/internal/runtime/failure"
)

func TestAPlanNamesTheReasonOfEachLegThatItLeavesOut(t *testing.T) {
	run := RunPolicy{SecurityClass: Internal}
	need := Need{InputTokens: 90_000, Capabilities: []Capability{Tools}}
	good := class(Confidential)
	for _, tc := range []struct {
		name   string
		leg    Leg
		policy RunPolicy
		want   SkipReason
	}{
		{"a leg that may serve", leg("x", good), run, ""},
		{"drained", leg("x", good, drained), run, DrainedLeg},
		{"not selected", leg("x", good), RunPolicy{Legs: []string{"y"}}, NotSelected},
		{"not selected and drained: the run's own choice comes first", leg("x", drained), RunPolicy{Legs: []string{"y"}}, NotSelected},
		{"public leg, internal run", leg("x"), run, ClassTooLow},
		{"a class of its own invention covers nothing", leg("x", class("Secret")), RunPolicy{SecurityClass: Public}, ClassTooLow},
		{"metered, denied", leg("x", good, metered, priced), run, MeteredDenied},
		{"metered, allowed", leg("x", good, metered, priced), RunPolicy{Metered: AllowMetered}, ""},
		{"metered, allowed, unpriced", leg("x", metered), RunPolicy{Metered: AllowMetered}, ""},
		{"metered, unpriced under a cost limit", leg("x", metered), RunPolicy{Metered: AllowMetered, CostLimited: true}, NoPrice},
		{"included legs need no price", leg("x"), RunPolicy{CostLimited: true}, ""},
		{"credential missing", leg("x", good, credential(CredentialMissing)), run, SkipCredentialMissing},
		{"credential not mounted", leg("x", good, credential(CredentialNotMounted)), run, SkipCredentialNotMounted},
		{"credential invalid", leg("x", good, credential(CredentialInvalid)), run, SkipCredentialInvalid},
		{"no tools", leg("x", good, can(Images)), run, CapabilityMissing},
		// 90,000 and an answer of a quarter of 100,000 are more than 100,000.
		{"window too small", leg("x", good, window(100_000)), run, WindowTooSmall},
		{"window just large enough", leg("x", good, window(120_000)), run, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plan := NewPlan(New("l", tc.leg), tc.policy, need, breaker.NewSet(breaker.DefaultConfig()), t0)
			var got SkipReason
			if len(plan.Skipped) > 0 {
				got = plan.Skipped[0].Reason
				if plan.Skipped[0].Message == "" {
					t.Error("a skip without a message")
				}
			}
			if got != tc.want || (len(plan.Legs) == 1) != (tc.want == "") {
				t.Errorf("reason %q, legs %v; want %q", got, plan.Names(), tc.want)
			}
		})
	}
}

func TestAPlanSkipsRoutesByHealthWithTheTimeThatIsLeft(t *testing.T) {
	a, b, c := leg("a"), leg("b"), leg("c")
	l := New("l", a, b, c)
	l.UID, l.Generation = "u", 3
	d := drive(t, l, Counts{})
	d.open(a)
	p, _ := d.health.Begin(b.Route.Name(), d.now)
	d.health.Finish(p, breaker.ResultOf(failsFor(failure.RateLimited, 40e9)), d.now)
	got := NewPlan(l, RunPolicy{}, Need{}, d.health, at(3))
	want := Plan{
		PlannerVersion: 1, Ladder: "l", LadderUID: "u", Generation: 3,
		Legs: []PlannedLeg{{Name: "c", Route: c.Route.Name(), Position: breaker.Closed}},
		Skipped: []Skip{
			{Leg: "a", Reason: RouteOpen, Until: at(30), Message: "is open for another 27s after ServerError"},
			{Leg: "b", Reason: RouteCooling, Until: at(40), Message: "is cooling for another 37s after RateLimited, as the provider asked"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestANewRunThatContradictsItsLadderIsToldWhatToSet(t *testing.T) {
	l := New("prod", leg("a", metered), leg("b", class(Restricted)), leg("c"))
	for _, tc := range []struct {
		name   string
		policy RunPolicy
		legs   []string
		says   []string
	}{
		{"everything allowed", RunPolicy{Metered: AllowMetered}, nil, nil},
		{"metered denied by default", RunPolicy{}, []string{"a"}, []string{"routing.metered: Allow"}},
		{"the metered leg is excluded", RunPolicy{Legs: []string{"b", "c"}}, nil, nil},
		{"class too low", RunPolicy{Metered: AllowMetered, SecurityClass: Restricted}, []string{"a", "c"}, []string{"securityClass is Public", "routing.legs"}},
		{"a name that does not exist", RunPolicy{Legs: []string{"c", "cc"}}, []string{"cc"}, []string{`"cc"`, "a, b, c"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Conflicts(l, tc.policy)
			var legs []string
			for _, c := range got {
				legs = append(legs, c.Leg)
			}
			if diff := cmp.Diff(tc.legs, legs); diff != "" {
				t.Error(diff)
			}
			for _, s := range tc.says {
				if msg := ConflictMessage(got); !strings.Contains(msg, s) {
					t.Errorf("message %q does not say %q", msg, s)
				}
			}
		})
	}
	if got := Conflicts(New("l", leg("a", drained, metered)), RunPolicy{}); len(got) != 0 {
		t.Errorf("a drained leg is no conflict, got %+v", got)
	}
}

func TestTheSameInputsGiveTheSamePlanTwice(t *testing.T) {
	l := New("l", leg("a"), leg("b", window(10_000)), leg("c", drained))
	d := drive(t, l, Counts{})
	d.open(l.Legs[0])
	need := Need{InputTokens: 50_000}
	one := NewPlan(l, RunPolicy{}, need, d.health, at(1))
	two := NewPlan(l, RunPolicy{}, need, d.health, at(1))
	if diff := cmp.Diff(one, two); diff != "" {
		t.Error(diff)
	}
}

func TestSecurityClassesAreOrdered(t *testing.T) {
	order := []SecurityClass{Public, Internal, Confidential, Restricted}
	for i, have := range order {
		for j, data := range order {
			if got := have.Covers(data); got != (i >= j) {
				t.Errorf("%s covers %s: %t", have, data, got)
			}
		}
	}
	if !SecurityClass("").Covers(Public) || SecurityClass("Restricted ").Covers(Public) || Restricted.Covers("Nonsense") {
		t.Error("unset is Public, and a class that does not exist neither covers nor is covered")
	}
}

func TestTheDefaultOutputCapIsAQuarterOfTheWindowAtMost32768(t *testing.T) {
	for window, want := range map[int64]int64{4_096: 1_024, 128_000: 32_000, 200_000: 32_768} {
		if got := (Leg{ContextWindow: window}).OutputCap(); got != want {
			t.Errorf("window %d: %d, want %d", window, got, want)
		}
	}
	if got := (Leg{ContextWindow: 128_000, MaxOutputTokens: 9}).OutputCap(); got != 9 {
		t.Errorf("a declared cap of 9 became %d", got)
	}
}

func BenchmarkPlanAndSkipOfAnOpenLeg(b *testing.B) {
	l := New("l", leg("a"), leg("b"))
	health := breaker.NewSet(l.Breaker)
	for range 3 {
		p, _ := health.Begin(l.Legs[0].Route.Name(), t0)
		health.Finish(p, breaker.ResultOf(fails(failure.Timeout)), t0)
	}
	need := Need{InputTokens: 1000}
	b.ReportAllocs()
	for b.Loop() {
		w := NewWalk(l, NewPlan(l, RunPolicy{}, need, health, t0), need, Counts{})
		if d := w.Next(health, t0, noJitter); d.Leg != "b" {
			b.Fatal(d)
		}
	}
}
