package ledger_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/ledger/faultfs"
)

// life is what one process does before the power goes: it opens the ledger, writes
// notes, blobs and barriers over several segments, and remembers what was
// acknowledged to it.
type life struct {
	acknowledged int
	head         ledger.Head
	blobs        []ledger.BlobRef
	// written is the highest note that was written at all.
	written int
}

func (w *life) run(disk ledger.FS, epoch uint64, count int) error {
	opts := options(disk, "/volume/runs/a", epoch)
	opts.SegmentBytes, opts.BallastBytes = 900, 256
	if w.head.Seq > 0 {
		opts.PinnedHead = &w.head
	}
	l, _, err := ledger.Open(opts)
	if err != nil {
		return err
	}
	for range count {
		n := w.written + 1
		if n%3 == 0 {
			ref, err := l.PutBlob(fmt.Append(nil, "blob ", n))
			if err != nil {
				return err
			}
			w.blobs = append(w.blobs, ref)
		}
		w.written = n
		if _, err := l.Append("note", false, numbered(n)); err != nil {
			return err
		}
		if n%2 == 0 {
			if err := l.Sync(); err != nil {
				return err
			}
			w.acknowledged, w.head = n, l.Head()
		}
	}
	if err := l.Close(); err != nil {
		return err
	}
	w.acknowledged, w.head = w.written, l.Head()
	return nil
}

// check opens what a crash left and compares it with what was acknowledged.
func (w *life) check(t *testing.T, disk *faultfs.Memory, epoch uint64, where string) {
	t.Helper()
	opts := options(disk, "/volume/runs/a", epoch)
	opts.SegmentBytes = 900
	if w.head.Seq > 0 {
		opts.PinnedHead = &w.head
	}
	l, _, err := ledger.Open(opts)
	if err != nil {
		t.Fatalf("%s: opening: %v", where, err)
	}
	got := notes(t, replay(t, disk, "/volume/runs/a"))
	if len(got) < w.acknowledged || len(got) > w.written {
		t.Fatalf("%s: %d notes, want %d to %d", where, len(got), w.acknowledged, w.written)
	}
	if diff := cmp.Diff(upTo(len(got)), got, cmp.Transformer("nil", func(s []int) []int { return append([]int{}, s...) })); diff != "" {
		t.Fatalf("%s: notes\n%s", where, diff)
	}
	for _, ref := range w.blobs {
		if _, err := l.Blob(ref); err != nil {
			t.Fatalf("%s: %v", where, err)
		}
	}
	next := len(got) + 1
	if _, err := l.Append("note", false, numbered(next)); err != nil {
		t.Fatalf("%s: going on: %v", where, err)
	}
	if err := l.Close(); err != nil {
		t.Fatalf("%s: closing: %v", where, err)
	}
	if got := notes(t, replay(t, disk, "/volume/runs/a")); len(got) != next {
		t.Fatalf("%s: then %d notes, want %d", where, len(got), next)
	}
	if report := ledger.Verify(disk, "/volume/runs/a"); !report.OK() {
		t.Fatalf("%s: verify: %+v", where, report.Findings)
	}
}

func volume(t *testing.T) *faultfs.Memory {
	t.Helper()
	disk := faultfs.NewMemory()
	for _, step := range []error{disk.Mkdir("/volume", 0o700), disk.SyncDir("/")} {
		if step != nil {
			t.Fatal(step)
		}
	}
	return disk
}

