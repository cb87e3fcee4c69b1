package ledger_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"belay.dev/belay/internal/runtime/ledger"
)

// benchRecord is a tool result of a kilobyte, a common size.
func benchRecord(n int) note {
	return note{RunUID: runUID, N: n, Text: ledger.Text(bytes.Repeat([]byte("output "), 140))}
}

// BenchmarkDurableAppend appends one record and makes it durable. "raw" writes the
// same bytes to a plain file with fsync; the ratio of the two is what the ledger
// costs. "fdatasync" is raw with the cheaper call that the ledger uses on Linux.
func BenchmarkDurableAppend(b *testing.B) {
	dir := b.TempDir()
	opts := options(nil, filepath.Join(dir, "a"), 1)
	opts.SegmentBytes = 1 << 40
	l, _, err := ledger.Open(opts)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := l.Append("tool.result", false, benchRecord(1)); err != nil {
		b.Fatal(err)
	}
	line, err := os.ReadFile(filepath.Join(dir, "a", "ledger.jsonl"))
	if err != nil {
		b.Fatal(err)
	}
	b.Run("belay", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(line)))
		before := l.Stats()
		for b.Loop() {
			if _, err := l.Append("tool.result", false, benchRecord(1)); err != nil {
				b.Fatal(err)
			}
			if err := l.Sync(); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(l.Stats().FileSyncs-before.FileSyncs)/float64(b.N), "fsyncs/op")
	})
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	for _, raw := range []struct {
		name string
		sync func(*os.File) error
	}{{"raw", (*os.File).Sync}, {"fdatasync", fdatasync}} {
		b.Run(raw.name, func(b *testing.B) {
			f, err := os.OpenFile(filepath.Join(dir, raw.name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.SetBytes(int64(len(line)))
			for b.Loop() {
				if _, err := f.Write(line); err != nil {
					b.Fatal(err)
				}
				if err := raw.sync(f); err != nil {
					b.Fatal(err)
				}
			}
			if err := f.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkDurableAppendInterleaved takes turns between the ledger and a plain file,
// so that a disk whose speed changes from second to second does not blur the
// comparison. "raw/belay" is 1 for a ledger that costs nothing.
func BenchmarkDurableAppendInterleaved(b *testing.B) {
	dir := b.TempDir()
	opts := options(nil, filepath.Join(dir, "a"), 1)
	opts.SegmentBytes = 1 << 40
	l, _, err := ledger.Open(opts)
	if err != nil {
		b.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "raw"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		b.Fatal(err)
	}
	var line []byte
	var ours, raw time.Duration
	for b.Loop() {
		start := time.Now()
		if _, err := l.Append("tool.result", false, benchRecord(1)); err != nil {
			b.Fatal(err)
		}
		if err := l.Sync(); err != nil {
			b.Fatal(err)
		}
		ours += time.Since(start)
		if line == nil {
			if line, err = os.ReadFile(filepath.Join(dir, "a", "ledger.jsonl")); err != nil {
				b.Fatal(err)
			}
		}
		start = time.Now()
		if _, err := f.Write(line); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
		raw += time.Since(start)
	}
	b.ReportMetric(float64(ours.Nanoseconds())/float64(b.N), "belay-ns/op")
	b.ReportMetric(float64(raw.Nanoseconds())/float64(b.N), "raw-ns/op")
	b.ReportMetric(float64(raw)/float64(ours), "raw/belay")
	if err := errors.Join(l.Close(), f.Close()); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkAppend is an append without a barrier: encoding, hashing and one write.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{100, 1000, 10000, 100000} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			l, _, err := ledger.Open(options(nil, filepath.Join(b.TempDir(), "a"), 1))
			if err != nil {
				b.Fatal(err)
			}
			payload := note{RunUID: runUID, Text: ledger.Text(bytes.Repeat([]byte("x"), size))}
			b.ReportAllocs()
			b.SetBytes(int64(size))
			for b.Loop() {
				if _, err := l.Append("tool.result", false, payload); err != nil {
					b.Fatal(err)
				}
			}
			if err := l.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkResume reads a ledger of 64 MiB: "replay" yields every record with its
// payload undecoded, "open" verifies and indexes it as a new epoch does. Beside them
// stand a plain read of the bytes and a pass of encoding/json over each line.
func BenchmarkResume(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "a")
	opts := options(nil, dir, 1)
	opts.SegmentBytes = 1 << 40
	l, _, err := ledger.Open(opts)
	if err != nil {
		b.Fatal(err)
	}
	for n := 0; l.Stats().Bytes < 64<<20; n++ {
		if _, err := l.Append("tool.result", false, benchRecord(n)); err != nil {
			b.Fatal(err)
		}
	}
	size := l.Stats().Bytes
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	path := filepath.Join(dir, "ledger.jsonl")
	epoch := uint64(1)
	for _, pass := range []struct {
		name string
		run  func() error
	}{
		{"replay", func() error {
			for _, err := range ledger.Replay(nil, dir) {
				if err != nil {
					return err
				}
			}
			return nil
		}},
		{"open", func() error {
			epoch++
			l, _, err := ledger.Open(options(nil, dir, epoch))
			if err != nil {
				return err
			}
			return l.Close()
		}},
		{"verify", func() error {
			if report := ledger.Verify(nil, dir); !report.OK() {
				return fmt.Errorf("verify: %+v", report.Findings)
			}
			return nil
		}},
		{"read", func() error { return eachLine(path, func([]byte) error { return nil }) }},
		{"json", func() error {
			return eachLine(path, func(line []byte) error {
				var record struct {
					Seq  uint64          `json:"seq"`
					Type string          `json:"type"`
					Data json.RawMessage `json:"data"`
				}
				return json.Unmarshal(line, &record)
			})
		}},
	} {
		b.Run(pass.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(size)
			for b.Loop() {
				if err := pass.run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func eachLine(path string, do func([]byte) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	reader := bufio.NewReaderSize(f, 1<<20)
	for {
		line, err := reader.ReadSlice('\n')
		if err == io.EOF {
			return f.Close()
		}
		if err != nil {
			return err
		}
		if err := do(line); err != nil {
			return err
		}
	}
}
