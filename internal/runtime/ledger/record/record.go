// Package record defines what a run writes into its ledger: one Go type for each record type, as it stands in the data
// member of an envelope. The ledger itself treats payloads as opaque; the loop writes these, and replay, the timeline
// and the export read them. Fields are only ever added; a reader takes a missing field as its zero value.
//
// The package is a pure leaf: it imports the pure leaves of the runtime only.
package record

import (
	"time"

	"belay.dev/belay/internal/runtime/budget"
	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/message"
	"belay.dev/belay/internal/runtime/route"
)

// Type is the type member of an envelope.
type Type string

// The record types. A critical one may not be skipped by a reader that does not know it, since the trajectory or the
// fencing of the run depends on it; Critical tells which.
const (
	TypeRunStart       Type = "run.start"
	TypeEpochStart     Type = "epoch.start"
	TypeTurnPlan       Type = "turn.plan"
	TypeLLMRequest     Type = "llm.request"
	TypeLLMAttempt     Type = "llm.attempt"
	TypeRetryScheduled Type = "retry.scheduled"
	TypeRouteFallback  Type = "route.fallback"
	TypeBreakerChanged Type = "breaker.changed"
	TypeLLMResponse    Type = "llm.response"
	TypeToolStart      Type = "tool.start"
	TypeToolResult     Type = "tool.result"
	TypeControl        Type = "control"
	TypeDiagnostic     Type = "diagnostic"
	TypeTurnEnd        Type = "turn.end"
	TypeRunPark        Type = "run.park"
	TypeRunSuspend     Type = "run.suspend"
	TypeRunEnd         Type = "run.end"
)

// Critical reports whether a reader that does not know the type must refuse the ledger.
func (t Type) Critical() bool {
	switch t {
	case TypeRunStart, TypeEpochStart, TypeLLMRequest, TypeLLMAttempt, TypeLLMResponse, TypeToolStart, TypeToolResult,
		TypeControl, TypeTurnEnd, TypeRunPark, TypeRunEnd:
		return true
	case TypeTurnPlan, TypeRetryScheduled, TypeRouteFallback, TypeBreakerChanged, TypeDiagnostic, TypeRunSuspend:
		return false
	}
	return false
}

// Known reports whether this build understands the type.
func Known(t string) bool {
	switch Type(t) {
	case TypeRunStart, TypeEpochStart, TypeTurnPlan, TypeLLMRequest, TypeLLMAttempt, TypeRetryScheduled,
		TypeRouteFallback, TypeBreakerChanged, TypeLLMResponse, TypeToolStart, TypeToolResult, TypeControl,
		TypeDiagnostic, TypeTurnEnd, TypeRunPark, TypeRunSuspend, TypeRunEnd:
		return true
	}
	return false
}

// Ladder is which ladder a record was judged by.
type Ladder struct {
	Name       string `json:"name"`
	UID        string `json:"uid,omitempty"`
	Generation int64  `json:"generation"`
}

// RunStart is the first record of every ledger.
type RunStart struct {
	RunUID    string   `json:"runUID"`
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Contract  Contract `json:"contract"`
	// ContractSHA256 identifies the contract, in hex; a later start with another contract is refused.
	ContractSHA256 string   `json:"contractSHA256"`
	Ladder         Ladder   `json:"ladder"`
	Warnings       []string `json:"warnings,omitempty"`
}

// EpochStart is the first record of every epoch.
type EpochStart struct {
	PodName string `json:"podName,omitempty"`
	PodUID  string `json:"podUID,omitempty"`
	// Version is the runtime's version, for whoever reads a ledger of several.
	Version string `json:"version"`
	// BootID is the workspace supervisor's, random per start of it.
	BootID string `json:"bootID,omitempty"`
	// ReplayedTurns counts the committed turns that this epoch found and did not ask for again.
	ReplayedTurns int `json:"replayedTurns,omitempty"`
}

// TurnPlan is the plan of one turn and the reason for each leg that is not in it.
type TurnPlan struct {
	Turn           int       `json:"turn"`
	PlannerVersion int       `json:"plannerVersion"`
	Ladder         Ladder    `json:"ladder"`
	Legs           []string  `json:"legs"`
	Skipped        []Skipped `json:"skipped,omitempty"`
}

// Skipped is a leg that a plan left out.
type Skipped struct {
	Leg    string `json:"leg"`
	Reason string `json:"reason"`
	// Until is when the reason is expected to end; nil when no time is known.
	Until *time.Time `json:"until,omitempty"`
}

// LLMRequest is written and synced before a request is sent, so that a request lost in a crash is paid for in the books.
type LLMRequest struct {
	Turn int `json:"turn"`
	// Attempt numbers the requests of the run from 1; a receipt carries the same number.
	Attempt int        `json:"attempt"`
	Leg     string     `json:"leg"`
	Route   route.Name `json:"route"`
	// FailoverFrom is the leg that would have been asked if it could, empty on the plan's first.
	FailoverFrom string `json:"failoverFrom,omitempty"`
	// Try numbers the requests to this leg in this turn from 1.
	Try int `json:"try"`
	// RequestSHA256 covers leg, model and body.
	RequestSHA256 string `json:"requestSHA256"`
	BodyBytes     int64  `json:"bodyBytes"`
	// Reserved is charged when no receipt follows.
	Reserved budget.Charge `json:"reserved"`
	// Probe marks the one request of a half-open route.
	Probe bool `json:"probe,omitempty"`
}

