package agentrun

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"belay.dev/belay/api/v1alpha1"
)

func TestAPolicyThatForbidsALegHasToSaySo(t *testing.T) {
	leg := func(name string, change func(*v1alpha1.Leg)) v1alpha1.Leg {
		l := v1alpha1.Leg{Name: name, Provider: "p", Model: "m", ContextWindow: 8192}
		if change != nil {
			change(&l)
		}
		return l
	}
	included := func(l *v1alpha1.Leg) { l.Billing = v1alpha1.BillingIncluded }
	restricted := func(l *v1alpha1.Leg) { l.SecurityClass = v1alpha1.SecurityClassRestricted }
	drained := func(l *v1alpha1.Leg) { l.State = v1alpha1.LegStateDrained }
	allow := v1alpha1.MeteredAllow
	tests := []struct {
		name    string
		routing *v1alpha1.Routing
		legs    []v1alpha1.Leg
		want    string
	}{
		{"included legs need no leave", nil, []v1alpha1.Leg{leg("a", included)}, ""},
		{"metered legs do", nil, []v1alpha1.Leg{leg("a", included), leg("b", nil)}, "leg b of RouteLadder demo is metered"},
		{"metered legs that the run excludes do not", &v1alpha1.Routing{Legs: []string{"a"}}, []v1alpha1.Leg{leg("a", included), leg("b", nil)}, ""},
		{"drained legs do not", nil, []v1alpha1.Leg{leg("a", included), leg("b", drained)}, ""},
		{"metered legs with leave", &v1alpha1.Routing{Metered: allow}, []v1alpha1.Leg{leg("a", nil)}, ""},
		{"a leg above the run's class", &v1alpha1.Routing{Metered: allow, SecurityClass: v1alpha1.SecurityClassInternal}, []v1alpha1.Leg{leg("a", restricted)}, ""},
		{"a leg of the run's class", &v1alpha1.Routing{Metered: allow, SecurityClass: v1alpha1.SecurityClassRestricted}, []v1alpha1.Leg{leg("a", restricted)}, ""},
		{"a leg below it", &v1alpha1.Routing{Metered: allow, SecurityClass: v1alpha1.SecurityClassConfidential}, []v1alpha1.Leg{leg("a", nil)}, "leg a of RouteLadder demo is of class Public, the run needs at least Confidential"},
		{"a leg that the ladder does not have", &v1alpha1.Routing{Metered: allow, Legs: []string{"z"}}, []v1alpha1.Leg{leg("a", nil)}, "routing.legs names leg z"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			ladder := &v1alpha1.RouteLadder{ObjectMeta: metav1.ObjectMeta{Name: "demo"}, Spec: v1alpha1.RouteLadderSpec{Legs: test.legs}}
			got := policyConflict(test.routing, ladder)
			if (test.want == "") != (got == "") || !strings.Contains(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestOnlyANewRunIsJudgedByItsLadder(t *testing.T) {
	ladder := testLadder()
	ladder.Spec.Legs[0].SecurityClass = v1alpha1.SecurityClassPublic
	meta.SetStatusCondition(&ladder.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNoUsableLeg, ObservedGeneration: ladder.Generation,
	})
	run := minimalRun() // it denies metered legs, which all of the ladder's are
	if got := admit(run, ladder).reason; got != v1alpha1.ReasonLadderUnusable {
		t.Errorf("a new run is %s, want LadderUnusable", got)
	}
	run.Status.StartTime = &metav1.Time{Time: start}
	if got := admit(run, ladder).reason; got != v1alpha1.ReasonAccepted {
		t.Errorf("a run that has begun is %s, want Accepted: a bad edit of the ladder must not end it", got)
	}
	meta.FindStatusCondition(ladder.Status.Conditions, v1alpha1.ConditionAccepted).ObservedGeneration = ladder.Generation - 1
	run.Status.StartTime = nil
	if got := admit(run, ladder).reason; got != v1alpha1.ReasonPolicyConflict {
		t.Errorf("with an outdated verdict on the ladder a new run is %s, want PolicyConflict by its own policy", got)
	}
}
