package ledger_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"belay.dev/belay/internal/runtime/ledger"
)

// childEnv makes the test binary act as a writer of the ledger that it names.
const childEnv = "BELAY_TEST_LEDGER_WRITER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		if err := childWriter(dir, os.Stdin, os.Stdout); err != nil {
			fmt.Println("error", err)
			if errors.Is(err, ledger.ErrFenced) {
				os.Exit(14)
			}
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// perBarrier notes are written by the child before each barrier.
const perBarrier = 3

// childWriter opens the ledger in the next epoch. For each line "n" on its input it
// passes that many barriers, each after perBarrier notes of a kilobyte, and prints
// "acked <last note> <seq> <hash>" after each.
func childWriter(dir string, in io.Reader, out io.Writer) error {
	opts := options(piecemeal{ledger.OS(), os.Getenv("BELAY_TEST_NO_LOCKS") != ""}, dir, 0)
	opts.PodUID, opts.SegmentBytes = "", 20000
	l, _, err := ledger.Open(opts)
	if err != nil {
		return err
	}
	next := 1
	for e, err := range ledger.Replay(nil, dir) {
		if err != nil {
			return err
		}
		if e.Type == "note" {
			next++
		}
	}
	if _, err := fmt.Fprintln(out, "ready", l.Epoch()); err != nil {
		return err
	}
	orders := bufio.NewScanner(in)
	for orders.Scan() {
		var count int
		if _, err := fmt.Sscan(orders.Text(), &count); err != nil {
			return err
		}
		for range count {
			for range perBarrier {
				if _, err := l.Append("note", false, note{RunUID: runUID, N: next, Text: padding}); err != nil {
					return err
				}
				next++
			}
			if err := l.Sync(); err != nil {
				return err
			}
			if _, err := fmt.Fprintln(out, "acked", next-1, l.Head().Seq, l.Head().Hash); err != nil {
				return err
			}
		}
	}
	return l.Close()
}

var padding = ledger.Text(strings.Repeat("0123456789abcdef", 64))

// piecemeal writes byte by byte, so that a kill often comes in the midst
// of a record.
type piecemeal struct {
	ledger.FS
	noLocks bool
}

func (p piecemeal) OpenFile(name string, flag int, perm fs.FileMode) (ledger.File, error) {
	f, err := p.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return piecemealFile{f}, nil
}

func (p piecemeal) Lock(name string) (io.Closer, error) {
	if p.noLocks {
		return nil, fmt.Errorf("locking %s: %w", name, errors.ErrUnsupported)
	}
	return p.FS.Lock(name)
}

type piecemealFile struct{ ledger.File }

