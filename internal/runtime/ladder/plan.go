package ladder

import (
	"fmt"
	"slices"
	"time"

	"belay.dev/belay/internal/runtime/breaker"
	"belay.dev/belay/internal/runtime/route"
)

// PlannerVersion changes whenever the same inputs could give another plan. It is recorded with every plan.
const PlannerVersion = 1

// HealthView tells the health of routes.
type HealthView interface {
	// Health judges a route at now. It changes nothing.
	Health(name route.Name, now time.Time) breaker.Verdict
}

// Need is what one turn asks of a leg.
type Need struct {
	// InputTokens is the estimated size of the request.
	InputTokens int64
	// OutputTokens is the least room that the answer needs in the window besides the input; 0 means the leg's whole cap.
	OutputTokens int64
	// Capabilities are what the turn uses besides text.
	Capabilities []Capability
}

// fits tells whether the request and its answer fit into the leg's window.
func (n Need) fits(l Leg) bool {
	out := n.OutputTokens
	if out <= 0 {
		out = l.OutputCap()
	}
	return n.InputTokens+out <= l.ContextWindow
}

// SkipReason says in one word why a leg is not in a plan. The list is closed.
type SkipReason string

const (
	// NotSelected legs are not named by routing.legs.
	NotSelected SkipReason = "NotSelected"
	// DrainedLeg legs were taken out of use by the ladder's owner.
	DrainedLeg SkipReason = "Drained"
	// ClassTooLow legs may not see data of the run's class.
	ClassTooLow SkipReason = "ClassTooLow"
	// MeteredDenied legs cost money, and the run must not.
	MeteredDenied SkipReason = "MeteredDenied"
	// NoPrice legs cost money that the run's cost limit could not count.
	NoPrice SkipReason = "NoPrice"
	// UnknownLeg is a name of routing.legs that the ladder does not have.
	UnknownLeg SkipReason = "UnknownLeg"
	// SkipCredentialMissing legs have no credential in the cluster.
	SkipCredentialMissing SkipReason = "CredentialMissing"
	// SkipCredentialNotMounted legs have a credential that this pod was started without.
	SkipCredentialNotMounted SkipReason = "CredentialNotMounted"
	// SkipCredentialInvalid legs have a credential that the provider rejected.
	SkipCredentialInvalid SkipReason = "CredentialInvalid"
	// SkipCredentialNotForHost legs have a credential whose Secret does not allow their host.
	SkipCredentialNotForHost SkipReason = "CredentialNotForHost"
	// CapabilityMissing legs cannot do what the turn needs.
	CapabilityMissing SkipReason = "CapabilityMissing"
	// WindowTooSmall legs cannot take the request before the context is reduced.
	WindowTooSmall SkipReason = "WindowTooSmall"
	// RouteOpen legs have a route whose breaker is open.
	RouteOpen SkipReason = "RouteOpen"
	// RouteCooling legs have a route that asked to be left alone for a while.
	RouteCooling SkipReason = "RouteCooling"
	// RouteHalfOpen legs have a route whose only probe is another's.
	RouteHalfOpen SkipReason = "RouteHalfOpen"
)

// passing tells that the reason can end within the turn: by time, by a probe, or by a smaller request.
func (r SkipReason) passing() bool {
	switch r {
	case RouteOpen, RouteCooling, RouteHalfOpen, WindowTooSmall:
		return true
	case NotSelected, DrainedLeg, ClassTooLow, MeteredDenied, NoPrice, UnknownLeg, SkipCredentialMissing,
		SkipCredentialNotMounted, SkipCredentialInvalid, SkipCredentialNotForHost, CapabilityMissing:
		return false
	}
	return false
}

// Skip is a leg that a plan leaves out.
type Skip struct {
	Leg    string
	Reason SkipReason
	// Until is when the reason may end by itself; zero when no time is known.
	Until time.Time
	// Message says it for people.
	Message string
}

