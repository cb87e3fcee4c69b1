// Package logfile keeps the output of containers in files, in the format of the
// container runtime interface: a line is the time, the stream, F for a whole
// line or P for a part of one, and the text.
//
// It imports the standard library and k8s.io/utils/clock.
package logfile

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// maxLine is where a long line is cut into parts.
const maxLine = 16 << 10

// File is the log of one run of a container.
type File struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	f     *os.File
	lines []*stream
}

// Create makes the log file and its directory.
func Create(path string, clock clock.PassiveClock) (*File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make the log directory: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o640)
	if err != nil {
		return nil, fmt.Errorf("create the log: %w", err)
	}
	return &File{clock: clock, f: f}, nil
}

// Stream returns a writer for "stdout" or "stderr".
func (l *File) Stream(name string) io.Writer {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &stream{log: l, name: name}
	l.lines = append(l.lines, s)
	return s
}

// Close writes what is left of unfinished lines and closes the file.
func (l *File) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.lines {
		if len(s.rest) > 0 {
			s.entry("F", s.rest)
			s.rest = nil
		}
	}
	return l.f.Close()
}

type stream struct {
	log  *File
	name string
	rest []byte
}

// Write never fails: a full disk must not end a container through its output.
func (s *stream) Write(p []byte) (int, error) {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	s.rest = append(s.rest, p...)
	for {
		end := bytes.IndexByte(s.rest, '\n')
		switch {
		case end >= 0 && end <= maxLine:
			s.entry("F", s.rest[:end])
			s.rest = s.rest[end+1:]
		case len(s.rest) > maxLine:
			s.entry("P", s.rest[:maxLine])
			s.rest = s.rest[maxLine:]
		default:
			s.rest = bytes.Clone(s.rest)
			return len(p), nil
		}
	}
}

func (s *stream) entry(tag string, text []byte) {
	line := s.log.clock.Now().UTC().AppendFormat(nil, time.RFC3339Nano)
	line = fmt.Appendf(line, " %s %s ", s.name, tag)
	line = append(append(line, text...), '\n')
	_, _ = s.log.f.Write(line)
}

// Entry is one line of a log.
type Entry struct {
	Time   time.Time
	Stream string
	Text   []byte // with its newline, unless the line goes on
}

// Parse reads one line of a log file.
func Parse(line []byte) (Entry, error) {
	parts := bytes.SplitN(bytes.TrimSuffix(line, []byte("\n")), []byte(" "), 4)
	if len(parts) != 4 {
		return Entry{}, fmt.Errorf("log line %q has %d fields, want 4", line, len(parts))
	}
	at, err := time.Parse(time.RFC3339Nano, string(parts[0]))
	if err != nil {
		return Entry{}, fmt.Errorf("log line %q: %w", line, err)
	}
	text := bytes.Clone(parts[3])
	if string(parts[2]) == "F" {
		text = append(text, '\n')
	}
	return Entry{Time: at, Stream: string(parts[1]), Text: text}, nil
}