func (f piecemealFile) Write(p []byte) (int, error) {
	written := 0
	for written < len(p) {
		n, err := f.File.Write(p[written : written+1])
		written += n
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

// writer is a child process that writes to a ledger.
type writer struct {
	*exec.Cmd
	orders io.WriteCloser
	lines  chan string
}

func startWriter(t *testing.T, dir string, env ...string) *writer {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w := &writer{Cmd: exec.Command(self), lines: make(chan string, 100000)}
	w.Env = append(append(os.Environ(), childEnv+"="+dir), env...)
	if w.orders, err = w.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := w.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(w.lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			w.lines <- scanner.Text()
		}
	}()
	t.Cleanup(func() {
		if w.ProcessState == nil {
			_ = w.Process.Kill() // it may have ended by itself
			w.end()
		}
	})
	return w
}

func (w *writer) order(t *testing.T, count int) {
	t.Helper()
	if _, err := fmt.Fprintln(w.orders, count); err != nil {
		t.Fatal(err)
	}
}

// line waits for the next line of the child's output.
func (w *writer) line(t *testing.T) string {
	t.Helper()
	select {
	case line, open := <-w.lines:
		if !open {
			t.Fatal("the writer has ended")
		}
		return line
	case <-time.After(20 * time.Second):
		t.Fatal("the writer says nothing")
	}
	return ""
}

// end waits for the child to end and returns its remaining output.
func (w *writer) end() []string {
	var rest []string
	for line := range w.lines {
		rest = append(rest, line)
	}
	_ = w.Wait() // a killed process always has an error; the caller looks at ProcessState
	return rest
}

// A process is killed at random moments, again and again, while it writes
// byte by byte. Each record that was acknowledged is there under its number and hash,
// and nothing is there by halves.
func TestKilledWriterLosesNothingAcknowledged(t *testing.T) {
	dir := filepath.Join(t.TempDir(), runUID)
	random := rand.New(rand.NewPCG(1, 2))
	acknowledged := map[uint64]string{}
	highest, torn := 0, 0
	for round := range rounds(20, 300) {
		w := startWriter(t, dir)
		if line := w.line(t); !strings.HasPrefix(line, "ready ") {
			t.Fatalf("round %d: the writer says %q", round, line)
		}
		w.order(t, 1000)
		lines := []string{w.line(t)}
		for range random.IntN(12) {
			lines = append(lines, w.line(t))
		}
		if round%2 == 1 {
			awaitHalfARecord(t, dir)
		}
		if err := w.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, w.end()...)
		for _, line := range lines {
			var n int
			var head ledger.Head
			if _, err := fmt.Sscanf(line, "acked %d %d %s", &n, &head.Seq, &head.Hash); err != nil {
				t.Fatalf("round %d: the writer says %q: %v", round, line, err)
			}
			acknowledged[head.Seq] = head.Hash
			highest = max(highest, n)
		}
		report := ledger.Verify(nil, dir)
		if !report.OK() {
			t.Fatalf("round %d: verify: %+v", round, report.Findings)
		}
		torn += len(report.Findings)
		there := map[uint64]string{}
		entries := replay(t, nil, dir)
		for _, e := range entries {
			there[e.Seq] = e.Hash
		}
		for seq, hash := range acknowledged {
			if there[seq] != hash {
				t.Fatalf("round %d: record %d was acknowledged as %s and is now %q", round, seq, hash, there[seq])
			}
		}
		got := notes(t, entries)
		if len(got) < highest {
			t.Fatalf("round %d: %d notes of %d acknowledged", round, len(got), highest)
		}
		if diff := cmp.Diff(upTo(len(got)), got); diff != "" {
			t.Fatalf("round %d: notes\n%s", round, diff)
		}
	}
	if torn == 0 {
		t.Error("no kill came within a record: the test does not test what it should")
	}
	t.Logf("%d barriers acknowledged, %d kills came within a record", len(acknowledged), torn)
}

// awaitHalfARecord returns when the newest segment was seen without a newline at its
// end, as it is for most of the time that the child writes.
func awaitHalfARecord(t *testing.T, dir string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		segments, err := filepath.Glob(filepath.Join(dir, "ledger*.jsonl"))
		if err != nil || len(segments) == 0 {
			t.Fatalf("segments %v, %v", segments, err)
		}
		// "ledger-000002.jsonl" sorts before "ledger.jsonl".
		newest := segments[max(len(segments)-2, 0)]
		if data := readTestFile(t, newest); len(data) > 0 && data[len(data)-1] != '\n' {
			return
		}
	}
	t.Fatal("the writer never wrote half a record")
}

func TestKilledWriterReleasesTheLock(t *testing.T) {
	dir := filepath.Join(t.TempDir(), runUID)
	w := startWriter(t, dir)
	w.line(t)
	if _, _, err := ledger.Open(options(nil, dir, 2)); !errors.Is(err, ledger.ErrLocked) {
		t.Errorf("while the writer lives: %v, want ErrLocked", err)
	}
	if err := w.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	w.end()
	l, _ := open(t, options(nil, dir, 2))
	closeLedger(t, l)
}

