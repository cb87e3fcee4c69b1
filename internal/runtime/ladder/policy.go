package ladder

import (
	"fmt"
	"slices"
	"strings"
)

// RunPolicy is what a run demands of the legs that serve it.
type RunPolicy struct {
	// SecurityClass is the class of the run's data: a leg must be at least of it. Empty is Public.
	SecurityClass SecurityClass
	// Metered says whether legs billed by use may serve. Empty is Deny.
	Metered MeteredPolicy
	// Legs are the names of the legs that may serve, all when empty. The ladder's order stands.
	Legs []string
	// CostLimited tells that the run has a cost limit, which a metered leg without a price would escape.
	CostLimited bool
}

// MeteredPolicy says whether legs billed by use may serve a run.
type MeteredPolicy string

const (
	// DenyMetered keeps a run from costing money. It is the default.
	DenyMetered MeteredPolicy = "Deny"
	// AllowMetered lets it.
	AllowMetered MeteredPolicy = "Allow"
)

func (p RunPolicy) selects(leg string) bool {
	return len(p.Legs) == 0 || slices.Contains(p.Legs, leg)
}

// refusal says why policy, and policy alone, keeps a leg from serving the run; it is checked for the plan, and again for
// the leg that is really asked.
func (p RunPolicy) refusal(l Leg) (SkipReason, string) {
	switch {
	case !p.selects(l.Name):
		return NotSelected, "routing.legs does not name it"
	case l.State == Drained:
		return DrainedLeg, "the ladder has drained it"
	case !l.SecurityClass.Covers(p.SecurityClass):
		return ClassTooLow, fmt.Sprintf("its securityClass is %s, the run needs %s or higher", orPublic(l.SecurityClass), orPublic(p.SecurityClass))
	case l.Billing != Included && p.Metered != AllowMetered:
		return MeteredDenied, "it is billed by use and the run's routing.metered is Deny"
	case l.Billing != Included && l.Price == nil && p.CostLimited:
		return NoPrice, "it is billed by use and has no price, so that limits.maxCostMicroUSD could not be kept"
	}
	return "", ""
}

// Allows tells whether policy, and policy alone, lets the leg serve the run.
func (p RunPolicy) Allows(l Leg) bool {
	reason, _ := p.refusal(l)
	return reason == ""
}

func orPublic(c SecurityClass) SecurityClass {
	if c == "" {
		return Public
	}
	return c
}

// Conflict is why a new run contradicts its ladder.
type Conflict struct {
	// Leg is the leg in question, or the name in routing.legs that the ladder does not have.
	Leg string
	// Reason is ClassTooLow, MeteredDenied or UnknownLeg.
	Reason SkipReason
	// Message says what contradicts what, and what to set.
	Message string
}

// Conflicts returns why a new run must not start: each leg that its policy forbids although routing.legs does not leave
// it out, and each name of routing.legs that the ladder does not have. A run that started keeps going when its ladder is
// edited; there such a leg is merely skipped.
func Conflicts(l Ladder, p RunPolicy) []Conflict {
	var conflicts []Conflict
	for _, name := range p.Legs {
		if _, ok := l.Find(name); !ok {
			conflicts = append(conflicts, Conflict{Leg: name, Reason: UnknownLeg,
				Message: fmt.Sprintf("routing.legs names %q, but ladder %q has no such leg (it has %s)", name, l.Name, legNames(l))})
		}
	}
	for _, leg := range l.Legs {
		reason, why := p.refusal(leg)
		switch reason {
		case ClassTooLow:
			conflicts = append(conflicts, Conflict{Leg: leg.Name, Reason: reason,
				Message: fmt.Sprintf("leg %q may not serve the run: %s; leave it out by routing.legs, or lower routing.securityClass", leg.Name, why)})
		case MeteredDenied:
			conflicts = append(conflicts, Conflict{Leg: leg.Name, Reason: reason,
				Message: fmt.Sprintf("leg %q may not serve the run: %s; set routing.metered: Allow, or leave the leg out by routing.legs", leg.Name, why)})
		case NotSelected, DrainedLeg, NoPrice, UnknownLeg, CapabilityMissing, WindowTooSmall, SkipCredentialMissing,
			SkipCredentialNotMounted, SkipCredentialInvalid, SkipCredentialNotForHost, RouteOpen, RouteCooling, RouteHalfOpen, "":
		}
	}
	return conflicts
}

// ConflictMessage joins conflicts into one message.
func ConflictMessage(conflicts []Conflict) string {
	parts := make([]string, 0, len(conflicts))
	for _, c := range conflicts {
		parts = append(parts, c.Message)
	}
	return strings.Join(parts, ". ")
}

func legNames(l Ladder) string {
	names := make([]string, 0, len(l.Legs))
	for _, leg := range l.Legs {
		names = append(names, leg.Name)
	}
	return strings.Join(names, ", ")
}
