package sse

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// seen is an event as a test compares it.
type seen struct {
	Name, Data   string
	Unterminated bool
}

func readAll(t *testing.T, src io.Reader, limits Limits) ([]seen, error) {
	t.Helper()
	var events []seen
	r := NewReader(src, limits)
	for {
		e, err := r.Next()
		if err != nil {
			return events, err
		}
		events = append(events, seen{string(e.Name), string(e.Data), e.Unterminated})
	}
}

var streams = []struct {
	name, in string
	want     []seen
}{
	{"lines may end in LF", "data: a\n\ndata: b\n\n", []seen{{Data: "a"}, {Data: "b"}}},
	{"lines may end in CR", "data: a\r\rdata: b\r\r", []seen{{Data: "a"}, {Data: "b"}}},
	{"lines may end in CRLF", "data: a\r\n\r\ndata: b\r\n\r\n", []seen{{Data: "a"}, {Data: "b"}}},
	{"line ends may be mixed", "data: a\r\n\ndata: b\n\rdata: c\r\r\n", []seen{{Data: "a"}, {Data: "b"}, {Data: "c"}}},
	{"a byte order mark at the start is skipped", "\xef\xbb\xbfdata: a\n\n", []seen{{Data: "a"}}},
	{"a byte order mark elsewhere belongs to the field's name", "data: a\n\n\xef\xbb\xbfdata: b\n\n", []seen{{Data: "a"}}},
	{"data lines are joined by newlines", "data: a\ndata:\ndata: b\n\n", []seen{{Data: "a\n\nb"}}},
	{"one space after the colon is dropped", "data:a\n\ndata:  b\n\n", []seen{{Data: "a"}, {Data: " b"}}},
	{"a field without a colon is empty", "data\n\n", []seen{{Data: ""}}},
	{"comments are no events", ": ping\n\n:\ndata: a\n: more\n\n", []seen{{Data: "a"}}},
	{"events have names", "event: delta\ndata: a\n\ndata: b\n\n", []seen{{Name: "delta", Data: "a"}, {Data: "b"}}},
	{"the last name counts", "event: x\nevent: y\ndata: a\n\n", []seen{{Name: "y", Data: "a"}}},
	{"a name without data is no event and is forgotten", "event: x\n\ndata: a\n\n", []seen{{Data: "a"}}},
	{"id and retry and unknown fields are ignored", "id: 1\nretry: 5\nfoo: bar\ndata: a\n\n", []seen{{Data: "a"}}},
	{"field names are exact", "Data: a\ndata : b\n data: c\ndatax: d\n\n", nil},
	{"a NUL is data", "data: a\x00b\n\n", []seen{{Data: "a\x00b"}}},
	{"colons in the value stay", "data: {\"a\":1}\n\n", []seen{{Data: `{"a":1}`}}},
	{"a last event without its blank line is unterminated", "data: a\n\ndata: b\n", []seen{{Data: "a"}, {Data: "b", Unterminated: true}}},
	{"a last line without its end is unterminated", "event: e\ndata: b", []seen{{Name: "e", Data: "b", Unterminated: true}}},
	{"blank lines alone are nothing", "\n\n\r\n\r\r", nil},
	{"nothing is nothing", "", nil},
}

func TestStreamsAreReadAsTheStandardSays(t *testing.T) {
	for _, tt := range streams {
		t.Run(tt.name, func(t *testing.T) {
			for _, source := range []struct {
				name string
				r    io.Reader
			}{
				{"at once", strings.NewReader(tt.in)},
				{"byte by byte", iotest.OneByteReader(strings.NewReader(tt.in))},
				{"with the end in the last read", iotest.DataErrReader(strings.NewReader(tt.in))},
			} {
				got, err := readAll(t, source.r, Limits{})
				if !errors.Is(err, io.EOF) {
					t.Errorf("%s: ended with %v, want io.EOF", source.name, err)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", source.name, diff)
				}
			}
		})
	}
}

func TestAnEventIsDeliveredBeforeTheNextByteArrives(t *testing.T) {
	for _, ending := range []string{"\n\n", "\r\r", "\r\n\r\n"} {
		source, sink := io.Pipe()
		go func() { _, _ = sink.Write([]byte("data: a" + ending)) }()
		// The pipe stays open: a reader that waits for more would never return, and the test would time out.
		e, err := NewReader(source, Limits{}).Next()
		if err != nil || string(e.Data) != "a" || e.Unterminated {
			t.Errorf("%q: got %q, %v", ending, e.Data, err)
		}
		_ = source.Close()
	}
}