// PlannedLeg is a leg of a plan and the health that it was judged by.
type PlannedLeg struct {
	Name     string
	Route    route.Name
	Position breaker.Position
}

// Plan is the legs of one turn, in order, and the reason for each other leg of the ladder.
type Plan struct {
	PlannerVersion int
	Ladder         string
	LadderUID      string
	Generation     int64
	Legs           []PlannedLeg
	Skipped        []Skip
}

// Names returns the names of the planned legs, in order.
func (p Plan) Names() []string {
	names := make([]string, 0, len(p.Legs))
	for _, l := range p.Legs {
		names = append(names, l.Name)
	}
	return names
}

// NewPlan chooses the legs of one turn. A leg that is skipped because of its route's health or of the request's size may
// still serve the turn later: a walk comes back to it when that has changed. A leg skipped for any other reason is not
// asked in this turn.
func NewPlan(l Ladder, p RunPolicy, n Need, health HealthView, now time.Time) Plan {
	plan := Plan{PlannerVersion: PlannerVersion, Ladder: l.Name, LadderUID: l.UID, Generation: l.Generation}
	for _, leg := range l.Legs {
		name := leg.Route.Name()
		v := health.Health(name, now)
		skip := judge(leg, p, n, v, now)
		if skip.Reason == "" {
			plan.Legs = append(plan.Legs, PlannedLeg{Name: leg.Name, Route: name, Position: v.Position})
			continue
		}
		skip.Leg = leg.Name
		plan.Skipped = append(plan.Skipped, skip)
	}
	return plan
}

// judge returns why a leg cannot be asked now; its Reason is empty if it can. What never changes within a turn comes
// first, so that the reason is the one that must be dealt with.
func judge(l Leg, p RunPolicy, n Need, v breaker.Verdict, now time.Time) Skip {
	if reason, why := p.refusal(l); reason != "" {
		return Skip{Reason: reason, Message: why}
	}
	if reason, why := l.Credential.refusal(l); reason != "" {
		return Skip{Reason: reason, Message: why}
	}
	if i := slices.IndexFunc(n.Capabilities, func(c Capability) bool { return !l.Can(c) }); i >= 0 {
		return Skip{Reason: CapabilityMissing, Message: fmt.Sprintf("the turn needs %s, which the leg does not declare", n.Capabilities[i])}
	}
	if !n.fits(l) {
		return Skip{Reason: WindowTooSmall, Message: fmt.Sprintf("the request of about %d tokens and its answer do not fit into the window of %d",
			n.InputTokens, l.ContextWindow)}
	}
	if v.Allowed {
		return Skip{}
	}
	return Skip{Reason: blockedBy(v.Position), Until: v.Until, Message: blockedText(v, now)}
}

func (c CredentialState) refusal(l Leg) (SkipReason, string) {
	secret := fmt.Sprintf("key %q of Secret %q", l.Route.SecretKey, l.Route.SecretName)
	switch c {
	case "", CredentialReady:
		return "", ""
	case CredentialMissing:
		return SkipCredentialMissing, secret + " does not exist"
	case CredentialNotMounted:
		return SkipCredentialNotMounted, secret + " was named after this pod had started; the run restarts to mount it"
	case CredentialInvalid:
		return SkipCredentialInvalid, "the provider rejected " + secret
	case CredentialNotForHost:
		return SkipCredentialNotForHost, fmt.Sprintf("the key allowed-hosts of Secret %q does not name %q", l.Route.SecretName, l.Route.Host())
	}
	return SkipCredentialMissing, secret + " is in an unknown state"
}

func blockedBy(p breaker.Position) SkipReason {
	switch p {
	case breaker.Open:
		return RouteOpen
	case breaker.Cooling:
		return RouteCooling
	case breaker.HalfOpen:
		return RouteHalfOpen
	case breaker.Closed:
	}
	return RouteOpen
}
