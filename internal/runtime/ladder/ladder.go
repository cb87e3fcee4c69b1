// Package ladder decides which leg of a failover chain is asked, when, and when to stop asking. Everything in it is a pure
// function of its arguments: a plan is made from the ladder, the run's policy, what the turn needs and the health of the
// routes; a walk is a state machine that is told how each request ended and answers what to do next. Both take the time,
// and the walk a random source, as arguments, so that the same inputs always give the same decisions.
//
// The package is a pure leaf: it imports the standard library and the leaves breaker, budget, failure and route.
package ladder

import (
	"slices"
	"time"

	"belay.dev/belay/internal/runtime/breaker"
	"belay.dev/belay/internal/runtime/budget"
	"belay.dev/belay/internal/runtime/route"
)

// Ladder is an ordered failover chain with its rules.
type Ladder struct {
	Name string
	// UID and Generation say which version of the ladder a decision was made by.
	UID        string
	Generation int64
	// Legs are tried from the first to the last.
	Legs      []Leg
	Retry     Retry
	Endurance Endurance
	Waits     Waits
	Breaker   breaker.Config
	Policy    FailurePolicy
}

// New returns a ladder of the legs with the default rules.
func New(name string, legs ...Leg) Ladder {
	return Ladder{
		Name:      name,
		Legs:      legs,
		Retry:     DefaultRetry(),
		Endurance: DefaultEndurance(),
		Waits:     DefaultWaits(),
		Breaker:   breaker.DefaultConfig(),
		Policy:    DefaultFailurePolicy(),
	}
}

// Find returns the leg of that name.
func (l Ladder) Find(name string) (Leg, bool) {
	i := slices.IndexFunc(l.Legs, func(leg Leg) bool { return leg.Name == name })
	if i < 0 {
		return Leg{}, false
	}
	return l.Legs[i], true
}

// Routes returns the route of each leg, in the legs' order.
func (l Ladder) Routes() []route.Route {
	routes := make([]route.Route, 0, len(l.Legs))
	for _, leg := range l.Legs {
		routes = append(routes, leg.Route)
	}
	return routes
}

// Retry bounds the requests to one leg, and those of one turn.
type Retry struct {
	// MaxRetries is the number of retries at one leg in one walk, after the first try. Default 5.
	MaxRetries int
	// BaseDelay is the upper bound of the first retry's delay; delays are drawn evenly from zero to their bound. Default
	// 500 ms.
	BaseDelay time.Duration
	// BackoffFactor multiplies the bound from try to try. Default 2.
	BackoffFactor int
	// MaxDelay caps the bound. Default 30 s.
	MaxDelay time.Duration
	// MaxAttemptsPerTurn is shared by all legs and walks of a turn. Probes do not count. Default 20.
	MaxAttemptsPerTurn int
}

// DefaultRetry returns the rules of a ladder that declares none.
func DefaultRetry() Retry {
	return Retry{
		MaxRetries:         5,
		BaseDelay:          500 * time.Millisecond,
		BackoffFactor:      2,
		MaxDelay:           30 * time.Second,
		MaxAttemptsPerTurn: 20,
	}
}

// Endurance bounds how often the ladder is walked in one turn.
type Endurance struct {
	// MaxRewalks is the number of further walks of a turn. Default 6.
	MaxRewalks int
}

// DefaultEndurance returns the rules of a ladder that declares none.
func DefaultEndurance() Endurance { return Endurance{MaxRewalks: 6} }

// Waits says when to wait, park or give up.
type Waits struct {
	// MaxWait is the longest wait that a leg may ask for while another is available. Default 10 s.
	MaxWait time.Duration
	// ParkAfter is the longest wait in place when no leg is available. Default 300 s.
	ParkAfter time.Duration
	// OnAllTripped says what happens when no leg is available for longer than that. Default Park.
	OnAllTripped OnAllTripped
}

// DefaultWaits returns the rules of a ladder that declares none.
func DefaultWaits() Waits {
	return Waits{MaxWait: 10 * time.Second, ParkAfter: 300 * time.Second, OnAllTripped: ParkOnAllTripped}
}

// OnAllTripped says what happens when every allowed leg is open or cooling.
type OnAllTripped string

const (
	// ParkOnAllTripped waits in place for a short while, then gives the pod back until a route reopens.
	ParkOnAllTripped OnAllTripped = "Park"
	// FailOnAllTripped ends the run, unless a leg that is merely cooling comes back within the time of a wait in place.
	FailOnAllTripped OnAllTripped = "Fail"
)

// FailurePolicy decides failures that say nothing about a provider's health.
type FailurePolicy struct {
	// OnCredentialFailure is for credentials that a provider rejects. Default Advance.
	OnCredentialFailure OnCredentialFailure
	// OnContentFiltered is for prompts and answers that a provider's filter withholds. Default Fail.
	OnContentFiltered OnContentFiltered
}

