package provider

import (
	"belay.dev/belay/internal/runtime/message"
	"belay.dev/belay/internal/runtime/route"
	"belay.dev/belay/internal/runtime/sse"
)

// Dialect is one wire format. Its methods are pure; all input and output is the client's.
type Dialect interface {
	// Name is the dialect's name in routes and ladders.
	Name() route.Dialect
	// Render writes the request in the dialect. It returns a *failure.Cause for what the dialect or the leg cannot say.
	Render(target Target, req Request) (Rendered, error)
	// NewDecoder returns a decoder for one answer of the target.
	NewDecoder(target Target) Decoder
}

// Rendered is a request in a dialect's own words.
type Rendered struct {
	// Path is appended to the target's base URL.
	Path string
	// Headers are the dialect's own, the credential among them.
	Headers []Header
	Body    []byte
	// MediaBytes is how much of Body is encoded media, and Media how many pieces; they cost tokens by the piece.
	MediaBytes int
	Media      int
}

// Step is what one event meant.
type Step struct {
	// Progress tells that the event carried content: text, reasoning or a part of a call. Pings are none.
	Progress bool
	// Complete tells that the terminal marker was seen: with what came so far, Finish yields an answer.
	Complete bool
	// Done tells that nothing more will come; the client stops reading.
	Done bool
	// Failed tells that the event itself reports an error; the client classifies its data.
	Failed bool
}

// Decoder reads the events of one answer. It is pure, holds one attempt's state and is used once.
type Decoder interface {
	// Decode consumes one event. Its error is a *failure.Cause and ends the attempt.
	Decode(e sse.Event) (Step, error)
	// Finish returns the answer, or a *failure.Cause if the events so far are none: truncated, empty or filtered. Calls
	// in the answer have no ID yet.
	Finish() (*message.Message, error)
	// Usage is what the provider reported so far.
	Usage() Usage
	// OutputBytes is the size of all generated content so far, for estimates.
	OutputBytes() int
	// Text is the visible text so far.
	Text() string
	// ResponseID is the provider's id of the answer, empty until it was told.
	ResponseID() string
	// Warnings are facts worth a record.
	Warnings() []string
}
