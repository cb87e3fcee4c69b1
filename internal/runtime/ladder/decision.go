package ladder

import (
	"time"

	"belay.dev/belay/internal/runtime/breaker"
	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/route"
)

// Action is what a walk wants done next.
type Action string

const (
	// Send asks for one request to Decision.Leg, whose end is told by Record.
	Send Action = "Send"
	// Wait asks to wait for Decision.For, or until health changes, and to call Next again.
	Wait Action = "Wait"
	// Amend asks for the request to be changed before Decision.Leg can be asked, as Decision.Amendment says; it is answered
	// by Amended or CannotAmend.
	Amend Action = "Amend"
	// Park asks to give the pod back until Decision.Until, or until health or the ladder changes.
	Park Action = "Park"
	// Stop ends the run for Decision.Reason.
	Stop Action = "Stop"
)

// WaitReason says what a wait is for.
type WaitReason string

const (
	// WaitBackoff is the backoff before the same leg is asked again.
	WaitBackoff WaitReason = "Backoff"
	// WaitCooling is the time that the leg itself asked for.
	WaitCooling WaitReason = "Cooling"
	// WaitRewalk is the backoff before the ladder is walked again.
	WaitRewalk WaitReason = "Rewalk"
	// WaitRoutes is the time until the first of the legs that are all open or cooling may be asked.
	WaitRoutes WaitReason = "RoutesUnavailable"
)

// ParkReason says what a parked run waits for.
type ParkReason string

const (
	// ParkRoutes waits for a route.
	ParkRoutes ParkReason = "RoutesUnavailable"
	// ParkCredential waits for a credential that works.
	ParkCredential ParkReason = "CredentialInvalid"
)

// StopReason is why a walk ends a run, as the run's Succeeded condition gives it.
type StopReason string

// The reasons for which a walk ends a run.
const (
	StopRetriesExhausted   StopReason = "RetriesExhausted"
	StopAllRoutesTripped   StopReason = "AllRoutesTripped"
	StopNoRouteAllowed     StopReason = "NoRouteAllowed"
	StopCredentialInvalid  StopReason = "CredentialInvalid"
	StopInvalidRequest     StopReason = "InvalidRequest"
	StopContextIrreducible StopReason = "ContextIrreducible"
	StopOutputTruncated    StopReason = "OutputTruncated"
	StopContentFiltered    StopReason = "ContentFiltered"
	StopEmptyResponse      StopReason = "EmptyResponse"
	StopCancelled          StopReason = "Cancelled"
)

// Amendment says how a request must be changed before a leg can be asked again.
type Amendment string

const (
	// RereadCredential reads the mounted credential again; the leg is asked again if it has another value.
	RereadCredential Amendment = "RereadCredential"
	// RepairRequest repairs the body where the failure's sub-kind says how.
	RepairRequest Amendment = "RepairRequest"
	// ReduceContext makes the context smaller.
	ReduceContext Amendment = "ReduceContext"
	// RaiseOutputCap raises the output cap, or continues from the break if the cut turn has no call.
	RaiseOutputCap Amendment = "RaiseOutputCap"
)

// FallbackReason says why a walk went on to a later leg.
type FallbackReason string

const (
	// FallbackRouteOpen means that the earlier leg's breaker is open.
	FallbackRouteOpen FallbackReason = "RouteOpen"
	// FallbackRouteCooling means that the earlier leg asked to be left alone for a while.
	FallbackRouteCooling FallbackReason = "RouteCooling"
	// FallbackRouteHalfOpen means that the earlier leg's only probe is another's.
	FallbackRouteHalfOpen FallbackReason = "RouteHalfOpen"
	// FallbackTriesSpent means that the earlier leg failed as often as it is tried in one walk.
	FallbackTriesSpent FallbackReason = "TriesSpent"
	// FallbackWaitTooLong means that the earlier leg asked for a wait longer than waits.maxWaitSeconds.
	FallbackWaitTooLong FallbackReason = "WaitTooLong"
	// FallbackPaidTwice means that the earlier leg charged for two answers of the turn that broke.
	FallbackPaidTwice FallbackReason = "PaidTwice"
	// FallbackNoRetry means that a failure of the earlier leg is not tried again there.
	FallbackNoRetry FallbackReason = "NoRetry"
	// FallbackWindowTooSmall means that the request does not fit into the earlier leg's window.
	FallbackWindowTooSmall FallbackReason = "WindowTooSmall"
)

// Fallback is a change to a later leg.
type Fallback struct {
	From, To string
	// Kind is the last failure of the earlier leg, or of its route; empty when there is none.
	Kind   failure.Kind
	Reason FallbackReason
}

// Decision is what to do next. Which fields are set depends on Action.
type Decision struct {
	Action Action
	// Leg is the leg to ask or to amend the request for; with Wait, the leg that is waited for, if it is one.
	Leg string
	// Route is that leg's route.
	Route route.Name
	// Try numbers the requests to the leg in this turn from 1; idle and progress windows widen by it.
	Try int
	// Probe tells that the request is the only one of a half-open route: 60 s to the first byte, and no second try.
	Probe bool
	// Position is where the route stands.
	Position breaker.Position
	// FailoverFrom is the earlier leg that would have been asked if it could; empty on the first choice.
	FailoverFrom string
	// Fallback is set when the leg is a later one than the last request of the run went to. It is told once.
	Fallback *Fallback

	// For is how long to wait, and Until when the wait or park may end by itself; zero Until when no time is known.
	For   time.Duration
	Until time.Time
	// Waiting says what a wait is for.
	Waiting WaitReason
	// Kind is the failure behind a wait or an amendment.
	Kind failure.Kind
	// Sub refines Kind for an amendment.
	Sub failure.Sub
	// Announced tells that the same wait was decided before: it is on record already.
	Announced bool

	// Amendment says what to change.
	Amendment Amendment
	// Parking says what a park waits for.
	Parking ParkReason
	// Routes are the routes that can end a wait or a park, where it is for routes.
	Routes []route.Name
	// Reason is why the run ends.
	Reason StopReason
	// Message says it for people: each leg, what failed there, and how long it stays unavailable.
	Message string
}
