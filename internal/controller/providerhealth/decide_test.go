package providerhealth

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"belay.dev/belay/api/v1alpha1"
	"belay.dev/belay/internal/contract"
	"belay.dev/belay/internal/runtime/report"
	"belay.dev/belay/internal/runtime/route"
)

var t0 = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return t0.Add(time.Duration(seconds) * time.Second) }

// aLadder has the included legs a and b, both accepted.
func aLadder(name string) *v1alpha1.RouteLadder {
	l := &v1alpha1.RouteLadder{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Generation: 1}}
	l.Status.ObservedGeneration = 1
	for _, leg := range []string{"a", "b"} {
		l.Spec.Providers = append(l.Spec.Providers, v1alpha1.Provider{
			Name: leg, Dialect: v1alpha1.DialectOpenAIChat, BaseURL: "https://" + leg + ".example/v1",
			Credential: &v1alpha1.Credential{SecretRef: v1alpha1.SecretKeyReference{Name: "keys", Key: leg}},
		})
		l.Spec.Legs = append(l.Spec.Legs, v1alpha1.Leg{Name: leg, Provider: leg, Model: "m", ContextWindow: 128_000, Billing: v1alpha1.BillingIncluded})
		l.Status.Legs = append(l.Status.Legs, v1alpha1.LegStatus{Name: leg, State: v1alpha1.LegAccepted})
	}
	return l
}

func routeName(l *v1alpha1.RouteLadder, leg int) route.Name {
	return contract.RouteOf(l, l.Spec.Legs[leg]).Name()
}

// aRun works in its first epoch and reports blind failures of leg a.
func aRun(l *v1alpha1.RouteLadder, uid string, failures int32) *v1alpha1.AgentRun {
	run := &v1alpha1.AgentRun{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "run-" + uid, UID: types.UID(uid), CreationTimestamp: metav1.NewTime(t0)}}
	run.Spec.LadderRef.Name = l.Name
	run.Status.Epoch = 1
	meta.SetStatusCondition(&run.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionPodReady, Status: metav1.ConditionTrue, Reason: "PodReady"})
	run.Status.Runner = &v1alpha1.RunnerStatus{Epoch: 1, Routes: []v1alpha1.RouteLevel{{
		Route: string(routeName(l, 0)), Generation: ptr.To[int64](0), ConsecutiveBlind: ptr.To(failures),
		LastKind: "ServerError", LastHTTPStatus: 503, LastFailureTime: &metav1.MicroTime{Time: t0},
	}}}
	return run
}

// factsAbout is what a pass over the route of leg a knows.
func factsAbout(now time.Time, health *v1alpha1.ProviderHealth, l *v1alpha1.RouteLadder, runs ...*v1alpha1.AgentRun) *facts {
	f := &facts{now: now, name: routeName(aLadder("l"), 0), health: health}
	if l == nil {
		return f
	}
	if lf, ok := ladderFactsOf(l, f.name); ok {
		f.ladders = append(f.ladders, lf)
		for _, run := range runs {
			if r, ok := lf.runFacts(run, f.name); ok {
				f.runs = append(f.runs, r)
			}
		}
	}
	return f
}

func healthWith(s v1alpha1.ProviderHealthStatus) *v1alpha1.ProviderHealth {
	return &v1alpha1.ProviderHealth{ObjectMeta: metav1.ObjectMeta{Generation: 2}, Status: s}
}

func availableOf(s v1alpha1.ProviderHealthStatus) string {
	c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionAvailable)
	return fmt.Sprintf("%s/%s: %s", c.Status, c.Reason, c.Message)
}

func TestAnAcceptedLegsRouteGetsAnObject(t *testing.T) {
	l := aLadder("l")
	d := decide(factsAbout(t0, nil, l))
	want := &v1alpha1.RouteIdentity{Host: "a.example", BaseURL: "https://a.example/v1", Dialect: v1alpha1.DialectOpenAIChat, Model: "m",
		SecretRef: &v1alpha1.SecretKeyReference{Name: "keys", Key: "a"}}
	if diff := cmp.Diff(want, d.create); diff != "" {
		t.Error(diff)
	}
	if d.status.State != v1alpha1.HealthClosed || availableOf(d.status) != "True/Available: runs may use the route" {
		t.Errorf("status %+v", d.status)
	}
	leftOut, unseen := aLadder("l"), aLadder("l")
	leftOut.Status.Legs[0].State = v1alpha1.LegLeftOut
	unseen.Generation = 2
	for name, l := range map[string]*v1alpha1.RouteLadder{"left out": leftOut, "not judged yet": unseen, "no ladder": nil} {
		if d := decide(factsAbout(t0, nil, l)); !d.ignore {
			t.Errorf("%s: %+v, want nothing done", name, d)
		}
	}
}

