package agentrun

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"

	"belay.dev/belay/api/v1alpha1"
)

// admission says whether a run may have a pod.
type admission struct {
	// reason is a reason of condition Admitted; ReasonAccepted admits, ReasonPolicyConflict ends the run, every other waits.
	reason  string
	message string
}

func (a admission) admitted() bool { return a.reason == v1alpha1.ReasonAccepted }

// admit decides whether a run may have a pod. Only a new run is judged by its policy and by what the routeladder controller
// makes of the ladder: a later change of the ladder never ends a run, its runner keeps to the last ladder it could use.
func admit(run *v1alpha1.AgentRun, ladder *v1alpha1.RouteLadder) admission {
	name := run.Spec.LadderRef.Name
	if ladder == nil {
		return admission{v1alpha1.ReasonLadderNotFound, fmt.Sprintf("RouteLadder %s does not exist; the run starts when it does", name)}
	}
	if run.Status.StartTime != nil {
		return admission{v1alpha1.ReasonAccepted, "RouteLadder " + name}
	}
	if ladderRejected(ladder) {
		why := meta.FindStatusCondition(ladder.Status.Conditions, v1alpha1.ConditionAccepted).Message
		return admission{v1alpha1.ReasonLadderUnusable, fmt.Sprintf("RouteLadder %s is not accepted: %s", name, why)}
	}
	if conflict := policyConflict(run.Spec.Routing, ladder); conflict != "" {
		return admission{v1alpha1.ReasonPolicyConflict, conflict}
	}
	return admission{v1alpha1.ReasonAccepted, "RouteLadder " + name}
}

// policyConflict names the first leg that the run's policy forbids although the run does not exclude it, or the first leg
// that the run names and the ladder does not have; it is empty if there is none. Drained legs are used by nobody.
func policyConflict(routing *v1alpha1.Routing, ladder *v1alpha1.RouteLadder) string {
	if routing == nil {
		routing = &v1alpha1.Routing{}
	}
	for _, name := range routing.Legs {
		if !slices.ContainsFunc(ladder.Spec.Legs, func(leg v1alpha1.Leg) bool { return leg.Name == name }) {
			return fmt.Sprintf("routing.legs names leg %s, which RouteLadder %s does not have", name, ladder.Name)
		}
	}
	class := classOr(routing.SecurityClass)
	for i := range ladder.Spec.Legs {
		leg := &ladder.Spec.Legs[i]
		if leg.State == v1alpha1.LegStateDrained || (len(routing.Legs) > 0 && !slices.Contains(routing.Legs, leg.Name)) {
			continue
		}
		if leg.Billing != v1alpha1.BillingIncluded && routing.Metered != v1alpha1.MeteredAllow {
			return fmt.Sprintf("leg %s of RouteLadder %s is metered and the run does not allow that; set routing.metered: Allow, "+
				"or leave the leg out of routing.legs", leg.Name, ladder.Name)
		}
		if classRank(classOr(leg.SecurityClass)) < classRank(class) {
			return fmt.Sprintf("leg %s of RouteLadder %s is of class %s, the run needs at least %s; leave the leg out of routing.legs, "+
				"or raise the leg's securityClass", leg.Name, ladder.Name, classOr(leg.SecurityClass), class)
		}
	}
	return ""
}

func classOr(class v1alpha1.SecurityClass) v1alpha1.SecurityClass {
	if class == "" {
		return v1alpha1.DefaultSecurityClass
	}
	return class
}

func classRank(class v1alpha1.SecurityClass) int {
	switch class {
	case v1alpha1.SecurityClassPublic:
		return 0
	case v1alpha1.SecurityClassInternal:
		return 1
	case v1alpha1.SecurityClassConfidential:
		return 2
	case v1alpha1.SecurityClassRestricted:
		return 3
	default:
		return -1 // the API server lets no other in; as a leg's class it satisfies nobody
	}
}
