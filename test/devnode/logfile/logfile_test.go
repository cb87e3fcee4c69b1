package logfile

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// record writes lines a minute apart and returns the log's path.
func record(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "deep", "0.log")
	clock := testclock.NewFakeClock(noon)
	log, err := Create(path, clock)
	if err != nil {
		t.Fatal(err)
	}
	out := log.Stream("stdout")
	for _, line := range lines {
		if _, err := out.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
		clock.Step(time.Minute)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t *testing.T, path string, o Options) string {
	t.Helper()
	var b bytes.Buffer
	if err := Copy(t.Context(), &b, path, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestLinesAreKeptInTheRuntimeFormat(t *testing.T) {
	path := record(t, "one\ntw", "o\n", "last")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := "2026-03-01T12:00:00Z stdout F one\n2026-03-01T12:01:00Z stdout F two\n2026-03-01T12:03:00Z stdout F last\n"
	if string(data) != want {
		t.Errorf("the file holds:\n%swant:\n%s", data, want)
	}
}

func TestALongLineIsCutAndReadWhole(t *testing.T) {
	long := strings.Repeat("x", 40<<10)
	path := record(t, long+"\nshort\n")
	if got := read(t, path, Options{Tail: -1}); got != long+"\nshort\n" {
		t.Errorf("read %d bytes, want %d", len(got), len(long)+7)
	}
}

func TestCopyTakesTheAskedPart(t *testing.T) {
	path := record(t, "a\n", "b\n", "c\n")
	for want, o := range map[string]Options{
		"a\nb\nc\n":                {Tail: -1},
		"":                         {Tail: 0},
		"b\nc\n":                   {Tail: 2},
		"c\n":                      {Tail: -1, Since: noon.Add(2 * time.Minute)},
		"a\nb":                     {Tail: -1, LimitBytes: 3},
		"2026-03-01T12:02:00Z c\n": {Tail: 1, Timestamps: true},
	} {
		if got := read(t, path, o); got != want {
			t.Errorf("%+v reads %q, want %q", o, got, want)
		}
	}
	if got, err := Tail(path, 2, 3); err != nil || got != "\nc\n" {
		t.Errorf("the tail is %q, %v, want the last 3 bytes", got, err)
	}
}

func TestAFollowedLogEndsWithItsContainerAndMissesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	log, err := Create(path, testclock.NewFakeClock(noon))
	if err != nil {
		t.Fatal(err)
	}
	out := log.Stream("stdout")
	over := make(chan struct{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var b bytes.Buffer
	done := make(chan error, 1)
	go func() { done <- Copy(ctx, &b, path, Options{Tail: -1, Follow: over}) }()
	var want strings.Builder
	for i := range 500 {
		line := fmt.Sprintf("line %d\n", i)
		want.WriteString(line)
		if _, err := out.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	close(over)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if b.String() != want.String() {
		t.Errorf("followed %d bytes, want %d", b.Len(), want.Len())
	}
}

func TestParseRefusesWhatIsNoLogLine(t *testing.T) {
	for _, line := range []string{"", "text\n", "noon stdout F x\n", "2026-03-01T12:00:00Z stdout\n"} {
		if e, err := Parse([]byte(line)); err == nil {
			t.Errorf("%q is read as %+v", line, e)
		}
	}
}
