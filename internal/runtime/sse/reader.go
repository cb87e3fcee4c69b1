// Package sse reads Server-Sent Events as the WHATWG HTML standard defines them ("Interpreting an event stream"), with
// bounds that the standard leaves out: the size of one event and of the whole stream. It tells what a client of model
// providers must know and a browser need not: whether the last event was closed by a blank line.
//
// The package is a pure leaf: it imports the standard library only. The reader's owner owns the clock and the socket.
package sse

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Defaults of Limits.
const (
	DefaultMaxEventBytes  = 8 << 20
	DefaultMaxStreamBytes = 64 << 20
)

// Limits bound what a stream may make its reader hold or read.
type Limits struct {
	// MaxEventBytes bounds one event: all of its bytes, comments included. Default 8 MiB.
	MaxEventBytes int
	// MaxStreamBytes bounds the whole stream, comments included. Default 64 MiB.
	MaxStreamBytes int64
}

var (
	// ErrEventTooLarge reports an event over Limits.MaxEventBytes.
	ErrEventTooLarge = errors.New("event is too large")
	// ErrStreamTooLarge reports a stream over Limits.MaxStreamBytes.
	ErrStreamTooLarge = errors.New("event stream is too large")
)

// Event is one event. Its slices are valid until the next call of Next.
type Event struct {
	// Name is the event's type; empty when the stream names none, which the standard calls "message".
	Name []byte
	// Data is the event's data lines, joined by newlines.
	Data []byte
	// Unterminated marks a last event that the stream's end cut off before its blank line; its data may be incomplete.
	Unterminated bool
}

// Reader reads events from a byte stream. It asks its source for more only when it holds no complete line, and delivers
// an event as soon as its blank line arrived. It is not safe for concurrent use.
type Reader struct {
	src    io.Reader
	limits Limits

	buf        []byte // bytes read and not yet consumed are buf[start:end]
	start, end int
	scanned    int // buf[start:scanned] holds no line end
	total      int64
	err        error

	begun   bool // the first line was seen; a byte order mark is none any more
	skipLF  bool // the last line ended in CR: an LF that follows belongs to it
	size    int  // bytes of the current event so far
	name    []byte
	data    []byte
	hasData bool
}

const initialBuffer = 32 << 10

// NewReader returns a reader of src. Zero limits take their defaults.
func NewReader(src io.Reader, limits Limits) *Reader {
	if limits.MaxEventBytes <= 0 {
		limits.MaxEventBytes = DefaultMaxEventBytes
	}
	if limits.MaxStreamBytes <= 0 {
		limits.MaxStreamBytes = DefaultMaxStreamBytes
	}
	return &Reader{src: src, limits: limits, buf: make([]byte, initialBuffer)}
}

// Next returns the next event with data. At the stream's end it returns io.EOF, after an Unterminated event if the last
// one had no blank line. Any other error is the source's, ErrEventTooLarge or ErrStreamTooLarge, and stays.
func (r *Reader) Next() (Event, error) {
	r.reset()
	for {
		line, err := r.line()
		if errors.Is(err, io.EOF) && r.hasData {
			r.hasData = false
			return Event{Name: r.name, Data: r.data, Unterminated: true}, nil
		}
		if err != nil {
			return Event{}, err
		}
		if len(line) > 0 {
			r.field(line)
			continue
		}
		if r.hasData {
			return Event{Name: r.name, Data: r.data}, nil
		}
		r.reset()
	}
}

func (r *Reader) reset() {
	r.name, r.data, r.hasData, r.size = r.name[:0], r.data[:0], false, 0
}

var (
	byteOrderMark = []byte("\xef\xbb\xbf")
	fieldData     = []byte("data")
	fieldEvent    = []byte("event")
)

