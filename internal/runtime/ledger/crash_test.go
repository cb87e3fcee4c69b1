package ledger_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
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
	saved        []ledger.TornTail
	// written is the highest note that was written at all.
	written int
}

func (w *life) run(disk ledger.FS, epoch uint64, count int) error {
	opts := options(disk, "/volume/runs/a", epoch)
	opts.SegmentBytes, opts.BallastBytes = 900, 256
	if w.head.Seq > 0 {
		opts.PinnedHead = &w.head
	}
	l, found, err := ledger.Open(opts)
	if err != nil {
		return err
	}
	// What Open reports is acknowledged by it.
	w.head = l.Head()
	w.saved = append(w.saved, found.Torn...)
	w.written = 0
	for e, err := range ledger.Replay(disk, opts.Dir) {
		if err != nil {
			return err
		}
		if e.Type == "note" {
			w.written++
		}
	}
	w.acknowledged = w.written
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
	for _, torn := range w.saved {
		if size, err := disk.Stat("/volume/runs/a/" + torn.Saved); err != nil || size != torn.Size {
			t.Fatalf("%s: the saved tail %s has %d bytes, %v", where, torn.Saved, size, err)
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
		}
	}
}

// A process dies at each operation, while the power stays on, in the midst of a
// repair too. The next one takes over what is in memory, and may rely on nothing that
// it did not make durable itself: then the power goes.
func TestProcessDeathAtEveryOperationAndThenPowerLoss(t *testing.T) {
	for at := 1; ; at++ {
		disk := volume(t)
		w := life{}
		half := handmade(1, 1, 1, "0000000000000000", "note", false, `{"n":1}`)[:50]
		for _, dir := range []string{"/volume/runs", "/volume/runs/a"} {
			if err := disk.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			for _, parent := range []string{"/volume", "/volume/runs"} {
				if err := disk.SyncDir(parent); err != nil {
					t.Fatal(err)
				}
			}
		}
		f, err := disk.OpenFile("/volume/runs/a/ledger.jsonl", os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(half)); err != nil {
			t.Fatal(err)
		}
		disk.CrashAt(disk.Ops() + at)
		done := w.run(disk, 1, 9) == nil
		disk.Restart()
		if err := w.run(disk, 2, 9); err != nil {
			t.Fatalf("operation %d: the second process: %v", at, err)
		}
		w.check(t, disk.Crash(faultfs.Strict, nil), 3, fmt.Sprintf("operation %d", at))
		if done {
			break
		}
	}
}

// A process dies between the rename of a blob and the sync of its directory. The
// next one finds the blob there, and must not name it before its name is durable.
func TestBlobFoundFromAnEarlierProcessIsMadeDurable(t *testing.T) {
	disk := volume(t)
	deadly := faultfs.Inject(disk, func(op faultfs.Op) faultfs.Fault {
		if op.Kind == faultfs.SyncDir && strings.HasSuffix(op.Path, "blobs") {
			return faultfs.Fault{Err: faultfs.ErrCrashed}
		}
		return faultfs.Fault{}
	})
	l, _ := open(t, options(deadly, "/volume/runs/a", 1))
	if _, err := l.PutBlob([]byte("x")); !errors.Is(err, faultfs.ErrCrashed) {
		t.Fatalf("storing the blob: %v, want a crash", err)
	}
	disk.Restart()
	l, _ = open(t, options(disk, "/volume/runs/a", 2))
	ref, err := l.PutBlob([]byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.ReadBlob(disk.Crash(faultfs.Strict, nil), "/volume/runs/a", ref); err != nil {
		t.Errorf("after a power loss: %v", err)
	}
}

// The second process is told of records that only memory holds, and the power goes
// right after.
func TestWhatOpenReportsIsDurable(t *testing.T) {
	disk := volume(t)
	l, _ := open(t, options(disk, "/volume/runs/a", 1))
	appendNotes(t, l, 1, 3)
	disk.Restart()
	l, found := open(t, options(disk, "/volume/runs/a", 2))
	if found.Records != 3 || l.Head() != found.Head {
		t.Errorf("found %+v with the head %v", found, l.Head())
	}
	if got := len(replay(t, disk.Crash(faultfs.Strict, nil), "/volume/runs/a")); got != 3 {
		t.Errorf("after the power loss there are %d records, want 3", got)
	}
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