func TestTheStatusTellsATripToPeopleAndMachines(t *testing.T) {
	l := aLadder("l")
	d := decide(factsAbout(at(1), healthWith(v1alpha1.ProviderHealthStatus{}), l, aRun(l, "u", 3)))
	want := v1alpha1.ProviderHealthStatus{
		Conditions: []metav1.Condition{{
			Type: "Available", Status: metav1.ConditionFalse, Reason: "Open", ObservedGeneration: 2, LastTransitionTime: metav1.NewTime(at(1)),
			Message: "no run asks the route until 2026-03-01T03:00:31Z, after ServerError (HTTP 503) (opened once since it last worked); then one run probes it",
		}},
		ObservedGeneration: 2, State: v1alpha1.HealthOpen, Generation: ptr.To[int64](1), Failures: ptr.To[int32](3), Trips: ptr.To[int32](1),
		OpenedTime: &metav1.MicroTime{Time: at(1)}, OpenUntil: &metav1.MicroTime{Time: at(31)}, Until: "2026-03-01T03:00:31Z",
		LastFailure: &v1alpha1.RouteFailure{Kind: "ServerError", HTTPStatus: 503, Time: &metav1.MicroTime{Time: t0}}, Runs: ptr.To[int32](1),
	}
	if diff := cmp.Diff(want, d.status); diff != "" {
		t.Error(diff)
	}
	if !d.next.Equal(at(31)) || len(d.transitions) != 1 {
		t.Errorf("next %s, transitions %+v", d.next, d.transitions)
	}
}

func TestAStoredStatusIsReadBackAsItWasWritten(t *testing.T) {
	l := aLadder("l")
	status := v1alpha1.ProviderHealthStatus{}
	for _, now := range []time.Time{at(1), at(1), at(31), at(31), at(40)} {
		d := decide(factsAbout(now, healthWith(status), l, aRun(l, "u", 3)))
		again := decide(factsAbout(now, healthWith(d.status), l, aRun(l, "u", 3)))
		if diff := cmp.Diff(d.status, again.status); diff != "" || len(again.transitions) != 0 {
			t.Errorf("a second pass at %s changed the status: %s", now, diff)
		}
		status = d.status
	}
	if status.State != v1alpha1.HealthHalfOpen || status.Probe == nil || status.Probe.RunUID != "u" || status.Probe.RunName != "run-u" {
		t.Errorf("status %+v, want half-open with run u's probe", status)
	}
	if got := availableOf(status); got != "False/HalfOpen: run run-u probes the route; all others stay away until it has" {
		t.Errorf("condition %q", got)
	}
}

func TestAnOverrideIsRememberedByTheConditionsReason(t *testing.T) {
	l := aLadder("l")
	h := healthWith(v1alpha1.ProviderHealthStatus{})
	h.Spec.Override = &v1alpha1.HealthOverride{State: v1alpha1.OverrideForcedOpen, Reason: "maintenance"}
	h.Status = decide(factsAbout(t0, h, l)).status
	if got := availableOf(h.Status); got != "False/ForcedOpen: an operator keeps all runs away from the route: maintenance" || *h.Status.Generation != 1 {
		t.Errorf("%q in generation %d", got, *h.Status.Generation)
	}
	if d := decide(factsAbout(at(9999), h, l)); *d.status.Generation != 1 || !d.next.IsZero() {
		t.Errorf("a standing override moved on to generation %d, next %s", *d.status.Generation, d.next)
	}
	h.Spec.Override.State = v1alpha1.OverrideForcedClosed
	h.Status = decide(factsAbout(at(9999), h, l)).status
	if got := availableOf(h.Status); got != "True/ForcedClosed: an operator lets all runs use the route: maintenance" || *h.Status.Generation != 2 {
		t.Errorf("%q in generation %d", got, *h.Status.Generation)
	}
	h.Spec.Override.State = v1alpha1.OverrideAuto
	if h.Status = decide(factsAbout(at(9999), h, l)).status; h.Status.State != v1alpha1.HealthClosed || *h.Status.Generation != 3 {
		t.Errorf("withdrawn: %s in generation %d", h.Status.State, *h.Status.Generation)
	}
}