// DefaultFailurePolicy returns the rules of a ladder that declares none.
func DefaultFailurePolicy() FailurePolicy {
	return FailurePolicy{OnCredentialFailure: AdvanceOnCredentialFailure, OnContentFiltered: FailOnContentFiltered}
}

// OnCredentialFailure says what a rejected credential means for a run.
type OnCredentialFailure string

const (
	// AdvanceOnCredentialFailure moves on to the next leg.
	AdvanceOnCredentialFailure OnCredentialFailure = "Advance"
	// ParkOnCredentialFailure parks the run until the credential works.
	ParkOnCredentialFailure OnCredentialFailure = "Park"
	// FailOnCredentialFailure ends the run.
	FailOnCredentialFailure OnCredentialFailure = "Fail"
)

// OnContentFiltered says what a content filter's refusal means for a run.
type OnContentFiltered string

const (
	// FailOnContentFiltered ends the run.
	FailOnContentFiltered OnContentFiltered = "Fail"
	// AdvanceOnContentFiltered asks the next leg.
	AdvanceOnContentFiltered OnContentFiltered = "Advance"
)

// Leg is one provider and one model, as far as the choice between legs needs it.
type Leg struct {
	// Name is unique in the ladder.
	Name string
	// Provider is the name of the leg's provider in the ladder.
	Provider string
	// Route is the leg's identity for health.
	Route route.Route
	// ContextWindow is the size of the model's window in tokens, input and output together.
	ContextWindow int64
	// MaxOutputTokens caps one answer; 0 means a quarter of the window, at most 32,768.
	MaxOutputTokens int64
	// Price is nil if the ladder names none.
	Price *budget.Price
	// Billing is Metered unless it says otherwise.
	Billing Billing
	// SecurityClass is the highest class of data that the leg may see; empty is Public.
	SecurityClass SecurityClass
	// Capabilities are what the model can do besides text; nil is [Tools].
	Capabilities []Capability
	// State is Active unless it says otherwise.
	State State
	// Credential says whether the leg's credential is at hand; empty is CredentialReady.
	Credential CredentialState
}

// maxDefaultOutput caps the answer of a leg that declares no cap of its own.
const maxDefaultOutput = 32_768

// OutputCap returns the most tokens that one answer of the leg may have.
func (l Leg) OutputCap() int64 {
	if l.MaxOutputTokens > 0 {
		return l.MaxOutputTokens
	}
	return min(l.ContextWindow/4, maxDefaultOutput)
}

// Can tells whether the leg has the capability.
func (l Leg) Can(c Capability) bool {
	if l.Capabilities == nil {
		return c == Tools
	}
	return slices.Contains(l.Capabilities, c)
}

// Billing says whether requests to a leg cost money of their own.
type Billing string

const (
	// Metered legs are paid by use.
	Metered Billing = "Metered"
	// Included legs are paid otherwise.
	Included Billing = "Included"
)

// Capability is something that not every model can do.
type Capability string

const (
	// Tools is calling tools.
	Tools Capability = "Tools"
	// Images is reading images.
	Images Capability = "Images"
)

// State is the operator's wish for a leg.
type State string

const (
	// Active legs are used.
	Active State = "Active"
	// Drained legs get no new turns.
	Drained State = "Drained"
)

// CredentialState says whether a leg's credential can be sent.
type CredentialState string

const (
	// CredentialReady credentials are at hand, or the provider asks for none.
	CredentialReady CredentialState = "Ready"
	// CredentialMissing means that the Secret or its key does not exist.
	CredentialMissing CredentialState = "Missing"
	// CredentialNotMounted means that the pod was started before the ladder named the Secret.
	CredentialNotMounted CredentialState = "NotMounted"
	// CredentialInvalid means that the provider rejected the value, and it has not changed since.
	CredentialInvalid CredentialState = "Invalid"
	// CredentialNotForHost means that the Secret names the hosts that it is for, and the leg's is not among them.
	CredentialNotForHost CredentialState = "NotForHost"
)

// SecurityClass orders how confidential data is.
type SecurityClass string

// The classes, from the lowest to the highest.
const (
	Public       SecurityClass = "Public"
	Internal     SecurityClass = "Internal"
	Confidential SecurityClass = "Confidential"
	Restricted   SecurityClass = "Restricted"
)

// rank orders the classes; an empty class is Public, and a name that does not exist has no rank.
func (c SecurityClass) rank() (int, bool) {
	switch c {
	case "", Public:
		return 0, true
	case Internal:
		return 1, true
	case Confidential:
		return 2, true
	case Restricted:
		return 3, true
	}
	return 0, false
}

// Covers tells whether a leg of class c may see data of class data. A class that does not exist covers nothing, and
// nothing covers it.
func (c SecurityClass) Covers(data SecurityClass) bool {
	have, known := c.rank()
	want, meant := data.rank()
	return known && meant && have >= want
}
