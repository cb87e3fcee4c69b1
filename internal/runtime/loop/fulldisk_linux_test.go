package loop_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/ledger/faultfs"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/tools"
)

const ballast = 64 << 10

// smallDisk puts the ledger on a tmpfs of 256 KiB where the test may mount one, and on a simulated disk of that size
// elsewhere. grow makes room.
func (s *scene) smallDisk() (fsys ledger.FS, grow func()) {
	s.t.Helper()
	volume := s.t.TempDir()
	fsys = ledger.OS()
	if err := syscall.Mount("tmpfs", volume, "tmpfs", 0, "size=256k"); err != nil {
		s.t.Logf("no tmpfs here (%v), simulating the disk", err)
		disk := faultfs.NewMemory()
		disk.SetCapacity(256 << 10)
		volume, fsys = "/volume", disk
		grow = func() { disk.SetCapacity(4 << 20) }
	} else {
		s.t.Cleanup(func() {
			if err := syscall.Unmount(volume, 0); err != nil {
				s.t.Errorf("unmount %s: %v", volume, err)
			}
		})
		grow = func() {
			if err := syscall.Mount("", volume, "", syscall.MS_REMOUNT, "size=4m"); err != nil {
				s.t.Fatal(err)
			}
		}
	}
	s.dir = filepath.Join(volume, testUID)
	s.open = func(o *ledger.Options) { o.FS, o.BallastBytes = fsys, ballast }
	return fsys, grow
}

// onDisk are the payloads of a ledger that a reader finds.
func onDisk(t *testing.T, fsys ledger.FS, dir string) []any {
	t.Helper()
	var out []any
	for e, err := range ledger.Replay(fsys, dir) {
		if err != nil {
			t.Fatal(err)
		}
		payload, err := record.Decode(e.Type, e.Data, nil)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, payload)
	}
	return out
}

// TestAFullDiskStopsTheRunBeforeACallThatIsNotOnRecord asks for calls until the disk is full.
func TestAFullDiskStopsTheRunBeforeACallThatIsNotOnRecord(t *testing.T) {
	s := newScene(t, `legs: {a: {steps: [{calls: [{name: act, arguments: {}}, {name: post, arguments: {}}], times: Forever}]}}`, "a")
	s.ladder.Legs[0].ContextWindow = 10_000_000
	s.contract.Limits.MaxTurns = 100_000
	fsys, grow := s.smallDisk()
	recorded := map[string]bool{}
	s.workspace.answer = func(c tools.Call) tools.Outcome {
		for _, p := range onDisk(t, fsys, s.dir) {
			if start, ok := p.(*record.ToolStart); ok {
				recorded[start.Call] = true
			}
		}
		if !recorded[c.ID] {
			t.Errorf("%s %s was dispatched without a record of its start", c.Tool, c.ID)
		}
		return tools.Outcome{Status: tools.OK, Text: fmt.Sprintf("output %d: %s", len(recorded), strings.Repeat("x", 1000))}
	}

	_, err := s.run()
	unwritable := (*ledger.UnwritableError)(nil)
	if !errors.As(err, &unwritable) || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the run on a full disk ended with %v, want an UnwritableError with ENOSPC", err)
	}
	records := onDisk(t, fsys, s.dir)
	last, ok := records[len(records)-1].(*record.RunSuspend)
	if !ok || last.Reason != "LedgerUnwritable" {
		t.Errorf("the last record is %+v, want why the run stopped", records[len(records)-1])
	}
	if _, err := fsys.Stat(filepath.Join(s.dir, "ballast")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the ballast is still there (%v): the last record fitted by chance", err)
	}
	dispatched := len(s.workspace.dispatched)
	if dispatched < 20 {
		t.Errorf("the disk was full after %d calls", dispatched)
	}

	// Without room for the ballast nothing starts; with it, the run goes on where it stopped.
	if _, _, err := ledger.Open(ledger.Options{Dir: s.dir, RunUID: testUID, Now: s.clock.Now, FS: fsys, BallastBytes: ballast}); !errors.As(err, &unwritable) {
		t.Errorf("the next epoch on the full disk: %v, want an UnwritableError", err)
	}
	grow()
	committed := 0
	for _, p := range records {
		if r, ok := p.(*record.LLMResponse); ok {
			committed = r.Turn
		}
	}
	s.contract.Limits.MaxTurns = committed + 1
	if end := s.finish(); end.Reason != "MaxTurnsReached" {
		t.Errorf("ended as %s: %s", end.Reason, end.Message)
	}
	once := map[string]int{}
	for _, d := range s.workspace.dispatched {
		if once[d]++; once[d] > 1 {
			t.Errorf("%s ran twice", d)
		}
	}
	if len(s.workspace.dispatched) <= dispatched {
		t.Errorf("no call after the first %d", dispatched)
	}
}
