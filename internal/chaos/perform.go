package chaos

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"time"
)

// perform answers an accepted request as its step says. It panics with http.ErrAbortHandler where the connection must
// end inside an answer, which net/http defines for this.
func (x *exchange) perform(p played, conv conversation) {
	ctx, cancel := context.WithCancel(x.r.Context())
	defer cancel()
	defer context.AfterFunc(x.s.closing, cancel)()
	step := p.step
	if !x.sleep(ctx, step.FirstByteDelayMilliseconds) {
		x.leave(step)
	}
	switch {
	case step.Reset != nil:
		x.settle(step, OutcomeReset, Usage{}, 0)
		x.hangUp()
	case step.Silence != nil:
		x.silence(ctx, step)
	case step.Status != 0 || step.Redirect != nil:
		x.status(ctx, step)
	default:
		x.turn(ctx, p, conv)
	}
}

// settle settles with what the step bills.
func (x *exchange) settle(step Step, outcome Outcome, used Usage, events int) {
	if step.Billing != nil {
		used = *step.Billing
	}
	x.s.journal.settle(x.entry, outcome, used, events)
}

// leave ends an exchange before its first byte because the client or the server ended it.
func (x *exchange) leave(step Step) {
	x.settle(step, OutcomeClientGone, Usage{}, 0)
	panic(http.ErrAbortHandler)
}

func (x *exchange) sleep(ctx context.Context, milliseconds int64) bool {
	if milliseconds <= 0 {
		return ctx.Err() == nil
	}
	timer := x.s.opts.Clock.NewTimer(time.Duration(milliseconds) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-ctx.Done():
		return false
	}
}

// header writes the response's status and headers.
func (x *exchange) header(step Step, status int, contentType string) {
	h := x.w.Header()
	h.Set("Content-Type", orDefault(step.ContentType, contentType))
	h.Set(x.dialect.requestIDHeader(), x.requestID())
	if hint := step.RetryAfter; hint != nil {
		wait := time.Duration(hint.Milliseconds) * time.Millisecond
		switch orDefault(hint.Form, RetryAfterSeconds) {
		case RetryAfterSeconds:
			h.Set("Retry-After", strconv.FormatFloat(wait.Seconds(), 'f', -1, 64))
		case RetryAfterDate:
			h.Set("Retry-After", x.s.opts.Clock.Now().Add(wait).UTC().Format(http.TimeFormat))
		case RetryAfterMilliseconds:
			h.Set("Retry-After-Ms", strconv.FormatInt(hint.Milliseconds, 10))
		}
	}
	for name, value := range step.Headers {
		h.Set(name, value)
	}
	x.s.journal.note(x.entry, func(q *Request) { q.Status = status })
	x.w.WriteHeader(status)
}

func (x *exchange) status(ctx context.Context, step Step) {
	if !x.sleep(ctx, step.DelayMilliseconds) {
		x.leave(step)
	}
	x.settle(step, OutcomeStatus, Usage{}, 0)
	if step.Redirect != nil {
		x.w.Header().Set("Location", step.Redirect.Location)
		x.header(step, orDefault(step.Redirect.Status, http.StatusTemporaryRedirect), "text/plain; charset=utf-8")
		return
	}
	body := []byte(step.Body)
	if step.Body == "" && step.Status >= 400 {
		body = x.dialect.errorBody(scriptedError(step), x.requestID())
	}
	x.header(step, step.Status, "application/json")
	_, _ = x.w.Write(body) // the answer is settled; a client that left changes nothing
}

// scriptedError is the error of a status step, with the status's own words where the script has none.
func scriptedError(step Step) rejection {
	r := rejection{status: step.Status, kind: kindOfStatus(step.Status), message: orDefault(http.StatusText(step.Status), "Overloaded")}
	if e := step.Error; e != nil {
		r.message = orDefault(e.Message, r.message)
		r.typeName, r.code, r.param = e.Type, e.Code, e.Param
	}
	return r
}

func (x *exchange) silence(ctx context.Context, step Step) {
	if step.Silence.After == SilenceAfterHeaders {
		x.header(step, http.StatusOK, "text/event-stream; charset=utf-8")
		_ = http.NewResponseController(x.w).Flush()
	}
	x.settle(step, OutcomeSilence, Usage{}, 0)
	<-ctx.Done()
	panic(http.ErrAbortHandler)
}

// hangUp resets the connection. Where it cannot be had, as in HTTP/2, the stream is aborted instead.
func (x *exchange) hangUp() {
	if conn, _, err := http.NewResponseController(x.w).Hijack(); err == nil {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // makes Close send a reset
		}
		_ = conn.Close()
	}
	panic(http.ErrAbortHandler)
}

