// Package timeline turns the records of a run into what a person wants to read: a
// timeline of turns, legs, waits, failovers, tool calls, costs and resumes, and a
// transcript that no provider owns.
//
// It is pure: it reads the entries that it is given, asks for blobs through a
// function, and writes to an io.Writer. It may import package ledger for its entries,
// package record, and the pure leaves below them.
package timeline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/message"
)

// Format says how Write renders.
type Format string

const (
	// Text is for people: lines of at most Options.Width characters.
	Text Format = "text"
	// JSON is one object for each record, on a line of its own.
	JSON Format = "json"
)

// DefaultWidth is the usual width of a terminal.
const DefaultWidth = 80

// minWidth leaves room for the time, an indent and a word.
const minWidth = 40

// Options say how to render.
type Options struct {
	// Format is Text if empty.
	Format Format
	// Width is the length of a text line in characters; 0 means DefaultWidth,
	// and nothing below 40 is used.
	Width int
	// Location is the time zone of text; nil means UTC.
	Location *time.Location
	// Blob fetches the payload of a record that was too large for its line. Nil
	// leaves such a record undecoded.
	Blob func(record.Blob) ([]byte, error)
}

// Event is one record in JSON form. It holds no provider credential.
type Event struct {
	Seq   uint64    `json:"seq"`
	Epoch uint64    `json:"epoch"`
	At    time.Time `json:"at"`
	Type  string    `json:"type"`
	// Data is the payload, fetched from its blob if it was too large for its line.
	Data any `json:"data"`
	// Error says why there is no Data.
	Error string `json:"error,omitempty"`
}

// Write renders entries as they come, which may be while a run is writing them. A
// record that cannot be decoded is shown as such. In Text a summary follows the last
// entry. The error of entries is returned after all before it was rendered.
func Write(w io.Writer, entries iter.Seq2[ledger.Entry, error], opts Options) error {
	var render func(ledger.Entry) error
	var finish func() error
	switch opts.Format {
	case JSON:
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false)
		render = func(e ledger.Entry) error { return encoder.Encode(eventOf(e, opts.Blob)) }
		finish = func() error { return nil }
	case Text, "":
		n := newNarrator(w, opts)
		render, finish = n.entry, n.summary
	default:
		return fmt.Errorf("rendering a ledger: format %q: want %s or %s", opts.Format, Text, JSON)
	}
	for e, err := range entries {
		if err != nil {
			return err
		}
		if err := render(e); err != nil {
			return fmt.Errorf("rendering ledger record %d: %w", e.Seq, err)
		}
	}
	return finish()
}

// decode returns the payload, nil for a type that is not known here.
func decode(e ledger.Entry, blob func(record.Blob) ([]byte, error)) (any, error) {
	if blob == nil {
		blob = func(b record.Blob) ([]byte, error) {
			return nil, fmt.Errorf("blob %s is not at hand", b.SHA256)
		}
	}
	return record.Decode(e.Type, e.Data, blob)
}

func eventOf(e ledger.Entry, blob func(record.Blob) ([]byte, error)) Event {
	event := Event{Seq: e.Seq, Epoch: e.Epoch, At: e.At, Type: e.Type}
	payload, err := decode(e, blob)
	switch {
	case err != nil:
		event.Error = err.Error()
	case payload != nil:
		event.Data = withoutCredentials(payload)
	default:
		event.Data, err = anyWithoutCredentials(e.Data)
		if err != nil {
			event.Error = err.Error()
		}
	}
	return event
}

// withoutCredentials drops what only the issuer of an answer may see.
func withoutCredentials(payload any) any {
	response, ok := payload.(*record.LLMResponse)
	if !ok {
		return payload
	}
	clean := *response
	clean.Message.Blocks = make([]message.Block, len(response.Message.Blocks))
	for i, block := range response.Message.Blocks {
		block.Credentials = nil
		clean.Message.Blocks[i] = block
	}
	return &clean
}

// anyWithoutCredentials does the same for a payload of a type that is not known here.
func anyWithoutCredentials(data json.RawMessage) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, fmt.Errorf("decoding the payload: %w", err)
	}
	dropCredentials(value)
	return value, nil
}

func dropCredentials(value any) {
	switch v := value.(type) {
	case map[string]any:
		delete(v, "credentials")
		for _, member := range v {
			dropCredentials(member)
		}
	case []any:
		for _, element := range v {
			dropCredentials(element)
		}
	}
}

// indent is the text's place under its turn.
func indent(depth int) string { return strings.Repeat("  ", depth) }
