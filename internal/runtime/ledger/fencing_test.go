package ledger_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/ledger/faultfs"
)

func TestSecondOpenerIsRefusedAndToldWhoHoldsTheLedger(t *testing.T) {
	for name, fsys := range map[string]ledger.FS{"on the machine's file system": nil, "in memory": faultfs.NewMemory()} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), runUID)
			l, _ := open(t, options(fsys, dir, 1))
			appendNotes(t, l, 1, 1)
			_, _, err := ledger.Open(options(fsys, dir, 2))
			var locked *ledger.LockedError
			if !errors.Is(err, ledger.ErrLocked) || !errors.As(err, &locked) {
				t.Fatalf("opening twice: %v, want a LockedError", err)
			}
			if locked.Holder.Epoch != 1 || locked.Holder.PodUID != "pod-1" || locked.Holder.PID != os.Getpid() {
				t.Errorf("the holder is said to be %+v", locked.Holder)
			}
			appendNotes(t, l, 2, 2)
			closeLedger(t, l)
			l, found := open(t, options(fsys, dir, 2))
			if found.Records != 2 {
				t.Errorf("found %+v", found)
			}
			closeLedger(t, l)
		})
	}
}

func TestOlderEpochIsFencedAtOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), runUID)
	l, _ := open(t, options(nil, dir, 5))
	appendNotes(t, l, 1, 1)
	closeLedger(t, l)
	before := files(t, dir)
	for name, opts := range map[string]ledger.Options{
		"an older epoch":          options(nil, dir, 4),
		"the epoch, another pod":  {Dir: dir, RunUID: runUID, Epoch: 5, PodUID: "pod-other", Now: newYear},
		"an older one of the pod": {Dir: dir, RunUID: runUID, Epoch: 1, PodUID: "pod-5", Now: newYear},
	} {
		_, _, err := ledger.Open(opts)
		var fenced *ledger.FencedError
		if !errors.Is(err, ledger.ErrFenced) || !errors.As(err, &fenced) || fenced.Epoch != 5 {
			t.Errorf("%s: %v, want to be fenced by epoch 5", name, err)
		}
	}
	if diff := cmp.Diff(before, files(t, dir)); diff != "" {
		t.Errorf("the directory has changed:\n%s", diff)
	}
	l, _ = open(t, options(nil, dir, 5))
	closeLedger(t, l)
}

// The epoch file may be lost; the records still say which epoch is newest.
func TestRecordsOfANewerEpochFenceToo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), runUID)
	l, _ := open(t, options(nil, dir, 5))
	appendNotes(t, l, 1, 1)
	closeLedger(t, l)
	if err := os.Remove(filepath.Join(dir, "EPOCH")); err != nil {
		t.Fatal(err)
	}
	_, _, err := ledger.Open(options(nil, dir, 4))
	var fenced *ledger.FencedError
	if !errors.As(err, &fenced) || fenced.Epoch != 5 {
		t.Errorf("opening: %v, want to be fenced by epoch 5", err)
	}
}

// Where locks do not work, a runner that was stalled while a successor took over
// fails at its next barrier, and what it wrote in the meantime is ignored.
func TestStaleWriterFailsItsBarrierAndItsRecordsAreIgnored(t *testing.T) {
	disk := faultfs.NewMemory().WithoutLocks()
	const dir = "/runs/a"
	stale, found := open(t, options(disk, dir, 1))
	if !found.Unlocked {
		t.Error("Open does not say that there is no lock")
	}
	appendNotes(t, stale, 1, 2)
	syncLedger(t, stale)

	successor, _ := open(t, options(disk, dir, 2))
	appendNotes(t, successor, 3, 4)
	syncLedger(t, successor)

	// Its numbers are those that the successor has used already.
	appendNotes(t, stale, 98, 99)
	err := stale.Sync()
	var fenced *ledger.FencedError
	if !errors.Is(err, ledger.ErrFenced) || !errors.As(err, &fenced) || fenced.Epoch != 2 || fenced.PodUID != "pod-2" {
		t.Errorf("the stale writer's barrier: %v, want to be fenced by epoch 2", err)
	}
	if _, again := stale.Append("note", false, numbered(100)); !errors.Is(again, ledger.ErrFenced) {
		t.Errorf("the stale writer's next record: %v", again)
	}
	if err := stale.Close(); err != nil {
		t.Errorf("closing the stale ledger: %v", err)
	}

	entries := replay(t, disk, dir)
	if diff := cmp.Diff(upTo(4), notes(t, entries)); diff != "" {
		t.Errorf("history:\n%s", diff)
	}
	report := ledger.Verify(disk, dir)
	if !report.OK() || len(report.Findings) != 2 || !strings.Contains(report.Findings[0].What, "epoch 1") {
		t.Errorf("verify: %+v", report)
	}
	// The successor finds foreign bytes in its segment and gives up as well; the
	// next epoch goes on.
	appendNotes(t, successor, 5, 5)
	if err := successor.Sync(); !errors.Is(err, ledger.ErrFenced) {
		t.Errorf("the successor's barrier: %v, want ErrFenced", err)
	}
	third, found := open(t, options(disk, dir, 3))
	if len(found.Fenced) != 2 || found.Fenced[0].Epoch != 1 || found.Fenced[0].Seq != 3 {
		t.Errorf("the third epoch is told of %+v", found.Fenced)
	}
	appendNotes(t, third, 6, 6)
	syncLedger(t, third)
	if diff := cmp.Diff(upTo(6), notes(t, replay(t, disk, dir))); diff != "" {
		t.Errorf("history:\n%s", diff)
	}
}