// turn answers with a model turn or with raw events.
func (x *exchange) turn(ctx context.Context, p played, conv conversation) {
	step := p.step
	frames, usage := x.frames(p, conv)
	contentType := "text/event-stream; charset=utf-8"
	if !conv.stream {
		contentType = "application/json"
	} else {
		x.w.Header().Set("Cache-Control", "no-cache")
	}
	x.header(step, http.StatusOK, contentType)
	d := delivery{x: x, step: step, usage: usage, wire: newWire(x.w, step)}
	for _, f := range frames {
		d.content += f.content
	}
	_ = d.wire.flush() // a client that left is noticed at the first event
	if conv.stream {
		d.pings(ctx)
	}
	d.run(ctx, frames)
}

// frames are the events of the answer, and the usage of the whole of it.
func (x *exchange) frames(p played, conv conversation) ([]frame, Usage) {
	step, ids := p.step, x.dialect.idShapes()
	usage := Usage{Input: tokensOf(len(x.body))}
	if step.Usage != nil {
		usage = *step.Usage
	}
	if step.RawEvents != nil {
		var out []frame
		for _, raw := range step.RawEvents {
			out = append(out, frame{data: []byte(raw + "\n\n"), content: len(raw)})
			if step.Usage == nil {
				usage.Output += tokensOf(len(raw))
			}
		}
		return out, usage
	}
	t := turn{
		id:       ids.response.mint(x.s.mint, x.player.name, p.ordinal, 0),
		created:  x.s.opts.Clock.Now().Unix(),
		model:    conv.model,
		thinking: step.Thinking, text: step.Text,
		stop:         orDefault(step.FinishReason, x.dialect.stopReason(step)),
		includeUsage: conv.includeUsage, omitDone: step.OmitDone, deltaCharacters: step.DeltaCharacters,
	}
	if step.Answer != nil {
		t.text = *step.Answer
	}
	if step.FinishReason == MissingFinishReason {
		t.stop = ""
	}
	if step.Thinking != "" {
		t.signature = x.s.mint.sign(x.player.name, conv.model, step.Thinking)
	}
	if step.RedactedThinking != "" {
		t.redacted = x.s.mint.seal(x.player.name, conv.model, step.RedactedThinking)
	}
	for i, c := range step.Calls {
		id := ids.call
		if x.leg.Vendor == VendorMistral {
			id = idShape{"", 9}
		}
		call := turnCall{id: orDefault(c.ID, id.mint(x.s.mint, x.player.name, p.ordinal, i)), name: c.Name, arguments: c.arguments()}
		if step.HalfCall && i == len(step.Calls)-1 {
			call.arguments = call.arguments[:len(call.arguments)/2]
		}
		t.calls = append(t.calls, call)
	}
	if step.Usage == nil {
		usage.Output = tokensOf(t.contentBytes())
	}
	t.usage = usage
	x.minted.remember(t)
	if conv.stream {
		return x.withError(x.dialect.frames(t), step), usage
	}
	if e := step.InBandError; e != nil {
		r := rejection{kind: kindServer, typeName: e.Type, code: e.Code, param: e.Param, message: orDefault(e.Message, "The server had an error while it made the answer.")}
		return []frame{{data: x.dialect.errorBody(r, x.requestID()), content: t.contentBytes()}}, usage
	}
	return []frame{{data: x.dialect.whole(t), content: t.contentBytes()}}, usage
}

// withError puts the step's in-band error in its place and drops all that would follow it.
func (x *exchange) withError(frames []frame, step Step) []frame {
	e := step.InBandError
	if e == nil {
		return frames
	}
	end := len(frames)
	for i, f := range frames {
		if e.AfterEvents == nil && f.closing || e.AfterEvents != nil && i == *e.AfterEvents {
			end = i
			break
		}
	}
	return append(frames[:end:end], frame{data: x.dialect.inBandError(*e)})
}

// delivery is the writing of one stream, with what the step does to it.
type delivery struct {
	x     *exchange
	step  Step
	usage Usage
	wire  *wire
	// content is the number of content bytes of the whole turn, sent those of the events written.
	content, sent int
	events        int
}

// used is what a provider bills for the events written so far: the prompt from the first event on, and the generated
// part of the output, rounded up.
func (d *delivery) used() Usage {
	switch {
	case d.events == 0:
		return Usage{}
	case d.content == 0 || d.sent == d.content:
		return d.usage
	}
	part := (d.usage.Output*int64(d.sent) + int64(d.content) - 1) / int64(d.content)
	return Usage{Input: d.usage.Input, Cached: d.usage.Cached, Output: part}
}