func TestAnObjectOutlivesItsLastLadderByADay(t *testing.T) {
	h := healthWith(v1alpha1.ProviderHealthStatus{})
	d := decide(factsAbout(t0, h, nil))
	if d.remove || d.status.UnreferencedTime == nil || !d.next.Equal(t0.Add(24*time.Hour)) {
		t.Fatalf("decision %+v", d)
	}
	h.Status = d.status
	day := t0.Add(24 * time.Hour)
	for _, tc := range []struct {
		name     string
		now      time.Time
		ladder   *v1alpha1.RouteLadder
		override *v1alpha1.HealthOverride
		remove   bool
		next     time.Time
	}{
		{"a second before the day is over", day.Add(-time.Second), nil, nil, false, day},
		{"after a day", day, nil, nil, true, time.Time{}},
		{"overridden without an end", day, nil, &v1alpha1.HealthOverride{State: v1alpha1.OverrideForcedOpen}, false, time.Time{}},
		{"overridden for an hour more", day, nil, &v1alpha1.HealthOverride{State: v1alpha1.OverrideForcedOpen, Until: &metav1.Time{Time: day.Add(time.Hour)}}, false, day.Add(time.Hour)},
		{"an override that has ended", day, nil, &v1alpha1.HealthOverride{State: v1alpha1.OverrideForcedOpen, Until: &metav1.Time{Time: t0.Add(time.Hour)}}, true, time.Time{}},
		{"a ladder names it again", day, aLadder("l"), nil, false, time.Time{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := h.DeepCopy()
			h.Spec.Override = tc.override
			d := decide(factsAbout(tc.now, h, tc.ladder))
			if d.remove != tc.remove || !d.next.Equal(tc.next) {
				t.Errorf("remove %t, next %s; want %t, %s", d.remove, d.next, tc.remove, tc.next)
			}
			if tc.ladder != nil && d.status.UnreferencedTime != nil {
				t.Error("a route that is named again still counts as unreferenced")
			}
		})
	}
	h.DeletionTimestamp = &metav1.Time{Time: t0}
	if d := decide(factsAbout(t0, h, aLadder("l"))); !d.ignore {
		t.Error("an object that is being deleted was touched")
	}
}

func TestTheMostLenientLadderConfiguresASharedRoute(t *testing.T) {
	with := func(name string, threshold, cooldown int32) ladderFacts {
		l := aLadder(name)
		l.Spec.Breaker = &v1alpha1.BreakerPolicy{FailureThreshold: threshold, BaseCooldownSeconds: ptr.To(cooldown)}
		f, _ := ladderFactsOf(l, routeName(l, 0))
		return f
	}
	for _, tc := range []struct {
		name      string
		ladders   []ladderFacts
		threshold int
		cooldown  time.Duration
	}{
		{"no ladder: the defaults", nil, 3, 30 * time.Second},
		{"one", []ladderFacts{with("x", 5, 60)}, 5, time.Minute},
		{"two", []ladderFacts{with("x", 5, 60), with("y", 2, 20)}, 5, 20 * time.Second},
		{"a disabled one has no say", []ladderFacts{with("x", 9, 0), with("y", 2, 20)}, 2, 20 * time.Second},
		{"all disabled", []ladderFacts{with("x", 9, 0)}, 3, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := (&facts{ladders: tc.ladders}).config()
			if cfg.FailureThreshold != tc.threshold || cfg.BaseCooldown != tc.cooldown {
				t.Errorf("threshold %d, cooldown %s", cfg.FailureThreshold, cfg.BaseCooldown)
			}
		})
	}
}

func TestOnlyRunsThatMayUseTheRouteCount(t *testing.T) {
	l := aLadder("l")
	name := routeName(l, 0)
	lf, _ := ladderFactsOf(l, name)
	for _, tc := range []struct {
		name   string
		change func(*v1alpha1.AgentRun)
		want   bool
	}{
		{"a run", func(*v1alpha1.AgentRun) {}, true},
		{"another leg only", func(r *v1alpha1.AgentRun) { r.Spec.Routing = &v1alpha1.Routing{Legs: []string{"b"}} }, false},
		{"too high a class", func(r *v1alpha1.AgentRun) {
			r.Spec.Routing = &v1alpha1.Routing{SecurityClass: v1alpha1.SecurityClassInternal}
		}, false},
		{"finished", func(r *v1alpha1.AgentRun) {
			meta.SetStatusCondition(&r.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionFinished, Status: metav1.ConditionTrue, Reason: "Finished"})
		}, false},
		{"being deleted", func(r *v1alpha1.AgentRun) { r.DeletionTimestamp = &metav1.Time{Time: t0} }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			run := aRun(l, "u", 1)
			tc.change(run)
			if _, ok := lf.runFacts(run, name); ok != tc.want {
				t.Errorf("counts: %t", ok)
			}
		})
	}
	got, _ := lf.runFacts(aRun(l, "u", 2), name)
	if !got.Live || got.Parked || !got.Prefers || got.Waiting || got.Report == nil || got.Report.ConsecutiveBlind != 2 {
		t.Errorf("facts %+v", got)
	}
	parked := aRun(l, "u", 3)
	parked.Status.Runner.Wake = &v1alpha1.Wake{Reason: "AllRoutesTripped", Routes: []string{string(name)}}
	parked.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionParked, Status: metav1.ConditionTrue}}
	if got, _ = lf.runFacts(parked, name); got.Live || !got.Parked || !got.Waiting {
		t.Errorf("facts %+v", got)
	}
	parked.Status.Epoch = 2
	if got, _ = lf.runFacts(parked, name); got.Waiting || got.ReportEpoch != 1 {
		t.Errorf("the wait of an earlier epoch was believed: %+v", got)
	}
}

