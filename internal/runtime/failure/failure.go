package failure

import "time"

// Failure is a classified failure of one attempt. It holds no text of the provider.
type Failure struct {
	Kind Kind `json:"kind"`
	// Sub refines the kind where the repair differs; empty otherwise.
	Sub Sub `json:"sub,omitempty"`
	// HTTPStatus is the status of the response, 0 if none came.
	HTTPStatus int `json:"httpStatus,omitempty"`
	// Code is the provider's own error code, bounded and reduced to [A-Za-z0-9_.:-].
	Code string `json:"code,omitempty"`
	// Wait is the provider's wait hint, nil if there was none that parses.
	Wait *Wait `json:"wait,omitempty"`
	// NoRetry is a provider's explicit wish not to be asked again (x-should-retry: false); it binds the same leg only.
	NoRetry bool `json:"noRetry,omitempty"`
	// Message says in our words what happened and what to do; no provider text, no secret.
	Message string `json:"message"`
	// Limit and Requested are the numbers of a ContextLengthExceeded, in tokens, where the provider told them; 0 if it did
	// not. With SubOutputReservation, Requested is the input alone: an output cap of Limit − Requested fits.
	Limit     int64 `json:"limit,omitempty"`
	Requested int64 `json:"requested,omitempty"`
}

// Wait is a provider's hint when to come back.
type Wait struct {
	// Duration is from the moment of classification, in [0, 24 h].
	Duration time.Duration `json:"duration"`
	// Source names where the hint was found, for example retry-after-ms.
	Source string `json:"source"`
}

// Sub refines a kind.
type Sub string

const (
	// SubOutputReservation is an input that fits, together with an output cap that does not.
	SubOutputReservation Sub = "output_reservation"
	// SubExceedsRateBucket is a request larger than the whole rate bucket: it never fits.
	SubExceedsRateBucket Sub = "exceeds_rate_bucket"
	// SubBytes is a body over the provider's size limit in bytes.
	SubBytes Sub = "bytes"
	// SubMalformedToolCall is an answer without content because the model's call could not be parsed.
	SubMalformedToolCall Sub = "malformed_tool_call"
	// SubWarming is a server that is loading its model.
	SubWarming Sub = "warming"
	// SubHistoryShape is a request whose history the provider refuses: pairing, order, signatures.
	SubHistoryShape Sub = "history_shape"
	// SubConfiguration is a fault of our side's configuration that no retry mends, such as an untrusted certificate.
	SubConfiguration Sub = "configuration"
)
