package failure

import (
	"net/http"
	"time"
)

// Facts is what is known of an attempt that did not end in an answer. Classify reads it and keeps none of its text.
type Facts struct {
	// Err is why our side stopped: a *Cause, the cause of a cancelled context, or an error of the transport. Nil when the
	// provider's own words are all there is.
	Err error
	// InBand is the event of a 200 stream, or the JSON body of a 200, that reports an error; nil if none did.
	InBand []byte
	// Status is the HTTP status, 0 if no response came.
	Status int
	// Header is the response's header; nil if no response came.
	Header http.Header
	// Body is the beginning of an error response's body; the caller bounds it.
	Body []byte
}

// Classify finds the kind of a failed attempt. The first stage that is certain decides:
//
//  1. our own cancellation, deadline or timer;
//  2. the stream's own word: an error event, a bad or missing terminal marker, a broken connection;
//  3. the structured error body: codes and types;
//  4. the wait hints, which add when to come back;
//  5. the HTTP status;
//  6. the message's text, word by word, which may only refine what a generic type or status left open.
//
// A code like invalid_request_error or a bare 500 is generic: it names a family, and the later stages may refine it.
// Whatever no stage names is Unknown, which stays retryable. The result holds no text of the provider.
func Classify(f Facts, now time.Time) Failure {
	if own, ok := ownCause(f.Err); ok {
		return finish(own, f, errorBody{}, now)
	}
	body := parseErrorBody(f.Body)
	if f.InBand != nil {
		body = parseErrorBody(f.InBand)
	} else if broken, ok := brokenStream(f); ok {
		return finish(broken, f, errorBody{}, now)
	}
	v := bodyVerdict(body, f.Header)
	if !v.firm {
		v = refineByText(statusVerdict(v, f, body), body)
	}
	return finish(v, f, body, now)
}

// verdict is what a stage concludes. A firm verdict ends the search; any other may be refined by a later stage.
type verdict struct {
	kind Kind
	sub  Sub
	firm bool
	// noHint tells that a wait hint beside this verdict means nothing: a spent budget does not refill in seconds.
	noHint bool
	// limit and requested are token counts the provider told.
	limit, requested int64
	// message is set when our side already has the words.
	message string
}

func finish(v verdict, f Facts, body errorBody, now time.Time) Failure {
	if v.kind == "" {
		v.kind = Unknown
	}
	out := Failure{
		Kind:       v.kind,
		Sub:        v.sub,
		HTTPStatus: f.Status,
		Code:       body.code(f.Header),
		NoRetry:    f.Header.Get("X-Should-Retry") == "false",
		Limit:      v.limit,
		Requested:  v.requested,
		Message:    v.message,
	}
	if !v.noHint && takesHint(v.kind) {
		out.Wait = waitHint(f.Header, body, v.kind, now)
	}
	if out.Message == "" {
		out.Message = describe(out)
	}
	return out
}

// takesHint tells the kinds for which a time to come back has a meaning.
func takesHint(k Kind) bool {
	switch k {
	case RateLimited, Overloaded, QuotaExhausted, ServerError, Timeout, Unknown:
		return true
	case Network, StreamTruncated, StreamMalformed, StreamStalled, Billing, ModelNotFound, AuthError, PermissionDenied,
		InvalidRequest, ContextLengthExceeded, OutputTruncated, ContentFiltered, EmptyResponse, Cancelled:
		return false
	}
	return false
}
