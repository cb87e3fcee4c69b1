package provider

import (
	"bytes"
	"errors"
	"io"

	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/message"
	"belay.dev/belay/internal/runtime/sse"
)

// ReadAnswer reads events until the answer is there or cannot come any more. It returns the answer, or the facts that
// tell why there is none. An answer is returned only if its terminal marker was read; from then on no way of ending
// takes it back, except an error event. Observe is told each event and what it meant.
func ReadAnswer(events *sse.Reader, decoder Decoder, observe func(name []byte, step Step)) (*message.Message, failure.Facts) {
	complete := false
	for {
		event, err := events.Next()
		if err != nil {
			return atEnd(decoder, complete, err)
		}
		step, err := decoder.Decode(event)
		if err != nil {
			if event.Unterminated {
				// The cut itself made the last event unreadable: the stream ended before it.
				return atEnd(decoder, complete, io.EOF)
			}
			return nil, failure.Facts{Err: err}
		}
		observe(event.Name, step)
		switch {
		case step.Failed:
			return nil, failure.Facts{InBand: bytes.Clone(event.Data)}
		case step.Done:
			return finished(decoder)
		case step.Complete:
			complete = true
		}
	}
}

// atEnd judges the end of the bytes, whatever it was.
func atEnd(decoder Decoder, complete bool, err error) (*message.Message, failure.Facts) {
	switch {
	case complete, errors.Is(err, io.EOF):
		return finished(decoder)
	case errors.Is(err, sse.ErrEventTooLarge), errors.Is(err, sse.ErrStreamTooLarge):
		return nil, failure.Facts{Err: failure.Causef(failure.StreamMalformed, "the answer's %v", err)}
	default:
		return nil, failure.Facts{Err: err}
	}
}

func finished(decoder Decoder) (*message.Message, failure.Facts) {
	answer, err := decoder.Finish()
	if err != nil {
		return nil, failure.Facts{Err: err}
	}
	return answer, failure.Facts{}
}
