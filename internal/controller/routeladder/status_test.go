package routeladder

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"belay.dev/belay/api/v1alpha1"
	"belay.dev/belay/internal/contract"
	"belay.dev/belay/internal/runtime/route"
)

var now = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)

// ladderOf has a provider of its own for each name: "a" is leg a of provider a, "b@a" is leg b of provider a.
func ladderOf(legs ...string) *v1alpha1.RouteLadder {
	l := &v1alpha1.RouteLadder{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "l", Generation: 4}}
	for _, spec := range legs {
		name, provider, ok := strings.Cut(spec, "@")
		if !ok {
			provider = name
		}
		if providerOf(l, provider) == nil {
			l.Spec.Providers = append(l.Spec.Providers, v1alpha1.Provider{
				Name: provider, Dialect: v1alpha1.DialectOpenAIChat, BaseURL: "https://" + provider + ".example/v1",
				Credential: &v1alpha1.Credential{SecretRef: v1alpha1.SecretKeyReference{Name: "keys", Key: provider}},
			})
		}
		l.Spec.Legs = append(l.Spec.Legs, v1alpha1.Leg{Name: name, Provider: provider, Model: "m-" + name, ContextWindow: 128_000})
	}
	return l
}

func factsOf(l *v1alpha1.RouteLadder, states map[string]v1alpha1.HealthState) *facts {
	f := &facts{now: now, ladder: l, health: map[route.Name]*v1alpha1.ProviderHealth{}}
	for _, leg := range l.Spec.Legs {
		if state, ok := states[leg.Name]; ok {
			r := contract.RouteOf(l, leg)
			f.health[r.Name()] = &v1alpha1.ProviderHealth{
				Spec: v1alpha1.ProviderHealthSpec{Route: v1alpha1.RouteIdentity{
					Model: r.Model, SecretRef: &v1alpha1.SecretKeyReference{Name: r.SecretName, Key: r.SecretKey},
				}},
				Status: v1alpha1.ProviderHealthStatus{State: state},
			}
		}
	}
	return f
}

// condition returns "Status/Reason: message".
func condition(s v1alpha1.RouteLadderStatus, kind string) string {
	c := meta.FindStatusCondition(s.Conditions, kind)
	if c == nil {
		return "missing"
	}
	return fmt.Sprintf("%s/%s: %s", c.Status, c.Reason, c.Message)
}

func wantCondition(t *testing.T, s v1alpha1.RouteLadderStatus, kind, want string) {
	t.Helper()
	if diff := cmp.Diff(want, condition(s, kind)); diff != "" {
		t.Errorf("%s: %s", kind, diff)
	}
}

func TestAGoodLadderIsAcceptedReadyAndAvailable(t *testing.T) {
	l := ladderOf("a", "b", "c")
	s := nextStatus(factsOf(l, map[string]v1alpha1.HealthState{"a": v1alpha1.HealthClosed, "b": ""}))
	wantCondition(t, s, v1alpha1.ConditionAccepted, "True/Accepted: all 3 legs are accepted")
	wantCondition(t, s, v1alpha1.ConditionReady, "True/Ready: the configuration works; condition Available tells about outages")
	wantCondition(t, s, v1alpha1.ConditionAvailable, "True/Available: every accepted leg may be used")
	wantCondition(t, s, v1alpha1.ConditionResilient, "True/Resilient: nothing about the ladder stands in the way of a failover")
	wantCondition(t, s, v1alpha1.ConditionLegsVerified, "True/NoRejection: no provider has rejected a leg's credential or model since it last worked")
	if s.Available != "3/3" || s.Active != "a" || s.LegCount != 3 || s.ObservedGeneration != 4 {
		t.Errorf("available %s, active %s, %d legs, generation %d", s.Available, s.Active, s.LegCount, s.ObservedGeneration)
	}
	for _, c := range s.Conditions {
		if c.ObservedGeneration != 4 {
			t.Errorf("%s describes generation %d", c.Type, c.ObservedGeneration)
		}
	}
}

func TestAnOutageTouchesAvailableAndNothingElse(t *testing.T) {
	l := ladderOf("a", "b", "c")
	s := nextStatus(factsOf(l, map[string]v1alpha1.HealthState{"a": v1alpha1.HealthOpen, "b": v1alpha1.HealthClosed, "c": v1alpha1.HealthCooling}))
	wantCondition(t, s, v1alpha1.ConditionAvailable, `True/Available: leg "a" is Open; leg "c" is Cooling`)
	if s.Available != "1/3" || s.Active != "b" {
		t.Errorf("available %s, active %s; want 1/3, b", s.Available, s.Active)
	}
	s = nextStatus(factsOf(l, map[string]v1alpha1.HealthState{"a": v1alpha1.HealthOpen, "b": v1alpha1.HealthHalfOpen, "c": v1alpha1.HealthCooling}))
	wantCondition(t, s, v1alpha1.ConditionAvailable, `False/Unavailable: leg "a" is Open; leg "b" is HalfOpen; leg "c" is Cooling`)
	if s.Available != "0/3" || s.Active != "" {
		t.Errorf("available %s, active %q; want 0/3 and none", s.Available, s.Active)
	}
	for _, kind := range []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionReady} {
		if !meta.IsStatusConditionTrue(s.Conditions, kind) {
			t.Errorf("an outage made %s", condition(s, kind))
		}
	}
}

