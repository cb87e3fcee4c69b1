package sse

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"testing"
)

func BenchmarkReader(b *testing.B) {
	in := sample()
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		r := NewReader(bytes.NewReader(in), Limits{})
		for {
			if _, err := r.Next(); err != nil {
				if !errors.Is(err, io.EOF) {
					b.Fatal(err)
				}
				break
			}
		}
	}
}

// BenchmarkLineScan is the floor: the same bytes cut into lines, and nothing more.
func BenchmarkLineScan(b *testing.B) {
	in := sample()
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		s := bufio.NewScanner(bytes.NewReader(in))
		for s.Scan() {
			_ = s.Bytes()
		}
		if s.Err() != nil {
			b.Fatal(s.Err())
		}
	}
}