// A writer that is stopped, not dead, still holds its lock: no successor can start
// on the same machine.
func TestStoppedWriterKeepsSuccessorsOut(t *testing.T) {
	dir := filepath.Join(t.TempDir(), runUID)
	w := startWriter(t, dir)
	w.line(t)
	w.order(t, 1)
	w.line(t)
	signal(t, w, syscall.SIGSTOP)
	if _, _, err := ledger.Open(options(nil, dir, 2)); !errors.Is(err, ledger.ErrLocked) {
		t.Errorf("beside the stopped writer: %v, want ErrLocked", err)
	}
	signal(t, w, syscall.SIGCONT)
	w.order(t, 1)
	if line := w.line(t); !strings.HasPrefix(line, "acked 6 ") {
		t.Errorf("the woken writer says %q", line)
	}
}

// Where locks do not work a successor can start. The woken writer fails at its next
// barrier, and the successor's history stands.
func TestStoppedWriterWithoutLocksFailsItsBarrierWhenItWakes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), runUID)
	w := startWriter(t, dir, "BELAY_TEST_NO_LOCKS=1")
	w.line(t)
	w.order(t, 1)
	w.line(t)
	signal(t, w, syscall.SIGSTOP)
	opts := options(piecemeal{ledger.OS(), true}, dir, 2)
	l, found := open(t, opts)
	if !found.Unlocked || found.Records != 3 {
		t.Errorf("the successor found %+v", found)
	}
	appendNotes(t, l, 4, 6)
	syncLedger(t, l)
	head := l.Head()
	signal(t, w, syscall.SIGCONT)
	w.order(t, 1)
	rest := strings.Join(w.end(), "\n")
	if w.ProcessState.ExitCode() != 14 || !strings.Contains(rest, "newest epoch 2 of pod pod-2") || strings.Contains(rest, "acked") {
		t.Errorf("the woken writer exits %d and says %q", w.ProcessState.ExitCode(), rest)
	}
	entries := replay(t, nil, dir)
	if diff := cmp.Diff(upTo(6), notes(t, entries)); diff != "" {
		t.Errorf("history:\n%s", diff)
	}
	if last := entries[len(entries)-1].Head(); last != head {
		t.Errorf("the newest record is %v, the successor's was %v", last, head)
	}
}

func signal(t *testing.T, w *writer, s syscall.Signal) {
	t.Helper()
	if err := w.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// A reader beside a writer that is killed and restarted sees the records in order
// and never an error.
func TestReadersCopeWithALiveWriter(t *testing.T) {
	dir := filepath.Join(t.TempDir(), runUID)
	tick := make(chan time.Time)
	type seen struct {
		notes []int
		err   error
	}
	result := make(chan seen, 1)
	const last = 90
	go func() {
		var s seen
		for e, err := range ledger.Follow(t.Context(), nil, dir, tick) {
			if err != nil {
				s.err = err
				break
			}
			if e.Type == "note" {
				var n note
				if s.err = json.Unmarshal(e.Data, &n); s.err != nil {
					break
				}
				if s.notes = append(s.notes, n.N); n.N >= last {
					break
				}
			}
		}
		result <- s
	}()
	written := 0
	deadline := time.After(60 * time.Second)
	for {
		w := startWriter(t, dir)
		w.line(t)
		w.order(t, 10000)
		for range 7 {
			line := w.line(t)
			if _, err := fmt.Sscanf(line, "acked %d", &written); err != nil {
				t.Fatalf("the writer says %q", line)
			}
			if _, err := tryReplay(nil, dir); err != nil {
				t.Fatalf("replaying beside the writer: %v", err)
			}
			select {
			case tick <- newYear():
			case s := <-result:
				if s.err != nil || !cmp.Equal(s.notes, upTo(last)) {
					t.Errorf("the follower saw %v, %v", s.notes, s.err)
				}
				return
			case <-deadline:
				t.Fatal("the follower does not come to an end")
			}
		}
		if err := w.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		w.end()
	}
}