func TestALongEventGrowsTheBufferUpToItsLimit(t *testing.T) {
	const limit = 1 << 20
	frame := len("data: \n\n") // the limit counts the whole event
	fits := strings.Repeat("x", limit-frame)
	got, err := readAll(t, strings.NewReader("data: "+fits+"\n\n"), Limits{MaxEventBytes: limit})
	if !errors.Is(err, io.EOF) || len(got) != 1 || got[0].Data != fits {
		t.Errorf("an event of exactly the limit: %d events, %v", len(got), err)
	}
	_, err = readAll(t, strings.NewReader("data: "+fits+"y\n\n"), Limits{MaxEventBytes: limit})
	if !errors.Is(err, ErrEventTooLarge) {
		t.Errorf("one byte more: %v, want ErrEventTooLarge", err)
	}
	many := strings.Repeat("data: 0123456789\n", limit/10)
	_, err = readAll(t, strings.NewReader(many), Limits{MaxEventBytes: limit})
	if !errors.Is(err, ErrEventTooLarge) {
		t.Errorf("many short lines of one event: %v, want ErrEventTooLarge", err)
	}
}

// endless is a source without an end.
type endless struct{ pattern []byte }

func (e endless) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		n += copy(p[n:], e.pattern)
	}
	return n, nil
}

func TestAnEndlessStreamEndsAtItsLimit(t *testing.T) {
	for _, tt := range []struct {
		name, pattern string
		want          error
	}{
		{"one line", "x", ErrEventTooLarge},
		{"one comment", ":", ErrEventTooLarge},
		{"comments", ": ping\n\n", ErrStreamTooLarge},
		{"blank lines", "\n", ErrStreamTooLarge},
		{"events", "data: a\n\n", ErrStreamTooLarge},
	} {
		r := NewReader(endless{[]byte(tt.pattern)}, Limits{MaxEventBytes: 1 << 20, MaxStreamBytes: 4 << 20})
		var err error
		for err == nil {
			_, err = r.Next()
		}
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
		}
		if len(r.buf) > 2<<20 {
			t.Errorf("%s: the buffer grew to %d bytes", tt.name, len(r.buf))
		}
		if _, again := r.Next(); !errors.Is(again, tt.want) {
			t.Errorf("%s: the error did not stay: %v", tt.name, again)
		}
	}
}

func TestABrokenSourceLosesTheEventThatWasOpen(t *testing.T) {
	broken := errors.New("connection reset")
	got, err := readAll(t, io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(broken)), Limits{})
	if !errors.Is(err, broken) {
		t.Errorf("got %v, want the source's error", err)
	}
	if diff := cmp.Diff([]seen{{Data: "a"}}, got); diff != "" {
		t.Error(diff)
	}
}

func TestASourceThatGivesNothingIsGivenUp(t *testing.T) {
	if _, err := NewReader(nothing{}, Limits{}).Next(); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("got %v, want io.ErrNoProgress", err)
	}
}

type nothing struct{}

func (nothing) Read([]byte) (int, error) { return 0, nil }

func TestReadingAnEventAllocatesNothing(t *testing.T) {
	r := NewReader(endless{[]byte("event: delta\ndata: {\"text\":\"hello\"}\n\n: ping\n\n")}, Limits{MaxStreamBytes: 1 << 40})
	for range 10 {
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(1000, func() { _, _ = r.Next() }); n != 0 {
		t.Errorf("%v allocations for each event, want 0", n)
	}
}

// reference reads a whole stream the simple way: lines first, then events.
func reference(in []byte) []seen {
	text := strings.TrimPrefix(string(in), "\xef\xbb\xbf")
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	lines := strings.Split(text, "\n")
	var events []seen
	var data []string
	name, has := "", false
	for i, line := range lines {
		last := i == len(lines)-1
		if line == "" && !last {
			if has {
				events = append(events, seen{Name: name, Data: strings.Join(data, "\n")})
			}
			data, name, has = nil, "", false
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "data":
			data, has = append(data, value), true
		case "event":
			name = value
		}
	}
	if has {
		events = append(events, seen{name, strings.Join(data, "\n"), true})
	}
	return events
}

func FuzzReader(f *testing.F) {
	for _, tt := range streams {
		f.Add([]byte(tt.in), uint8(3))
	}
	f.Fuzz(func(t *testing.T, in []byte, chunk uint8) {
		want := reference(in)
		got, err := readAll(t, &chunked{in, int(chunk)%7 + 1}, Limits{})
		if !errors.Is(err, io.EOF) {
			t.Fatalf("ended with %v", err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q in chunks of %d (-reference +got):\n%s", in, int(chunk)%7+1, diff)
		}
	})
}

type chunked struct {
	rest []byte
	size int
}

func (c *chunked) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), c.size)], c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// sample is a stream as a provider sends it: many small events.
func sample() []byte {
	var b bytes.Buffer
	for i := range 2000 {
		fmt.Fprintf(&b, "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word%d\"},\"finish_reason\":null}]}\n\n", i)
	}
	return b.Bytes()
}
