// Package provider turns one request of the loop into one HTTP attempt at one leg: it renders the neutral trajectory in
// the leg's dialect, sends it, watches the stream with five timers, and returns either a complete answer or a classified
// failure. It never retries: every retry is a decision of the walk.
//
// It may import the pure leaves of the runtime and the SSE reader; dialects live in packages of their own, which
// import this one and never each other.
package provider

import (
	"encoding/json"
	"time"

	"belay.dev/belay/internal/runtime/budget"
	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/message"
	"belay.dev/belay/internal/runtime/route"
)

// Target is one leg as an attempt needs it: where to send, how to speak, how long to wait.
type Target struct {
	// Leg is the leg's name in its ladder.
	Leg   string
	Route route.Route
	// Secret is the credential's value. It is sent to the route's own host only and appears nowhere else.
	Secret string
	// Headers are the provider's additional headers, already resolved and checked.
	Headers []Header
	// CABundle is PEM to trust besides the system's roots; empty for none.
	CABundle []byte
	// Insecure says where plain http is allowed. https is always allowed.
	Insecure Insecure
	// MaxOutputTokens caps the answer; 0 lets the dialect's default stand.
	MaxOutputTokens int64
	Timeouts        Timeouts
	// Parameters are merged into the body as the ladder declares them; a JSON object or nil.
	Parameters json.RawMessage
	// Reasoning says what to do with reasoning text of earlier turns.
	Reasoning ReasoningReplay
	// MissingFinishReason says whether a stream with content and [DONE] but no finish reason is complete.
	MissingFinishReason MissingFinishReason
	// Images tells whether the leg declares the image capability.
	Images bool
}

// Header is one HTTP header of a provider.
type Header struct{ Name, Value string }

// Insecure says where a provider may be reached without TLS.
type Insecure string

const (
	// InsecureForbid allows https only. It is the default.
	InsecureForbid Insecure = "Forbid"
	// InsecureLoopback allows http to loopback addresses.
	InsecureLoopback Insecure = "Loopback"
	// InsecureCluster allows http to loopback and cluster-local service names.
	InsecureCluster Insecure = "Cluster"
)

// ReasoningReplay says what happens to reasoning text of earlier turns of the same issuer.
type ReasoningReplay string

const (
	// ReasoningDrop sends none. It is the default.
	ReasoningDrop ReasoningReplay = "Drop"
	// ReasoningReplayed sends it back to its issuer.
	ReasoningReplayed ReasoningReplay = "Replay"
	// ReasoningPlaceholder sends an empty value for turns minted elsewhere.
	ReasoningPlaceholder ReasoningReplay = "Placeholder"
)

// MissingFinishReason is the policy for streams that never name a finish reason.
type MissingFinishReason string

const (
	// MissingFinishReject calls such a stream truncated. It is the default.
	MissingFinishReject MissingFinishReason = "Reject"
	// MissingFinishAccept takes it as complete if it has content and [DONE].
	MissingFinishAccept MissingFinishReason = "Accept"
)

// Timeouts bound one attempt. Zero disables a timer.
type Timeouts struct {
	// Connect bounds name lookup, TCP and TLS together. Default 10 s.
	Connect time.Duration
	// FirstByte bounds the time from the sent request to the first byte of the answer's body. Default 120 s.
	FirstByte time.Duration
	// Idle bounds the silence between any two bytes. Default 120 s, 30 s wider for each try at the leg.
	Idle time.Duration
	// Progress bounds the time between two pieces of content; pings and comments are none. Default 300 s, widened alike.
	Progress time.Duration
	// Attempt bounds the whole attempt. Default 1,200 s.
	Attempt time.Duration
}

// DefaultTimeouts are the values for a leg that declares none.
func DefaultTimeouts() Timeouts {
	return Timeouts{
		Connect:   10 * time.Second,
		FirstByte: 120 * time.Second,
		Idle:      120 * time.Second,
		Progress:  300 * time.Second,
		Attempt:   1200 * time.Second,
	}
}

// Try is the circumstance of one send.
type Try struct {
	// Number counts the requests to the leg in this turn from 1. Idle and progress windows widen by 30 s with each further
	// one.
	Number int
	// Probe is the only request of a half-open route: it has at most ProbeFirstByte to the first byte.
	Probe bool
}

// ProbeFirstByte bounds the time to the first byte of a probe.
const ProbeFirstByte = 60 * time.Second

// Request is what the loop wants answered, free of any dialect.
type Request struct {
	System   string
	Messages []message.Message
	Tools    []Tool
	// ToolChoiceNone forbids calls in this answer, for example for a summary.
	ToolChoiceNone bool
}

// Tool is a tool as a model is told about it.
type Tool struct {
	Name        string
	Description string
	// InputSchema is a JSON Schema object.
	InputSchema json.RawMessage
}

// Usage counts tokens as the provider bills them.
type Usage = budget.Usage

// Attempt is the outcome of one HTTP request to one leg. Answer and Failure exclude each other.
type Attempt struct {
	// Answer is set when the terminal marker was seen.
	Answer *message.Message
	// Failure is set otherwise.
	Failure *failure.Failure
	// Usage is charged in either case.
	Usage Usage
	// Partial is the text that arrived before a failure; it never enters the trajectory.
	Partial string
	// BodySHA256 is the hash of the request, in hex: Prepared.SHA256 of what was sent.
	BodySHA256 string
	// FirstByte is the time from the send to the first byte of the body, 0 if none came.
	FirstByte time.Duration
	// Duration is the time of the whole attempt.
	Duration time.Duration
	// ResponseID is the provider's own id of the answer or request, for its support; bounded, may be empty.
	ResponseID string
	// Warnings are facts worth a record, for example a content filter that was down.
	Warnings []string
}