func (d *delivery) settle(outcome Outcome) { d.x.settle(d.step, outcome, d.used(), d.events) }

// pings writes the signs of life in front of the stream.
func (d *delivery) pings(ctx context.Context) {
	for n := 0; d.step.Comments == Forever || n < int(d.step.Comments); n++ {
		if !d.x.sleep(ctx, d.step.DelayMilliseconds) {
			d.gone()
		}
		d.write(d.x.dialect.ping(d.step.CommentText))
	}
}

func (d *delivery) run(ctx context.Context, frames []frame) {
	for i, f := range frames {
		if d.step.CutAfterEvents != nil && d.events == *d.step.CutAfterEvents {
			d.cut(ctx)
			return
		}
		if !d.x.sleep(ctx, d.step.DelayMilliseconds) {
			d.gone()
		}
		last := i == len(frames)-1
		if last && !d.cutsWithin(f) {
			// Settled before the last byte goes out, so that whoever has it finds the bill complete.
			d.events, d.sent = d.events+1, d.sent+f.content
			d.settle(d.finalOutcome())
			d.events, d.sent = d.events-1, d.sent-f.content
		}
		if !d.write(f.data) {
			d.cut(ctx)
			return
		}
		d.events, d.sent = d.events+1, d.sent+f.content
	}
	if d.cutsHere() {
		d.cut(ctx)
		return
	}
	d.settle(d.finalOutcome())
	if d.step.HangAfterTerminal {
		<-ctx.Done()
		panic(http.ErrAbortHandler)
	}
}

// finalOutcome is the outcome of a stream that was sent to its end.
func (d *delivery) finalOutcome() Outcome {
	switch {
	case d.cutsHere():
		return OutcomeCut
	case d.step.InBandError != nil:
		return OutcomeInBandError
	default:
		return OutcomeCompleted
	}
}

// cutsHere tells whether the stream is cut exactly behind what was written.
func (d *delivery) cutsHere() bool {
	return d.step.CutAfterEvents != nil && d.events == *d.step.CutAfterEvents || d.wire.limit >= 0 && d.wire.written == d.wire.limit
}

// cutsWithin tells whether the byte limit lies inside the event.
func (d *delivery) cutsWithin(f frame) bool {
	return d.wire.limit >= 0 && d.wire.written+len(f.data) > d.wire.limit
}

// write writes one event, and returns false when the byte limit came before its end.
func (d *delivery) write(data []byte) bool {
	err := d.wire.write(data)
	if errors.Is(err, errWireLimit) {
		return false
	}
	if err != nil {
		d.gone()
	}
	return true
}

// cut ends the stream before its time.
func (d *delivery) cut(ctx context.Context) {
	d.settle(OutcomeCut)
	switch d.step.Cut {
	case CutClose:
	case CutAbort:
		panic(http.ErrAbortHandler)
	case CutReset:
		d.x.hangUp()
	case CutSilence:
		<-ctx.Done()
		panic(http.ErrAbortHandler)
	}
}

// gone ends a stream whose client, or whose server, went away.
func (d *delivery) gone() {
	d.settle(OutcomeClientGone)
	panic(http.ErrAbortHandler)
}

// errWireLimit says that the step's byte limit was reached.
var errWireLimit = errors.New("cut after bytes")

// wire writes to the connection in pieces of a size, up to a limit.
type wire struct {
	w       http.ResponseWriter
	control *http.ResponseController
	chunk   int
	// limit is the number of bytes after which nothing is written; negative for none.
	limit, written int
}

func newWire(w http.ResponseWriter, step Step) *wire {
	out := &wire{w: w, control: http.NewResponseController(w), chunk: step.ChunkSize, limit: -1}
	if step.CutAfterBytes != nil {
		out.limit = *step.CutAfterBytes
	}
	return out
}

func (w *wire) flush() error { return w.control.Flush() }

func (w *wire) write(data []byte) error {
	limited := w.limit >= 0 && w.written+len(data) > w.limit
	if limited {
		data = data[:w.limit-w.written]
	}
	for len(data) > 0 {
		piece := data
		if w.chunk > 0 && len(piece) > w.chunk {
			piece = data[:w.chunk]
		}
		if _, err := w.w.Write(piece); err != nil {
			return err
		}
		if err := w.flush(); err != nil {
			return err
		}
		w.written += len(piece)
		data = data[len(piece):]
	}
	if limited {
		return errWireLimit
	}
	return nil
}
