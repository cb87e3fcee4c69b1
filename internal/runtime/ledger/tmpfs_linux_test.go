package ledger_test

import (
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/ledger/faultfs"
)

// smallVolume is a real tmpfs of 256 KiB where the test may mount one, and a
// simulated disk of that size elsewhere.
func smallVolume(t *testing.T) (fsys ledger.FS, dir string, real bool) {
	t.Helper()
	dir = t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Logf("no tmpfs here (%v), simulating the disk", err)
		disk := faultfs.NewMemory()
		disk.SetCapacity(256 << 10)
		return disk, "/volume", false
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmounting %s: %v", dir, err)
		}
	})
	return ledger.OS(), dir, true
}

// A run that asks for tools until its volume is full: each dispatched call has a
// durable intent, the one that has none is not dispatched, and the stop record
// still fits.
func TestFullVolumeStopsDispatchBeforeAnUnrecordedCall(t *testing.T) {
	fsys, volume, _ := smallVolume(t)
	dir := filepath.Join(volume, runUID)
	opts := options(fsys, dir, 1)
	opts.BallastBytes = 64 << 10
	l, _ := open(t, opts)
	appendNotes(t, l, 1, 1)
	dispatched := 1
	var err error
	for {
		intent := note{N: dispatched + 1, Text: ledger.Text(strings.Repeat("x", 1000))}
		if _, err = l.Append("note", true, intent); err != nil {
			break
		}
		if err = l.Sync(); err != nil {
			break
		}
		dispatched++
	}
	var unwritable *ledger.UnwritableError
	if !errors.As(err, &unwritable) || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the volume is full: %v, want an UnwritableError with ENOSPC", err)
	}
	if err := l.FreeBallast(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append("run.suspend", true, map[string]string{"reason": "LedgerUnwritable"}); err != nil {
		t.Fatalf("the stop record: %v", err)
	}
	closeLedger(t, l)
	entries := replay(t, fsys, dir)
	if diff := cmp.Diff(upTo(dispatched), notes(t, entries)); diff != "" {
		t.Errorf("intents:\n%s", diff)
	}
	if last := entries[len(entries)-1]; last.Type != "run.suspend" {
		t.Errorf("the last record is %s", last.Type)
	}
	if dispatched < 50 {
		t.Errorf("the volume was full after %d calls", dispatched)
	}
}

// A volume that turns read-only in the midst of a run, as after an I/O error.
func TestVolumeThatTurnsReadOnlyFailsTheNextOpen(t *testing.T) {
	fsys, volume, mounted := smallVolume(t)
	if !mounted {
		t.Log("only a real volume can turn read-only; the injected EROFS of another test stands in")
		return
	}
	dir := filepath.Join(volume, runUID)
	l, _ := open(t, options(fsys, dir, 1))
	appendNotes(t, l, 1, 3)
	closeLedger(t, l)
	if err := syscall.Mount("", volume, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, "size=256k"); err != nil {
		t.Fatal(err)
	}
	_, _, err := ledger.Open(options(fsys, dir, 2))
	var unwritable *ledger.UnwritableError
	if !errors.As(err, &unwritable) || !errors.Is(err, syscall.EROFS) {
		t.Errorf("opening: %v, want an UnwritableError with EROFS", err)
	}
	if got := notes(t, replay(t, fsys, dir)); !cmp.Equal(got, upTo(3)) {
		t.Errorf("a reader sees notes %v", got)
	}
}