// field takes one line that is not blank. Comments and the fields id and retry have no use here: a model's stream is
// never resumed.
func (r *Reader) field(line []byte) {
	name, value := line, []byte(nil)
	if i := bytes.IndexByte(line, ':'); i >= 0 {
		name, value = line[:i], line[i+1:]
		if len(value) > 0 && value[0] == ' ' {
			value = value[1:]
		}
	}
	switch {
	case bytes.Equal(name, fieldData):
		if r.hasData {
			r.data = append(r.data, '\n')
		}
		r.data = append(r.data, value...)
		r.hasData = true
	case bytes.Equal(name, fieldEvent):
		r.name = append(r.name[:0], value...)
	}
}

// line returns the next line without its end, which is LF, CR or CRLF. The slice is valid until the next call. At the
// end of the stream it returns what is left as a line, then io.EOF.
func (r *Reader) line() ([]byte, error) {
	for {
		if r.skipLF && r.start < r.end {
			r.skipLF = false
			if r.buf[r.start] == '\n' {
				r.consume(1)
			}
		}
		if line, ok := r.cut(); ok {
			return r.admit(line)
		}
		if r.err != nil {
			if !errors.Is(r.err, io.EOF) || r.start == r.end {
				return nil, r.err
			}
			line := r.buf[r.start:r.end]
			r.start = r.end
			return r.admit(line)
		}
		if r.size+r.end-r.start > r.limits.MaxEventBytes {
			return nil, r.fail(fmt.Errorf("%w: more than %d bytes", ErrEventTooLarge, r.limits.MaxEventBytes))
		}
		r.fill()
	}
}

// cut takes a complete line out of the buffer, if there is one.
func (r *Reader) cut() ([]byte, bool) {
	window := r.buf[r.scanned:r.end]
	n := bytes.IndexByte(window, '\n')
	if n >= 0 {
		window = window[:n]
	}
	if c := bytes.IndexByte(window, '\r'); c >= 0 {
		n = c
		r.skipLF = true
	}
	if n < 0 {
		r.scanned = r.end
		return nil, false
	}
	line := r.buf[r.start : r.scanned+n]
	r.start = r.scanned + n + 1
	r.scanned = r.start
	return line, true
}

// admit counts a line towards its event and strips a byte order mark from the stream's first one.
func (r *Reader) admit(line []byte) ([]byte, error) {
	r.size += len(line) + 1
	if r.size > r.limits.MaxEventBytes {
		return nil, r.fail(fmt.Errorf("%w: more than %d bytes", ErrEventTooLarge, r.limits.MaxEventBytes))
	}
	if !r.begun {
		r.begun = true
		line = bytes.TrimPrefix(line, byteOrderMark)
	}
	return line, nil
}

func (r *Reader) consume(n int) {
	r.start += n
	r.scanned = max(r.scanned, r.start)
}

func (r *Reader) fail(err error) error {
	r.err = err
	r.start, r.end, r.scanned = 0, 0, 0
	return err
}

// maxEmptyReads bounds sources that return neither bytes nor an error.
const maxEmptyReads = 100

// fill reads once from the source, after it has made room.
func (r *Reader) fill() {
	if r.start > 0 {
		copy(r.buf, r.buf[r.start:r.end])
		r.end -= r.start
		r.scanned -= r.start
		r.start = 0
	}
	if r.end == len(r.buf) {
		grown := make([]byte, min(2*len(r.buf), r.limits.MaxEventBytes+initialBuffer))
		copy(grown, r.buf[:r.end])
		r.buf = grown
	}
	for range maxEmptyReads {
		n, err := r.src.Read(r.buf[r.end:])
		r.end += n
		r.total += int64(n)
		if r.total > r.limits.MaxStreamBytes {
			_ = r.fail(fmt.Errorf("%w: more than %d bytes", ErrStreamTooLarge, r.limits.MaxStreamBytes))
			return
		}
		if err != nil {
			r.err = err
			return
		}
		if n > 0 {
			return
		}
	}
	r.err = io.ErrNoProgress
}