// LLMAttempt is the receipt of one request.
type LLMAttempt struct {
	Turn    int        `json:"turn"`
	Attempt int        `json:"attempt"`
	Leg     string     `json:"leg"`
	Route   route.Name `json:"route"`
	// FailoverFrom is the leg whose failure led to this one, empty on the plan's first.
	FailoverFrom string `json:"failoverFrom,omitempty"`
	// CircuitState is the state of the route's breaker when the request was sent.
	CircuitState string `json:"circuitState"`
	// Failure is nil for a request that was answered.
	Failure *failure.Failure `json:"failure,omitempty"`
	// FirstByteMilliseconds and DurationMilliseconds are measured on the monotonic clock.
	FirstByteMilliseconds int64         `json:"firstByteMilliseconds,omitempty"`
	DurationMilliseconds  int64         `json:"durationMilliseconds"`
	Charge                budget.Charge `json:"charge"`
	ResponseID            string        `json:"responseID,omitempty"`
	// Probe marks the one request of a half-open route.
	Probe bool `json:"probe,omitempty"`
	// Credential is the fingerprint of a credential that the provider rejected. It is keyed by the run, and tells two values
	// apart without telling anything about them.
	Credential string `json:"credential,omitempty"`
	// Partial names the blob with the text of a broken answer.
	Partial  *Blob    `json:"partial,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

// Blob names bytes in the ledger's blob store.
type Blob = message.Blob

// RetryScheduled says when the same leg will be tried again, or the plan walked again (Leg empty).
type RetryScheduled struct {
	Turn              int          `json:"turn"`
	Leg               string       `json:"leg,omitempty"`
	Kind              failure.Kind `json:"kind,omitempty"`
	DelayMilliseconds int64        `json:"delayMilliseconds"`
	Reason            string       `json:"reason"`
}

// RouteFallback says why the run went on to another leg.
type RouteFallback struct {
	Turn   int          `json:"turn"`
	From   string       `json:"from"`
	To     string       `json:"to"`
	Kind   failure.Kind `json:"kind,omitempty"`
	Reason string       `json:"reason"`
}

// BreakerChanged is a transition of a route's breaker in this runner.
type BreakerChanged struct {
	Route  route.Name   `json:"route"`
	Leg    string       `json:"leg"`
	From   string       `json:"from"`
	To     string       `json:"to"`
	Until  *time.Time   `json:"until,omitempty"`
	Kind   failure.Kind `json:"kind,omitempty"`
	Reason string       `json:"reason,omitempty"`
}

// LLMResponse is the commit point of a turn: from here on the model is never asked for it again.
type LLMResponse struct {
	Turn    int             `json:"turn"`
	Attempt int             `json:"attempt"`
	Leg     string          `json:"leg"`
	Message message.Message `json:"message"`
}

// ToolStart is written and synced before a call is dispatched.
type ToolStart struct {
	Turn       int       `json:"turn"`
	Call       string    `json:"call"`
	Attempt    int       `json:"attempt"`
	Tool       string    `json:"tool"`
	Effect     string    `json:"effect"`
	ArgsSHA256 string    `json:"argsSHA256"`
	BootID     string    `json:"bootID,omitempty"`
	Deadline   time.Time `json:"deadline"`
}

// ToolResult answers one call, once.
type ToolResult struct {
	Turn    int `json:"turn"`
	Attempt int `json:"attempt"`
	// Result is what the model is told.
	Result message.Result `json:"result"`
	// DurationMilliseconds is measured on the monotonic clock, 0 when the call was not observed to its end.
	DurationMilliseconds int64 `json:"durationMilliseconds,omitempty"`
	// CommandFailed marks a command that ran, ended by itself and reported a failure: the tool worked.
	CommandFailed bool `json:"commandFailed,omitempty"`
	// Refusal names the guard's rule that kept the call from being dispatched; empty if none did.
	Refusal string `json:"refusal,omitempty"`
	// Recovered marks a result found or decided at the start of a later epoch.
	Recovered bool `json:"recovered,omitempty"`
}

// Control is a note of the runtime to the model; it is never shown to people as the user's words.
type Control struct {
	Turn int    `json:"turn"`
	Kind string `json:"kind"`
	Text string `json:"text"`
}

// The kinds of control records.
const (
	// ControlContinue asks for the rest of an answer that the output limit cut.
	ControlContinue = "Continue"
	// ControlRepair restates what a model that cannot get its calls right has to know.
	ControlRepair = "Repair"
	// ControlLoopWarning tells a model that it goes in circles.
	ControlLoopWarning = "LoopWarning"
	// ControlInDoubt tells the facts about calls whose outcome was not observed.
	ControlInDoubt = "InDoubt"
)

// Diagnostic is a fact for people; the loop does not read it back.
type Diagnostic struct {
	Turn   int    `json:"turn,omitempty"`
	Reason string `json:"reason"`
	Text   string `json:"text"`
}

// TurnEnd closes a turn whose calls are all answered.
type TurnEnd struct {
	Turn int `json:"turn"`
}

// RunPark ends an epoch that waits without a pod.
type RunPark struct {
	Turn int `json:"turn"`
	// Reason is the wake condition, for example RoutesUnavailable.
	Reason string `json:"reason"`
	// Until is the earliest time at which the run may go on by itself.
	Until   time.Time    `json:"until"`
	Routes  []route.Name `json:"routes,omitempty"`
	Message string       `json:"message"`
}

// RunSuspend ends an epoch in an orderly way, for example at SIGTERM; the next epoch goes on.
type RunSuspend struct {
	Turn   int    `json:"turn"`
	Reason string `json:"reason"`
}

// RunEnd is the last record of a finished run. It is reported again by whoever opens the ledger later.
type RunEnd struct {
	Turn int `json:"turn"`
	// Reason is Completed, or why the run did not succeed.
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Text is the final answer, whole.
	Text string `json:"text"`
}

// ReasonCompleted is the only RunEnd reason of a successful run.
const ReasonCompleted = "Completed"