func TestEachLegThatIsLeftOutIsNamedWithTheReason(t *testing.T) {
	l := ladderOf("a", "b", "c", "d")
	l.Spec.Legs[1].State = v1alpha1.LegStateDrained
	l.Spec.Legs[2].Provider = "nobody"
	l.Spec.Providers[3].BaseURL = "http://d.example/v1"
	s := nextStatus(factsOf(l, nil))
	want := []v1alpha1.LegStatus{
		{Name: "a", Route: string(contract.RouteOf(l, l.Spec.Legs[0]).Name()), State: v1alpha1.LegAccepted},
		{Name: "b", Route: string(contract.RouteOf(l, l.Spec.Legs[1]).Name()), State: v1alpha1.LegLeftOut, Reason: "Drained",
			Message: "the leg's state is Drained; set it to Active to use the leg again"},
		{Name: "c", State: v1alpha1.LegLeftOut, Reason: "UnknownRoute", Message: `provider "nobody" is not in spec.providers`},
		{Name: "d", Route: string(contract.RouteOf(l, l.Spec.Legs[3]).Name()), State: v1alpha1.LegLeftOut, Reason: "InvalidURL",
			Message: `baseURL of provider "d" is plain http, which needs insecure: Loopback or Cluster`},
	}
	if diff := cmp.Diff(want, s.Legs); diff != "" {
		t.Error(diff)
	}
	c := condition(s, v1alpha1.ConditionAccepted)
	for _, part := range []string{"True/LegsLeftOut", `leg "b" is left out (Drained)`, `leg "c"`, `leg "d"`} {
		if !strings.Contains(c, part) {
			t.Errorf("%q does not say %q", c, part)
		}
	}
	if s.Available != "1/4" {
		t.Errorf("available %s, want 1/4", s.Available)
	}
}

func TestALadderWithoutAUsableLegIsNotAccepted(t *testing.T) {
	l := ladderOf("a")
	l.Spec.Legs[0].State = v1alpha1.LegStateDrained
	s := nextStatus(factsOf(l, nil))
	wantCondition(t, s, v1alpha1.ConditionAccepted, `False/NoUsableLeg: leg "a" is left out (Drained): the leg's state is Drained; set it to Active to use the leg again`)
	wantCondition(t, s, v1alpha1.ConditionReady, "False/NoUsableLeg: no leg can be used; condition Accepted says why")
	wantCondition(t, s, v1alpha1.ConditionAvailable, "False/Unavailable: no leg is accepted")
}

func TestProvidersThatCannotBeAsked(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*v1alpha1.Provider)
		want   string
	}{
		{"https", func(*v1alpha1.Provider) {}, ""},
		{"plain http to loopback", func(p *v1alpha1.Provider) { p.BaseURL, p.Insecure = "http://127.0.0.1:1/v1", v1alpha1.InsecureLoopback }, ""},
		{"plain http", func(p *v1alpha1.Provider) { p.BaseURL = "http://h/v1" }, v1alpha1.ReasonInvalidURL},
		{"plain http, forbidden in so many words", func(p *v1alpha1.Provider) { p.BaseURL, p.Insecure = "http://h/v1", v1alpha1.InsecureForbid }, v1alpha1.ReasonInvalidURL},
		{"another scheme", func(p *v1alpha1.Provider) { p.BaseURL = "ftp://h/v1" }, v1alpha1.ReasonInvalidURL},
		{"no host", func(p *v1alpha1.Provider) { p.BaseURL = "https:///v1" }, v1alpha1.ReasonInvalidURL},
		{"no URL", func(p *v1alpha1.Provider) { p.BaseURL = "https://[::1" }, v1alpha1.ReasonInvalidURL},
		{"a bundle without a certificate", func(p *v1alpha1.Provider) { p.CABundle = "-----BEGIN CERTIFICATE-----\nnonsense" }, v1alpha1.ReasonInvalidCABundle},
		{"a bundle with a broken certificate", func(p *v1alpha1.Provider) {
			p.CABundle = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
		}, v1alpha1.ReasonInvalidCABundle},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := v1alpha1.Provider{Name: "p", BaseURL: "https://h/v1"}
			tc.change(&p)
			if got, _ := rejectProvider(&p); got != tc.want {
				t.Errorf("reason %q, want %q", got, tc.want)
			}
		})
	}
}