// Nothing but the epoch file tells of a successor that has not written yet.
func TestSuccessorThatHasNotWrittenYetFencesToo(t *testing.T) {
	disk := faultfs.NewMemory().WithoutLocks()
	opts := options(disk, "/runs/a", 1)
	opts.PodUID = ""
	stale, _ := open(t, opts)
	appendNotes(t, stale, 1, 1)
	syncLedger(t, stale)
	opts.Epoch = 2
	open(t, opts)
	var fenced *ledger.FencedError
	if err := stale.Sync(); !errors.As(err, &fenced) || fenced.Epoch != 2 {
		t.Errorf("the stale writer's barrier: %v, want to be fenced by epoch 2", err)
	}
}

// The stale writer appends at the very moment of the takeover: after the successor
// has read the ledger, before it has written the epoch file. Its record is then part
// of the history, or its barrier fails; never is an acknowledged record overwritten.
func TestRecordWrittenDuringTheTakeoverIsKept(t *testing.T) {
	disk := faultfs.NewMemory().WithoutLocks()
	stale, _ := open(t, options(disk, "/runs/a", 1))
	appendNotes(t, stale, 1, 2)
	syncLedger(t, stale)
	raced := false
	fsys := faultfs.Inject(disk, func(op faultfs.Op) faultfs.Fault {
		if op.Kind == faultfs.Rename && strings.HasSuffix(op.Path, "EPOCH") && !raced {
			raced = true
			appendNotes(t, stale, 3, 3)
			syncLedger(t, stale)
		}
		return faultfs.Fault{}
	})
	successor, found := open(t, options(fsys, "/runs/a", 2))
	if !raced || found.Records != 3 || found.Head.Seq != 3 {
		t.Errorf("the successor found %+v, want the acknowledged record 3", found)
	}
	appendNotes(t, successor, 4, 4)
	syncLedger(t, successor)
	if err := stale.Sync(); !errors.Is(err, ledger.ErrFenced) {
		t.Errorf("the stale writer's barrier: %v, want ErrFenced", err)
	}
	if diff := cmp.Diff(upTo(4), notes(t, replay(t, disk, "/runs/a"))); diff != "" {
		t.Errorf("history:\n%s", diff)
	}
}

// A record with a number that was given already, written by an older epoch.
func TestDuplicateNumberOfAnOlderEpochIsIgnoredAndReported(t *testing.T) {
	dir := filepath.Join(t.TempDir(), runUID)
	l, _ := open(t, options(nil, dir, 1))
	appendNotes(t, l, 1, 2)
	closeLedger(t, l)
	path := filepath.Join(dir, "ledger.jsonl")
	zombie := handmade(1, 3, 1, handHash(lastLine(t, readTestFile(t, path))), "note", false, `{"n":99}`)
	l, _ = open(t, options(nil, dir, 2))
	appendNotes(t, l, 3, 3)
	closeLedger(t, l)
	writeTestFile(t, path, append(readTestFile(t, path), zombie+"\n"...))

	l, found := open(t, options(nil, dir, 3))
	if len(found.Fenced) != 1 || found.Fenced[0].Seq != 3 || found.Fenced[0].Epoch != 1 || found.Fenced[0].Type != "note" {
		t.Errorf("fenced: %+v", found.Fenced)
	}
	appendNotes(t, l, 4, 4)
	closeLedger(t, l)
	if diff := cmp.Diff(upTo(4), notes(t, replay(t, nil, dir))); diff != "" {
		t.Errorf("notes:\n%s", diff)
	}
}

// Two writers of one epoch cannot be told apart, so that their history is refused.
func TestDuplicateNumberOfTheSameEpochIsDamage(t *testing.T) {
	dir := written(t, 2)
	path := filepath.Join(dir, "ledger.jsonl")
	data := readTestFile(t, path)
	line := handmade(1, 3, 1, handHash(lastLine(t, data)), "note", false, `{"n":3}`)
	writeTestFile(t, path, append(data, line+"\n"+line+"\n"...))
	_, _, err := ledger.Open(options(nil, dir, 2))
	var corrupt *ledger.CorruptError
	if !errors.As(err, &corrupt) || corrupt.Seq != 4 {
		t.Errorf("opening: %v, want damage at record 4", err)
	}
}

