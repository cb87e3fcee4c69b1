package logfile

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Options says what of a log to read.
type Options struct {
	// Tail is how many of the last entries to begin with; negative is all.
	Tail int
	// LimitBytes ends the reading after so many bytes; 0 is no limit.
	LimitBytes int
	Timestamps bool
	Since      time.Time
	// Follow goes on until it is closed, which is when the container ends.
	Follow <-chan struct{}
}

// followEvery is how often a followed log is looked at.
const followEvery = 100 * time.Millisecond

// Copy writes a log's text to w.
func Copy(ctx context.Context, w io.Writer, path string, o Options) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	defer func() { _ = f.Close() }()
	limit := &limitWriter{w: w, left: o.LimitBytes, bounded: o.LimitBytes > 0}
	skip := 0
	if o.Tail >= 0 {
		if skip, err = countLines(f); err != nil {
			return err
		}
		skip = max(0, skip-o.Tail)
	}
	r := bufio.NewReader(f)
	var partial []byte
	for {
		// Whether the container has ended is asked before the read: what it wrote
		// until then is read for certain.
		ended := o.Follow == nil || closed(o.Follow)
		for {
			chunk, err := r.ReadBytes('\n')
			partial = append(partial, chunk...)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return fmt.Errorf("read the log: %w", err)
			}
			line := partial
			partial = nil
			if skip > 0 {
				skip--
				continue
			}
			if err := o.write(limit, line); err != nil {
				if errors.Is(err, errLimit) {
					return nil
				}
				return err
			}
		}
		if ended {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-o.Follow:
		case <-time.After(followEvery):
		}
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (o Options) write(w io.Writer, line []byte) error {
	e, err := Parse(line)
	if err != nil {
		return err
	}
	if e.Time.Before(o.Since) {
		return nil
	}
	if o.Timestamps {
		if _, err := io.WriteString(w, e.Time.Format(time.RFC3339Nano)+" "); err != nil {
			return err
		}
	}
	_, err = w.Write(e.Text)
	return err
}

func countLines(f *os.File) (int, error) {
	n := 0
	buf := make([]byte, 64<<10)
	for {
		k, err := f.Read(buf)
		n += bytes.Count(buf[:k], []byte("\n"))
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, fmt.Errorf("read the log: %w", err)
		}
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return 0, fmt.Errorf("read the log: %w", err)
	}
	return n, nil
}

var errLimit = errors.New("byte limit reached")

type limitWriter struct {
	w       io.Writer
	left    int
	bounded bool
}

func (l *limitWriter) Write(p []byte) (int, error) {
	if !l.bounded || len(p) <= l.left {
		l.left -= len(p)
		return l.w.Write(p)
	}
	n, err := l.w.Write(p[:l.left])
	l.left = 0
	if err != nil {
		return n, err
	}
	return n, errLimit
}

// Tail returns the end of a log's text: at most so many lines and bytes.
func Tail(path string, lines, maxBytes int) (string, error) {
	var b bytes.Buffer
	if err := Copy(context.Background(), &b, path, Options{Tail: lines}); err != nil {
		return "", err
	}
	text := b.Bytes()
	if len(text) > maxBytes {
		text = text[len(text)-maxBytes:]
	}
	return string(text), nil
}