// Power is lost at each file system operation of two lives in turn, and of the
// repair after it. Whatever was acknowledged is there, nothing is half there.
func TestPowerLossAtEveryOperationLosesNothingAcknowledged(t *testing.T) {
	const perLife = 14
	for _, survival := range []faultfs.Survival{faultfs.Strict, faultfs.Ordered} {
		for at := 1; ; at++ {
			random := rand.New(rand.NewPCG(uint64(at), uint64(survival)))
			disk := volume(t)
			disk.CrashAt(disk.Ops() + at)
			var w life
			err := w.run(disk, 1, perLife)
			if err == nil {
				break
			}
			where := fmt.Sprintf("survival %d, operation %d", survival, at)
			if !errors.Is(err, faultfs.ErrCrashed) {
				t.Fatalf("%s: %v", where, err)
			}
			left := disk.Crash(survival, random)
			w.check(t, left.Crash(faultfs.Strict, nil), 2, where)
			// The repair is interrupted at each of its operations as well.
			if at%7 != 0 {
				continue
			}
			for again := 1; ; again++ {
				second := left.Crash(faultfs.Strict, nil)
				second.CrashAt(again)
				opts := options(second, "/volume/runs/a", 2)
				opts.SegmentBytes = 900
				if l, _, err := ledger.Open(opts); err == nil {
					closeLedger(t, l)
					break
				} else if !errors.Is(err, faultfs.ErrCrashed) {
					t.Fatalf("%s, then %d: %v", where, again, err)
				}
				w.check(t, second.Crash(survival, random), 3, fmt.Sprintf("%s, then %d", where, again))
			}
		}
	}
}

// Many lives of one run, each ended by a power loss at a random operation.
func TestManyPowerLossesInOneRun(t *testing.T) {
	const lives = 12
	for seed := range rounds(20, 500) {
		random := rand.New(rand.NewPCG(uint64(seed), 7))
		disk := volume(t)
		var w life
		for epoch := 1; epoch <= lives; epoch++ {
			disk.CrashAt(disk.Ops() + 1 + random.IntN(90))
			err := w.run(disk, uint64(epoch), 10)
			if err != nil && !errors.Is(err, faultfs.ErrCrashed) {
				t.Fatalf("seed %d, epoch %d: %v", seed, epoch, err)
			}
			disk = disk.Crash(faultfs.Ordered, random)
			// The next life goes on after what is left.
			got := notes(t, replay(t, disk, "/volume/runs/a"))
			unterminated := 1
			if len(got) < w.acknowledged-unterminated {
				t.Fatalf("seed %d, epoch %d: %d notes are left of %d acknowledged", seed, epoch, len(got), w.acknowledged)
			}
			w.check(t, disk.Crash(faultfs.Strict, nil), uint64(epoch+1), fmt.Sprintf("seed %d, epoch %d", seed, epoch))
			w.written = repaired(t, disk)
		}
	}
}

// repaired returns the highest note that an Open would find.
func repaired(t *testing.T, disk *faultfs.Memory) int {
	t.Helper()
	copied := disk.Crash(faultfs.Strict, nil)
	opts := options(copied, "/volume/runs/a", 1000)
	l, _, err := ledger.Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	closeLedger(t, l)
	return len(notes(t, replay(t, copied, "/volume/runs/a")))
}

// A file system that writes blocks in any order may leave a hole before an intact
// record that was never acknowledged. That looks like interior damage: it may be
// refused, but never be changed silently.
func TestBlocksWrittenOutOfOrderAreRepairedOrRefused(t *testing.T) {
	refused := 0
	for seed := range 300 {
		random := rand.New(rand.NewPCG(uint64(seed), 11))
		disk := volume(t)
		opts := options(disk, "/volume/runs/a", 1)
		l, _ := open(t, opts)
		appendNotes(t, l, 1, 4)
		syncLedger(t, l)
		head := l.Head()
		appendNotes(t, l, 5, 9)
		left := disk.Crash(faultfs.Scattered, random)
		opts = options(left, "/volume/runs/a", 2)
		opts.PinnedHead = &head
		l, _, err := ledger.Open(opts)
		var corrupt *ledger.CorruptError
		switch {
		case errors.As(err, &corrupt):
			refused++
			if corrupt.Seq <= 4 {
				t.Fatalf("seed %d: an acknowledged record is called damaged: %v", seed, err)
			}
			continue
		case err != nil:
			t.Fatalf("seed %d: %v", seed, err)
		}
		closeLedger(t, l)
		got := notes(t, replay(t, left, "/volume/runs/a"))
		if len(got) < 4 || !cmp.Equal(got, upTo(len(got))) {
			t.Fatalf("seed %d: notes %v", seed, got)
		}
	}
	if refused == 0 || refused == 300 {
		t.Errorf("%d of 300 were refused: the test does not cover both outcomes", refused)
	}
}
