package chaos

import (
	"context"
	"errors"
	"net/http"
)

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
		if f.ping {
			if !d.write(f.data) {
				d.cut(ctx)
				return
			}
			continue
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
