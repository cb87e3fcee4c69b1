package chaos

import (
	"context"
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
	a := x.answer(p, conv)
	contentType := "text/event-stream; charset=utf-8"
	if !conv.stream {
		contentType = "application/json"
	} else {
		x.w.Header().Set("Cache-Control", "no-cache")
	}
	x.header(step, http.StatusOK, contentType)
	d := delivery{x: x, step: step, usage: a.usage, content: a.content, wire: newWire(x.w, step)}
	_ = d.wire.flush() // a client that left is noticed at the first event
	if conv.stream {
		d.pings(ctx)
	}
	d.run(ctx, a.frames)
}

// answer is what is to be sent, with the usage and the content bytes of the whole turn, which the frames may lack in part.
type answer struct {
	frames  []frame
	usage   Usage
	content int
}

func (x *exchange) answer(p played, conv conversation) answer {
	step, ids := p.step, x.dialect.idShapes()
	usage := Usage{Input: tokensOf(len(x.body))}
	if step.Usage != nil {
		usage = *step.Usage
	}
	if step.RawEvents != nil {
		a := answer{usage: usage}
		for _, raw := range step.RawEvents {
			a.frames = append(a.frames, frame{data: []byte(raw + "\n\n"), content: len(raw)})
			a.content += len(raw)
		}
		if step.Usage == nil {
			a.usage.Output = tokensOf(a.content)
		}
		return a
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
		return answer{x.withError(x.dialect.frames(t), step), usage, t.contentBytes()}
	}
	if e := step.InBandError; e != nil {
		r := rejection{kind: kindServer, typeName: e.Type, code: e.Code, param: e.Param, message: orDefault(e.Message, "The server had an error while it made the answer.")}
		return answer{[]frame{{data: x.dialect.errorBody(r, x.requestID()), content: t.contentBytes()}}, usage, t.contentBytes()}
	}
	return answer{[]frame{{data: x.dialect.whole(t), content: t.contentBytes()}}, usage, t.contentBytes()}
}

// withError puts the step's in-band error in its place and drops all that would follow it.
func (x *exchange) withError(frames []frame, step Step) []frame {
	e := step.InBandError
	if e == nil {
		return frames
	}
	end, events := len(frames), 0
	for i, f := range frames {
		if e.AfterEvents == nil && f.closing || e.AfterEvents != nil && events == *e.AfterEvents {
			end = i
			break
		}
		if !f.ping {
			events++
		}
	}
	return append(frames[:end:end], frame{data: x.dialect.inBandError(*e)})
}