func TestForeignRunIsRefused(t *testing.T) {
	dir := written(t, 2)
	for _, name := range []string{"by the epoch file", "by the first record"} {
		before := files(t, dir)
		opts := options(nil, dir, 2)
		opts.RunUID = otherUID
		if _, _, err := ledger.Open(opts); !errors.Is(err, ledger.ErrForeignRun) {
			t.Errorf("%s: %v, want ErrForeignRun", name, err)
		}
		if diff := cmp.Diff(before, files(t, dir)); diff != "" {
			t.Errorf("%s: the directory has changed:\n%s", name, diff)
		}
		if err := os.RemoveAll(filepath.Join(dir, "EPOCH")); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDirectoryTellsWhichRunItBelongsTo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	want := func(uid string) {
		t.Helper()
		if got, err := ledger.RunUID(nil, dir); got != uid || err != nil {
			t.Errorf("the directory is said to be of run %q (%v), want %q", got, err, uid)
		}
	}
	want("")
	l, _ := open(t, options(nil, dir, 1))
	want(runUID) // a process that is killed now leaves no record
	appendNotes(t, l, 1, 1)
	closeLedger(t, l)
	if err := os.Remove(filepath.Join(dir, "EPOCH")); err != nil {
		t.Fatal(err)
	}
	want(runUID)
}

func TestFirstRecordMustNameTheRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), runUID)
	l, _ := open(t, options(nil, dir, 1))
	if _, err := l.Append("note", false, map[string]int{"n": 1}); err == nil {
		t.Error("a first record without the run's UID was accepted")
	}
	appendNotes(t, l, 1, 1)
	closeLedger(t, l)
}

func TestDamagedEpochFileIsRefusedWithAdvice(t *testing.T) {
	dir := written(t, 2)
	path := filepath.Join(dir, "EPOCH")
	whole := readTestFile(t, path)
	for at := range len(whole) - 1 {
		changed := append([]byte(nil), whole...)
		changed[at] ^= 1
		writeTestFile(t, path, changed)
		_, _, err := ledger.Open(options(nil, dir, 2))
		var corrupt *ledger.CorruptError
		if !errors.As(err, &corrupt) || corrupt.Segment != path || !strings.Contains(corrupt.Advice, "remove this file") {
			t.Fatalf("byte %d: %v, want damage with advice", at, err)
		}
	}
	if report := ledger.Verify(nil, dir); report.OK() {
		t.Error("verify finds nothing wrong")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	l, _ := open(t, options(nil, dir, 2))
	closeLedger(t, l)
}

// A volume restored from an older copy, or one that lost writes it had promised.
func TestLedgerThatLostItsPublishedHeadIsRefused(t *testing.T) {
	dir := written(t, 5)
	entries := replay(t, nil, dir)
	older := filepath.Join(t.TempDir(), "older")
	copyDir(t, dir, older)
	path := filepath.Join(older, "ledger.jsonl")
	writeTestFile(t, path, readTestFile(t, path)[:entries[3].Offset+10])
	rewritten := entries[2].Head()
	rewritten.Hash = "0123456789abcdef"
	for name, c := range map[string]struct {
		dir    string
		pinned ledger.Head
		ok     bool
	}{
		"the newest record":        {dir, entries[4].Head(), true},
		"an older record":          {dir, entries[1].Head(), true},
		"nothing published yet":    {dir, ledger.Head{}, true},
		"a record beyond the end":  {older, entries[4].Head(), false},
		"the record that was torn": {older, entries[3].Head(), false},
		"a record of another past": {dir, rewritten, false},
		"a ledger that is gone":    {filepath.Join(t.TempDir(), "gone"), entries[0].Head(), false},
	} {
		t.Run(name, func(t *testing.T) {
			opts := options(nil, c.dir, 1)
			opts.PinnedHead = &c.pinned
			if c.ok {
				l, _ := open(t, opts)
				closeLedger(t, l)
				return
			}
			if err := os.MkdirAll(c.dir, 0o700); err != nil {
				t.Fatal(err)
			}
			before := files(t, c.dir)
			_, _, err := ledger.Open(opts)
			var regressed *ledger.RegressedError
			if !errors.As(err, &regressed) || regressed.Pinned != c.pinned {
				t.Errorf("opening: %v, want a RegressedError", err)
			}
			if diff := cmp.Diff(before, files(t, c.dir)); diff != "" {
				t.Errorf("the directory has changed:\n%s", diff)
			}
		})
	}
}
