// Package failure is the closed taxonomy of what can go wrong between a leg and an answer: one list of kinds, one
// function that finds the kind of a failed attempt, and one exhaustive table that says what a kind means for the walk
// and for health. Nothing else in Belay decides by status code or text.
//
// The package is a pure leaf: it imports the standard library only, and takes the time as an argument.
package failure

// Kind is the class of a failure. The list is closed and append-only: ledgers and status objects hold these strings.
type Kind string

const (
	// Network is a connection that could not be made or broke before an answer began: DNS, refused, reset, TLS.
	Network Kind = "Network"
	// Timeout is a request that the provider, a gateway or our own first-byte or attempt limit gave up on.
	Timeout Kind = "Timeout"
	// ServerError is a provider's own fault: 5xx and their in-band equivalents.
	ServerError Kind = "ServerError"
	// StreamTruncated is a stream that ended before its terminal marker.
	StreamTruncated Kind = "StreamTruncated"
	// StreamMalformed is a stream that cannot be what was asked for: a broken event, HTML, an event over the size bound.
	StreamMalformed Kind = "StreamMalformed"
	// StreamStalled is a stream that stayed open without bytes, or with bytes that are no progress.
	StreamStalled Kind = "StreamStalled"
	// RateLimited is a request or token rate that was exceeded and refills by itself.
	RateLimited Kind = "RateLimited"
	// Overloaded is a provider that has no capacity at the moment.
	Overloaded Kind = "Overloaded"
	// QuotaExhausted is a spent quota that refills at a fixed time or by an operator.
	QuotaExhausted Kind = "QuotaExhausted"
	// Billing is an account without credit.
	Billing Kind = "Billing"
	// ModelNotFound is a model that the endpoint does not serve.
	ModelNotFound Kind = "ModelNotFound"
	// AuthError is a credential that is missing, wrong or revoked.
	AuthError Kind = "AuthError"
	// PermissionDenied is a valid credential that may not do this.
	PermissionDenied Kind = "PermissionDenied"
	// InvalidRequest is a body that is wrong everywhere.
	InvalidRequest Kind = "InvalidRequest"
	// ContextLengthExceeded is a request larger than the leg's window or largest request.
	ContextLengthExceeded Kind = "ContextLengthExceeded"
	// OutputTruncated is an answer cut by its output limit.
	OutputTruncated Kind = "OutputTruncated"
	// ContentFiltered is a prompt or answer that the provider's filter withheld.
	ContentFiltered Kind = "ContentFiltered"
	// EmptyResponse is a finished answer without text and calls.
	EmptyResponse Kind = "EmptyResponse"
	// Unknown is a failure that no rule names. It stays retryable within the bounded budget: to call a transient failure
	// permanent costs more than two wasted tries.
	Unknown Kind = "Unknown"
	// Cancelled is our own cancellation; never a provider's fault.
	Cancelled Kind = "Cancelled"
)

// Kinds returns all kinds, in the order in which they were introduced.
func Kinds() []Kind {
	return []Kind{
		Network, Timeout, ServerError, StreamTruncated, StreamMalformed, StreamStalled, RateLimited, Overloaded,
		QuotaExhausted, Billing, ModelNotFound, AuthError, PermissionDenied, InvalidRequest, ContextLengthExceeded,
		OutputTruncated, ContentFiltered, EmptyResponse, Unknown, Cancelled,
	}
}
