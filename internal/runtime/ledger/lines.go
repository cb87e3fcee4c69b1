package ledger

import (
	"bytes"
	"errors"
	"io"
)

// lineReader splits a stream into lines without ever holding more than its
// buffer. A line that does not fit is cut: it is reported as not whole, and the
// stream is not read any further.
type lineReader struct {
	src        io.Reader
	buf        []byte
	start, end int
	// offset is the place in the stream of buf[start].
	offset int64
	eof    bool
}

// line is a piece of the stream. Its bytes are valid until the next call.
type line struct {
	bytes  []byte
	offset int64
	// whole is false for bytes that no newline ends, at the end of the stream or
	// because the line is longer than MaxRecordBytes.
	whole bool
}

// readBufferBytes is the size of the buffer while no line is longer.
const readBufferBytes = 64 << 10

func newLineReader(src io.Reader, offset int64) *lineReader {
	return &lineReader{src: src, offset: offset}
}

// next returns io.EOF when the stream ended with the last line.
func (r *lineReader) next() (line, error) {
	scanned := 0
	for {
		unread := r.buf[r.start:r.end]
		if i := bytes.IndexByte(unread[scanned:], '\n'); i >= 0 {
			n := scanned + i
			out := line{bytes: unread[:n], offset: r.offset, whole: n < MaxRecordBytes}
			r.start += n + 1
			r.offset += int64(n) + 1
			return out, nil
		}
		scanned = len(unread)
		if r.eof || scanned >= MaxRecordBytes {
			if scanned == 0 {
				return line{}, io.EOF
			}
			out := line{bytes: unread, offset: r.offset}
			r.start = r.end
			r.offset += int64(scanned)
			return out, nil
		}
		if err := r.fill(); err != nil {
			return line{}, err
		}
	}
}

// fill reads on, after making room behind an unfinished line.
func (r *lineReader) fill() error {
	if r.end == len(r.buf) {
		room := r.buf
		if 2*(r.end-r.start) >= len(r.buf) {
			room = make([]byte, max(2*len(r.buf), readBufferBytes))
		}
		copy(room, r.buf[r.start:r.end])
		r.buf = room
		r.end -= r.start
		r.start = 0
	}
	n, err := r.src.Read(r.buf[r.end:])
	r.end += n
	if errors.Is(err, io.EOF) {
		r.eof = true
		return nil
	}
	return err
}
