package providerhealth

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"

	"belay.dev/belay/api/v1alpha1"
	"belay.dev/belay/internal/contract"
	"belay.dev/belay/internal/runtime/breaker"
	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/ladder"
	"belay.dev/belay/internal/runtime/report"
	"belay.dev/belay/internal/runtime/route"
)

// facts are what a pass knows about one route.
type facts struct {
	now  time.Time
	name route.Name
	// health is nil as long as the object does not exist.
	health *v1alpha1.ProviderHealth
	// ladders are those whose spec names the route, accepted or not.
	ladders []ladderFacts
	// runs are the unfinished runs of these ladders that may use the route.
	runs []report.Run
}

// ladderFacts is a ladder with the names of its legs' routes, which are costly to work out for every run.
type ladderFacts struct {
	chain ladder.Ladder
	names []route.Name
	// identity is the route's identity, as the ladder spells it.
	identity v1alpha1.RouteIdentity
	// accepted tells that the ladder's present generation has an accepted leg with the route.
	accepted bool
}

// anyCredential stands in for the secrets that the manager may not read: whether a credential is at hand is for the
// runners to find out.
type anyCredential struct{}

func (anyCredential) Credential(string, string) (string, ladder.CredentialState) {
	return "", ladder.CredentialReady
}

func (anyCredential) AllowedHosts(string) string { return "" }

// ladderFactsOf returns the facts about a ladder; false if none of its legs has the route.
func ladderFactsOf(l *v1alpha1.RouteLadder, name route.Name) (ladderFacts, bool) {
	chain, _ := contract.LadderOf(l, anyCredential{})
	f := ladderFacts{chain: chain}
	named := false
	for _, leg := range chain.Legs {
		n := leg.Route.Name()
		f.names = append(f.names, n)
		if n != name {
			continue
		}
		if !named {
			named = true
			f.identity = identityOf(leg.Route)
		}
		f.accepted = f.accepted || legAccepted(l, leg.Name)
	}
	return f, named
}

func legAccepted(l *v1alpha1.RouteLadder, leg string) bool {
	if l.Status.ObservedGeneration != l.Generation {
		return false
	}
	for i := range l.Status.Legs {
		if s := &l.Status.Legs[i]; s.Name == leg {
			return s.State == v1alpha1.LegAccepted
		}
	}
	return false
}

func identityOf(r route.Route) v1alpha1.RouteIdentity {
	id := v1alpha1.RouteIdentity{Host: r.Host(), BaseURL: r.BaseURL, Dialect: v1alpha1.Dialect(r.Dialect), Model: r.Model}
	if r.SecretName != "" {
		id.SecretRef = &v1alpha1.SecretKeyReference{Name: r.SecretName, Key: r.SecretKey}
	}
	return id
}

// runFacts returns what the fold needs to know of a run; false if the run has finished or its policy keeps it from the
// route.
func (l ladderFacts) runFacts(run *v1alpha1.AgentRun, name route.Name) (report.Run, bool) {
	if finished(run) || run.DeletionTimestamp != nil {
		return report.Run{}, false
	}
	policy := policyOf(run)
	uses, first := false, route.Name("")
	for i, leg := range l.chain.Legs {
		if !policy.Allows(leg) {
			continue
		}
		if first == "" {
			first = l.names[i]
		}
		uses = uses || l.names[i] == name
	}
	if !uses {
		return report.Run{}, false
	}
	out := report.Run{
		Name: run.Name, UID: string(run.UID), Created: run.CreationTimestamp.Time, Epoch: run.Status.Epoch,
		Live:    meta.IsStatusConditionTrue(run.Status.Conditions, v1alpha1.ConditionPodReady),
		Parked:  meta.IsStatusConditionTrue(run.Status.Conditions, v1alpha1.ConditionParked),
		Prefers: first == name,
	}
	runner := run.Status.Runner
	if runner == nil {
		return out, true
	}
	out.ReportEpoch = runner.Epoch
	if runner.Wake != nil && runner.Epoch == run.Status.Epoch {
		for _, r := range runner.Wake.Routes {
			out.Waiting = out.Waiting || r == string(name)
		}
	}
	for i := range runner.Routes {
		if l := &runner.Routes[i]; l.Route == string(name) {
			out.Report = &report.Report{Route: name, Level: levelOf(l)}
		}
	}
	return out, true
}

func policyOf(run *v1alpha1.AgentRun) ladder.RunPolicy {
	p := ladder.RunPolicy{CostLimited: run.Spec.Limits != nil && run.Spec.Limits.MaxCostMicroUSD > 0}
	if r := run.Spec.Routing; r != nil {
		p.SecurityClass, p.Metered, p.Legs = ladder.SecurityClass(r.SecurityClass), ladder.MeteredPolicy(r.Metered), r.Legs
	}
	return p
}

func levelOf(l *v1alpha1.RouteLevel) breaker.Level {
	return breaker.Level{
		Generation:       ptr.Deref(l.Generation, 0),
		ConsecutiveBlind: int(ptr.Deref(l.ConsecutiveBlind, 0)),
		LastFailure: breaker.LastFailure{
			Kind: failure.Kind(l.LastKind), HTTPStatus: int(l.LastHTTPStatus), Code: l.LastCode, Time: timeOf(l.LastFailureTime),
		},
		LastSuccessTime: timeOf(l.LastSuccessTime),
		CoolUntil:       timeOf(l.CoolUntil),
		ProbeToken:      l.ProbeToken,
		ProbeResult:     breaker.ProbeResult(l.ProbeResult),
	}
}

func finished(run *v1alpha1.AgentRun) bool {
	return meta.IsStatusConditionTrue(run.Status.Conditions, v1alpha1.ConditionFinished)
}