func TestRiskyLaddersAreWarnedAbout(t *testing.T) {
	drained := ladderOf("a", "b")
	drained.Spec.Legs[1].State = v1alpha1.LegStateDrained
	repeated := ladderOf("a", "b@a")
	repeated.Spec.Legs[1].Model = repeated.Spec.Legs[0].Model
	for _, tc := range []struct {
		name   string
		ladder *v1alpha1.RouteLadder
		want   []string
	}{
		{"three providers", ladderOf("a", "b", "c"), nil},
		{"one leg", ladderOf("a"), []string{"ThinChain"}},
		{"one leg that is not drained", drained, []string{"ThinChain"}},
		{"two legs of one provider: too few to speak of dominance", ladderOf("a", "b@a"), nil},
		{"two of three", ladderOf("a", "b@a", "c"), []string{"DominantProvider"}},
		// A third of four, rounded up, is two.
		{"two of four", ladderOf("a", "b@a", "c", "d"), nil},
		{"three of four", ladderOf("a", "b@a", "c@a", "d"), []string{"DominantProvider"}},
		{"three of seven", ladderOf("a", "b@a", "c@a", "d", "e", "f", "g"), nil},
		{"the same route twice", repeated, []string{"UnreachableLeg"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, w := range warnings(judge(tc.ladder)) {
				got = append(got, w.reason)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			wantStatus := metav1.ConditionTrue
			if len(tc.want) > 0 {
				wantStatus = metav1.ConditionFalse
			}
			c := meta.FindStatusCondition(nextStatus(factsOf(tc.ladder, nil)).Conditions, v1alpha1.ConditionResilient)
			if c.Status != wantStatus || (len(tc.want) > 0 && c.Reason != tc.want[0]) {
				t.Errorf("condition %s/%s", c.Status, c.Reason)
			}
		})
	}
}

func TestARejectedCredentialOrModelIsShownUntilTheRouteWorksAgain(t *testing.T) {
	l := ladderOf("a", "b")
	reject := func(leg, kind string, success *time.Time) *facts {
		f := factsOf(l, map[string]v1alpha1.HealthState{"a": v1alpha1.HealthClosed, "b": v1alpha1.HealthClosed})
		for _, h := range f.health {
			if h.Spec.Route.Model == "m-"+leg {
				h.Status.LastFailure = &v1alpha1.RouteFailure{Kind: kind, Time: &metav1.MicroTime{Time: now}}
				if success != nil {
					h.Status.LastSuccessTime = &metav1.MicroTime{Time: *success}
				}
			}
		}
		return f
	}
	before, later := now.Add(-time.Second), now.Add(time.Second)
	wantCondition(t, nextStatus(reject("a", "AuthError", nil)), v1alpha1.ConditionLegsVerified,
		`False/CredentialInvalid: leg "a": the provider rejected key "a" of Secret "keys" (AuthError)`)
	wantCondition(t, nextStatus(reject("a", "PermissionDenied", &before)), v1alpha1.ConditionLegsVerified,
		`False/CredentialInvalid: leg "a": the provider rejected key "a" of Secret "keys" (PermissionDenied)`)
	wantCondition(t, nextStatus(reject("b", "ModelNotFound", nil)), v1alpha1.ConditionLegsVerified,
		`False/ModelNotFound: leg "b": the provider does not serve model "m-b"`)
	for name, f := range map[string]*facts{"it worked since": reject("a", "AuthError", &later), "an outage": reject("a", "ServerError", nil)} {
		if got := condition(nextStatus(f), v1alpha1.ConditionLegsVerified); !strings.HasPrefix(got, "True/") {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestASecondPassChangesNothingAndAnEditStampsEveryCondition(t *testing.T) {
	l := ladderOf("a", "b")
	f := factsOf(l, map[string]v1alpha1.HealthState{"a": v1alpha1.HealthOpen})
	l.Status = nextStatus(f)
	f.now = now.Add(time.Hour)
	if again := nextStatus(f); !equality.Semantic.DeepEqual(l.Status, again) {
		t.Error(cmp.Diff(l.Status, again))
	}
	l.Generation = 5
	for _, c := range nextStatus(f).Conditions {
		if c.ObservedGeneration != 5 || !c.LastTransitionTime.Time.Equal(now) {
			t.Errorf("%s: generation %d, last transition %s", c.Type, c.ObservedGeneration, c.LastTransitionTime)
		}
	}
}

func TestEventsTellOfTransitionsOnly(t *testing.T) {
	l := ladderOf("a", "b")
	healthy := nextStatus(factsOf(l, nil)).Conditions
	down := nextStatus(factsOf(l, map[string]v1alpha1.HealthState{"a": v1alpha1.HealthOpen, "b": v1alpha1.HealthOpen})).Conditions
	thin := nextStatus(factsOf(ladderOf("a"), nil)).Conditions
	for _, tc := range []struct {
		name         string
		old, changed []metav1.Condition
		want         []string
	}{
		{"a new ladder that is all right", nil, healthy, nil},
		{"a new ladder with one leg", nil, thin, []string{"Warning ThinChain"}},
		{"an outage", healthy, down, []string{"Warning Unavailable"}},
		{"it goes on", down, down, nil},
		{"it ends", down, healthy, []string{"Normal Available"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, a := range announcements(tc.old, tc.changed) {
				got = append(got, a.kind+" "+a.reason)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLongTextsAreCutBetweenCharacters(t *testing.T) {
	if got := truncate(strings.Repeat("é", 10), 12); got != "éééé…" {
		t.Errorf("got %q", got)
	}
	if got := truncate("short", 5); got != "short" {
		t.Errorf("got %q", got)
	}
}