func TestTheProgressOfARunIsNoReasonForAPass(t *testing.T) {
	l := aLadder("l")
	old := aRun(l, "u", 1)
	for _, tc := range []struct {
		name   string
		change func(*v1alpha1.AgentRun)
		want   bool
	}{
		{"turn and usage", func(r *v1alpha1.AgentRun) {
			r.Status.Runner.Turn = ptr.To[int32](7)
			r.Status.Runner.Usage = &v1alpha1.Usage{}
		}, false},
		{"a level", func(r *v1alpha1.AgentRun) { r.Status.Runner.Routes[0].ConsecutiveBlind = ptr.To[int32](3) }, true},
		{"a new epoch", func(r *v1alpha1.AgentRun) { r.Status.Epoch = 2 }, true},
		{"its pod is gone", func(r *v1alpha1.AgentRun) { r.Status.Conditions = nil }, true},
		{"it waits", func(r *v1alpha1.AgentRun) { r.Status.Runner.Wake = &v1alpha1.Wake{Routes: []string{"x"}} }, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			changed := old.DeepCopy()
			tc.change(changed)
			if got := runMatters(event.UpdateEvent{ObjectOld: old, ObjectNew: changed}); got != tc.want {
				t.Errorf("matters: %t, want %t", got, tc.want)
			}
		})
	}
}

func TestMinorChangesMayWait(t *testing.T) {
	base := decide(factsAbout(t0, healthWith(v1alpha1.ProviderHealthStatus{}), aLadder("l"))).status
	failed := base
	failed.LastFailure = &v1alpha1.RouteFailure{Kind: "ServerError", Time: &metav1.MicroTime{Time: t0}}
	for _, tc := range []struct {
		name   string
		old    v1alpha1.ProviderHealthStatus
		change func(*v1alpha1.ProviderHealthStatus)
		want   bool
	}{
		{"one more run", base, func(s *v1alpha1.ProviderHealthStatus) { s.Runs = ptr.To[int32](9) }, true},
		{"a later success", base, func(s *v1alpha1.ProviderHealthStatus) { s.LastSuccessTime = &metav1.MicroTime{Time: t0} }, true},
		{"a later failure", failed, func(s *v1alpha1.ProviderHealthStatus) {
			s.LastFailure = &v1alpha1.RouteFailure{Kind: "Timeout", Time: &metav1.MicroTime{Time: at(5)}}
		}, true},
		{"a rejected credential", failed, func(s *v1alpha1.ProviderHealthStatus) {
			s.LastFailure = &v1alpha1.RouteFailure{Kind: "AuthError", Time: &metav1.MicroTime{Time: at(5)}}
		}, false},
		{"a failure that counts", base, func(s *v1alpha1.ProviderHealthStatus) { s.Failures = ptr.To[int32](1) }, false},
		{"the state", base, func(s *v1alpha1.ProviderHealthStatus) { s.State = v1alpha1.HealthOpen }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			changed := *tc.old.DeepCopy()
			tc.change(&changed)
			if got := minor(&tc.old, &changed); got != tc.want {
				t.Errorf("minor: %t, want %t", got, tc.want)
			}
		})
	}
}

func TestEventsAreOfTheBreakerOnly(t *testing.T) {
	for _, tc := range []struct {
		from, to v1alpha1.HealthState
		want     string
	}{
		{"Closed", "Open", "Warning BreakerOpened"},
		{"HalfOpen", "Open", "Warning BreakerOpened"},
		{"Open", "HalfOpen", "Normal BreakerHalfOpened"},
		{"HalfOpen", "Closed", "Normal BreakerClosed"},
		{"Closed", "Cooling", ""},
		{"Cooling", "Closed", ""},
	} {
		got := ""
		if a, ok := announcementOf(report.Transition{From: positionOf(tc.from), To: positionOf(tc.to)}); ok {
			got = a.kind + " " + a.reason
		}
		if got != tc.want {
			t.Errorf("%s to %s: %q, want %q", tc.from, tc.to, got, tc.want)
		}
	}
}
