package provider

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"

	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/sse"
)

const (
	eventStream = "text/event-stream"
	// maxErrorBody is enough for every error object; the rest of a page is not read.
	maxErrorBody = 64 << 10
)

// Do sends a prepared request once and waits for its end: a complete answer, or a classified failure. It returns soon
// after ctx is cancelled, with the connection closed; the run's own deadline is Cancelled and no fault of the provider.
func (c *Client) Do(ctx context.Context, target Target, p Prepared, try Try) Attempt {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := newWatch(c.clock, cancel, target.Timeouts, try)
	defer w.stop()
	a := attempt{client: c, target: target, prepared: p, ctx: ctx, watch: w}
	out := a.run()
	out.BodySHA256 = p.SHA256
	out.FirstByte = w.firstByteIn
	out.Duration = c.clock.Now().Sub(w.started)
	return out
}

// attempt is the state of one Do.
type attempt struct {
	client   *Client
	target   Target
	prepared Prepared
	ctx      context.Context
	watch    *watch
	// status and header are set when a response came.
	status int
	header http.Header
}

func (a *attempt) run() Attempt {
	dialect, ok := a.client.dialects[a.target.Route.Dialect]
	if !ok || a.prepared.url == nil {
		return a.client.Refused(misconfigured("the request for leg %q was not prepared", a.target.Leg))
	}
	transport, err := a.client.transport(a.target)
	if err != nil {
		return a.client.Refused(err)
	}
	// RoundTrip and not a http.Client: it follows no redirect, so that neither body nor key reaches another host.
	response, err := transport.RoundTrip(a.request())
	if err != nil {
		return a.broken(err)
	}
	defer func() { _ = response.Body.Close() }()
	a.status, a.header = response.StatusCode, response.Header
	body := &watchedBody{body: response.Body, w: a.watch}
	if a.status != http.StatusOK {
		return a.refused(body)
	}
	if err := checkEncoding(a.header); err != nil {
		return a.broken(err)
	}
	switch kind := mediaType(a.header); kind {
	case eventStream, "":
		return a.stream(body, dialect.NewDecoder(a.target))
	case "application/json":
		return a.jsonAnswer(body)
	default:
		return a.broken(failure.Causef(failure.StreamMalformed,
			"the answer has the content type %s instead of an event stream", failure.CleanMediaType(kind)))
	}
}

func (a *attempt) request() *http.Request {
	trace := &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { a.watch.connected() },
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				a.watch.requestSent()
			}
		},
	}
	body := a.prepared.body
	request := &http.Request{
		Method:        http.MethodPost,
		URL:           a.prepared.url,
		Host:          a.prepared.url.Host,
		Header:        a.prepared.header.Clone(),
		ContentLength: int64(len(body)),
		Body:          io.NopCloser(bytes.NewReader(body)),
		// GetBody lets the transport replace an idle connection that was closed before a byte was written, and nothing else:
		// a POST without an idempotency key is never sent twice.
		GetBody: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil },
	}
	return request.WithContext(httptrace.WithClientTrace(a.ctx, trace))
}

// stream decodes an event stream to its end. What came of an answer is charged in either case.
func (a *attempt) stream(body *watchedBody, decoder Decoder) Attempt {
	complete, done := false, false
	observe := func(name []byte, step Step) {
		a.watch.event(name, step.Progress)
		if step.Complete && !complete {
			complete = true
			a.watch.shorten(trailerGrace)
		}
		done = done || step.Done
	}
	answer, facts := ReadAnswer(sse.NewReader(body, a.client.limits), decoder, observe)
	out := Attempt{Answer: answer}
	if answer == nil {
		var cause *failure.Cause
		if facts.Err != nil && !errors.As(facts.Err, &cause) {
			facts.Err = a.causeOf(facts.Err)
		}
		out = a.failed(facts)
		out.Partial = decoder.Text()
	}
	out.Usage = charge(decoder.Usage(), a.prepared.InputEstimate, decoder.OutputBytes(), answer != nil || complete)
	out.ResponseID = a.responseID(decoder.ResponseID())
	out.Warnings = decoder.Warnings()
	if done {
		a.drain(body)
	}
	return out
}

// broken is the failure of an attempt without events. A request that was sent may be billed unless it was refused.
func (a *attempt) broken(err error) Attempt {
	out := a.failed(failure.Facts{Err: a.causeOf(err)})
	if a.watch.wasSent() {
		out.Usage = charge(Usage{}, a.prepared.InputEstimate, 0, false)
	}
	return out
}

// refused is any status but 200. No provider bills a request that it refused.
func (a *attempt) refused(body *watchedBody) Attempt {
	a.watch.shorten(errorBodyGrace)
	raw, _ := io.ReadAll(io.LimitReader(body, maxErrorBody))
	return a.failed(failure.Facts{Err: a.ownCancellation(), Body: raw})
}

// jsonAnswer is a 200 with JSON in place of a stream: an error that was not given its status, or no answer to our request.
func (a *attempt) jsonAnswer(body *watchedBody) Attempt {
	raw, err := io.ReadAll(io.LimitReader(body, maxErrorBody))
	switch {
	case err != nil:
		return a.broken(err)
	case failure.ReportsError(raw):
		return a.failed(failure.Facts{InBand: raw})
	default:
		return a.broken(failure.Causef(failure.StreamMalformed, "the answer is one JSON document instead of an event stream"))
	}
}

func (a *attempt) failed(facts failure.Facts) Attempt {
	facts.Status, facts.Header = a.status, a.header
	f := failure.Classify(facts, a.client.clock.Now())
	return Attempt{Failure: &f, ResponseID: a.responseID("")}
}

// causeOf returns why the context ended, if it did: the transport's own error says only that it was cancelled.
func (a *attempt) causeOf(err error) error {
	if cause := context.Cause(a.ctx); cause != nil {
		return cancelled(cause)
	}
	return err
}

// ownCancellation is the run's cancellation; a timer of ours is none here, because an error status tells more.
func (a *attempt) ownCancellation() error {
	cause := context.Cause(a.ctx)
	var timer *failure.Cause
	if cause == nil || errors.As(cause, &timer) && timer.Kind != failure.Cancelled {
		return nil
	}
	return cancelled(cause)
}

// cancelled makes every foreign cause of a cancelled context, such as a shutdown, a Cancelled one.
func cancelled(cause error) error {
	var own *failure.Cause
	if errors.As(cause, &own) {
		return cause
	}
	return failure.Causef(failure.Cancelled, "the attempt was cancelled: %v", cause)
}

// drain reads the end of the body after the stream's last event, so that the connection can be used again.
func (a *attempt) drain(body *watchedBody) {
	a.watch.shorten(drainGrace)
	_, _ = io.CopyN(io.Discard, body, maxErrorBody)
}

func (a *attempt) responseID(id string) string {
	for _, candidate := range []string{id, a.header.Get("X-Request-Id"), a.header.Get("Request-Id")} {
		if candidate = failure.CleanCode(candidate); candidate != "" {
			return candidate
		}
	}
	return ""
}

func checkEncoding(header http.Header) error {
	switch encoding := header.Get("Content-Encoding"); encoding {
	case "", "identity":
		return nil
	default:
		return failure.Causef(failure.StreamMalformed, "the answer is compressed although no compression was asked for")
	}
}

func mediaType(header http.Header) string {
	kind, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil && kind == "" && header.Get("Content-Type") != "" {
		return "unreadable"
	}
	return kind
}
