package ledger_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/ledger/faultfs"
)

const faultDir = "/runs/a"

// onSegment picks the operations on the ledger's segments.
func onSegment(op faultfs.Op, kind faultfs.Kind) bool {
	return op.Kind == kind && strings.HasSuffix(op.Path, ".jsonl")
}

// same says that two errors read the same, and wrap each other.
func same(a, b error) bool { return errors.Is(a, b) && a.Error() == b.Error() }

// A write that stops short at any byte must not leave a fragment for the next
// record to fuse with.
func TestShortWriteOfAnyLengthLeavesNoFragment(t *testing.T) {
	size := len(handmade(1, 2, 1, "0123456789abcdef", "note", false, `{"runUID":"`+runUID+`","n":2}`)) + 1
	for _, silent := range []bool{false, true} {
		for wrote := range size {
			disk := faultfs.NewMemory()
			broken := false
			fsys := faultfs.Inject(disk, func(op faultfs.Op) faultfs.Fault {
				if !broken || !onSegment(op, faultfs.Write) {
					return faultfs.Fault{}
				}
				broken = false
				if silent {
					return faultfs.Fault{Wrote: wrote, Short: true}
				}
				return faultfs.Fault{Wrote: wrote, Err: syscall.EIO}
			})
			l, _ := open(t, options(fsys, faultDir, 1))
			appendNotes(t, l, 1, 1)
			broken = true
			_, err := l.Append("note", false, numbered(2))
			var unwritable *ledger.UnwritableError
			if !errors.As(err, &unwritable) {
				t.Fatalf("a write of %d of %d bytes: %v, want an UnwritableError", wrote, size, err)
			}
			appendNotes(t, l, 2, 3)
			closeLedger(t, l)
			if diff := cmp.Diff(upTo(3), notes(t, replay(t, disk, faultDir))); diff != "" {
				t.Fatalf("after a write of %d bytes: notes\n%s", wrote, diff)
			}
			if report := ledger.Verify(disk, faultDir); len(report.Findings) != 0 {
				t.Fatalf("after a write of %d bytes: %+v", wrote, report.Findings)
			}
		}
	}
}

func TestShortWriteThatCannotBeCutBackPoisonsTheLedger(t *testing.T) {
	disk := faultfs.NewMemory()
	broken := false
	fsys := faultfs.Inject(disk, func(op faultfs.Op) faultfs.Fault {
		if broken && (onSegment(op, faultfs.Write) || onSegment(op, faultfs.Truncate)) {
			return faultfs.Fault{Wrote: 20, Err: syscall.EIO}
		}
		return faultfs.Fault{}
	})
	l, _ := open(t, options(fsys, faultDir, 1))
	appendNotes(t, l, 1, 2)
	syncLedger(t, l)
	broken = true
	_, first := l.Append("note", false, numbered(3))
	broken = false
	_, second := l.Append("note", false, numbered(3))
	third := l.Sync()
	if first == nil || !errors.Is(first, syscall.EIO) || !same(second, first) || !same(third, first) {
		t.Errorf("errors %v, %v, %v: want the same EIO three times", first, second, third)
	}
	if err := l.Close(); err != nil {
		t.Errorf("closing: %v", err)
	}
	l, found := open(t, options(disk, faultDir, 2))
	if found.Records != 2 || len(found.Torn) != 1 {
		t.Errorf("the next process finds %+v", found)
	}
	closeLedger(t, l)
}

// Linux reports a failed write-back once; a second fsync that succeeds proves
// nothing. So the first failure is final, and nothing since the last barrier counts
// as acknowledged.
func TestFailedFsyncIsFinalEvenIfTheNextWouldSucceed(t *testing.T) {
	disk := faultfs.NewMemory()
	failures := 0
	fsys := faultfs.Inject(disk, func(op faultfs.Op) faultfs.Fault {
		if failures == 1 && onSegment(op, faultfs.Sync) {
			failures++
			return faultfs.Fault{Err: syscall.EIO}
		}
		return faultfs.Fault{}
	})
	l, _ := open(t, options(fsys, faultDir, 1))
	appendNotes(t, l, 1, 1)
	syncLedger(t, l)
	head := l.Head()
	failures = 1
	appendNotes(t, l, 2, 2)
	first := l.Sync()
	if !errors.Is(first, syscall.EIO) {
		t.Fatalf("barrier: %v, want EIO", first)
	}
	if second := l.Sync(); !same(second, first) {
		t.Errorf("second barrier: %v, want the same error", second)
	}
	if _, err := l.Append("note", false, numbered(3)); !same(err, first) {
		t.Errorf("append: %v, want the same error", err)
	}
	if _, err := l.PutBlob([]byte("x")); !same(err, first) {
		t.Errorf("blob: %v, want the same error", err)
	}
	if l.Head() != head {
		t.Errorf("the head moved to %v", l.Head())
	}
	if got := notes(t, replay(t, disk.Crash(faultfs.Strict, nil), faultDir)); !cmp.Equal(got, upTo(1)) {
		t.Errorf("after a crash the notes are %v, want only the acknowledged one", got)
	}
}

func TestFailedFsyncOfABlobPoisonsTheLedger(t *testing.T) {
	broken := false
	fsys := faultfs.Inject(faultfs.NewMemory(), func(op faultfs.Op) faultfs.Fault {
		if broken && op.Kind == faultfs.Sync && strings.Contains(op.Path, "blobs") {
			return faultfs.Fault{Err: syscall.EIO}
		}
		return faultfs.Fault{}
	})
	l, _ := open(t, options(fsys, faultDir, 1))
	appendNotes(t, l, 1, 1)
	broken = true
	_, first := l.PutBlob([]byte("x"))
	if !errors.Is(first, syscall.EIO) {
		t.Fatalf("blob: %v, want EIO", first)
	}
	if err := l.Sync(); !errors.Is(err, syscall.EIO) {
		t.Errorf("barrier: %v, want EIO", err)
	}
}

// The disk fills up at any byte of any write. The records that were acknowledged
// stay, and the freed ballast leaves room for the record that says why the run stops.
func TestFullDiskAtAnyWriteStillTakesTheStopRecord(t *testing.T) {
	const ballast = 4096
	empty := faultfs.NewMemory()
	opts := options(empty, faultDir, 1)
	opts.BallastBytes, opts.SegmentBytes = ballast, 700
	l, _ := open(t, opts)
	appendNotes(t, l, 1, 1)
	least := empty.Used()
	for capacity := least; capacity < least+1500; capacity++ {
		disk := faultfs.NewMemory()
		disk.SetCapacity(capacity)
		opts := options(disk, faultDir, 1)
		opts.BallastBytes, opts.SegmentBytes = ballast, 700
		l, _ = open(t, opts)
		var err error
		acknowledged := 0
		for n := 1; err == nil && n < 50; n++ {
			if n%3 == 0 {
				if _, err = l.PutBlob(fmt.Append(nil, "blob ", n)); err != nil {
					break
				}
			}
			if _, err = l.Append("note", false, numbered(n)); err == nil {
				if err = l.Sync(); err == nil {
					acknowledged = n
				}
			}
		}
		var unwritable *ledger.UnwritableError
		if !errors.As(err, &unwritable) || !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("capacity %d: %v, want an UnwritableError with ENOSPC", capacity, err)
		}
		if err := l.FreeBallast(); err != nil {
			t.Fatalf("capacity %d: freeing the ballast: %v", capacity, err)
		}
		if _, err := l.Append("run.suspend", true, map[string]string{"reason": "LedgerUnwritable"}); err != nil {
			t.Fatalf("capacity %d: the stop record: %v", capacity, err)
		}
		closeLedger(t, l)
		entries := replay(t, disk, faultDir)
		if diff := cmp.Diff(upTo(acknowledged), notes(t, entries)); diff != "" {
			t.Fatalf("capacity %d: notes\n%s", capacity, diff)
		}
		if last := entries[len(entries)-1]; last.Type != "run.suspend" {
			t.Fatalf("capacity %d: the last record is %s", capacity, last.Type)
		}
		if report := ledger.Verify(disk, faultDir); len(report.Findings) != 0 {
			t.Fatalf("capacity %d: verify: %+v", capacity, report.Findings)
		}
		// While the disk is full, the next epoch does not start.
		opts.Epoch, opts.PodUID = 2, "pod-2"
		if _, _, err := ledger.Open(opts); !errors.As(err, &unwritable) {
			t.Fatalf("capacity %d: opening again: %v, want an UnwritableError", capacity, err)
		}
		disk.SetCapacity(0)
		l, _ = open(t, opts)
		closeLedger(t, l)
	}
}

func TestBallastThatCannotBeReservedPreventsTheStart(t *testing.T) {
	disk := faultfs.NewMemory()
	disk.SetCapacity(2000)
	opts := options(disk, faultDir, 1)
	opts.BallastBytes = 4096
	_, _, err := ledger.Open(opts)
	var unwritable *ledger.UnwritableError
	if !errors.As(err, &unwritable) || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("opening: %v, want an UnwritableError with ENOSPC", err)
	}
	opts.BallastBytes = 0
	l, _ := open(t, opts)
	closeLedger(t, l)
}

// Every operation of Open, failing with an error of a broken volume. The next
// open without the fault finds everything.
func TestDirectoryThatCannotTakeADurableWriteIsRefused(t *testing.T) {
	for _, failure := range []error{syscall.EROFS, syscall.EIO, syscall.ESTALE, syscall.EDQUOT} {
		for at := 1; ; at++ {
			disk := faultfs.NewMemory()
			l, _ := open(t, options(disk, faultDir, 1))
			appendNotes(t, l, 1, 3)
			closeLedger(t, l)
			count, hit := 0, faultfs.Op{}
			fsys := faultfs.Inject(disk, func(op faultfs.Op) faultfs.Fault {
				switch op.Kind {
				case faultfs.Open, faultfs.Close, faultfs.Mkdir:
					return faultfs.Fault{}
				default:
				}
				if count++; count == at {
					hit = op
					return faultfs.Fault{Err: failure}
				}
				return faultfs.Fault{}
			})
			opts := options(fsys, faultDir, 2)
			opts.BallastBytes = 1000
			l, _, err := ledger.Open(opts)
			if hit.Kind == "" {
				if err != nil {
					t.Fatal(err)
				}
				closeLedger(t, l)
				break
			}
			var unwritable *ledger.UnwritableError
			if !errors.As(err, &unwritable) || !errors.Is(err, failure) {
				t.Errorf("%v at %s of %s: %v, want an UnwritableError", failure, hit.Kind, hit.Path, err)
			}
			l, found := open(t, options(disk, faultDir, 2))
			if found.Records != 3 {
				t.Errorf("%v at %s of %s: then found %+v", failure, hit.Kind, hit.Path, found)
			}
			closeLedger(t, l)
		}
	}
}

func TestOpenOnAReadOnlyVolumeSaysSo(t *testing.T) {
	dir := filepath.Join("/proc", "belay-ledger-test")
	_, _, err := ledger.Open(options(nil, dir, 1))
	var unwritable *ledger.UnwritableError
	if !errors.As(err, &unwritable) || !strings.Contains(err.Error(), dir) {
		t.Errorf("opening %s: %v, want an UnwritableError that names it", dir, err)
	}
}

func TestOpenOfUnreadableLedgerIsNoDamage(t *testing.T) {
	disk := faultfs.NewMemory()
	l, _ := open(t, options(disk, faultDir, 1))
	appendNotes(t, l, 1, 3)
	closeLedger(t, l)
	fsys := faultfs.Inject(disk, func(op faultfs.Op) faultfs.Fault {
		if onSegment(op, faultfs.Open) {
			return faultfs.Fault{Err: syscall.EIO}
		}
		return faultfs.Fault{}
	})
	_, _, err := ledger.Open(options(fsys, faultDir, 2))
	var corrupt *ledger.CorruptError
	if !errors.Is(err, syscall.EIO) || errors.As(err, &corrupt) {
		t.Errorf("opening: %v, want EIO and no CorruptError", err)
	}
	if _, err := tryReplay(fsys, faultDir); !errors.Is(err, syscall.EIO) {
		t.Errorf("replaying: %v, want EIO", err)
	}
	if ledger.Verify(fsys, faultDir).OK() {
		t.Error("verify finds nothing wrong")
	}
}

func TestCloseReportsWhatTheFileSystemSaysLate(t *testing.T) {
	broken := false
	fsys := faultfs.Inject(faultfs.NewMemory(), func(op faultfs.Op) faultfs.Fault {
		if broken && onSegment(op, faultfs.Close) {
			return faultfs.Fault{Err: syscall.ENOSPC}
		}
		return faultfs.Fault{}
	})
	l, _ := open(t, options(fsys, faultDir, 1))
	appendNotes(t, l, 1, 1)
	broken = true
	if err := l.Close(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("closing: %v, want ENOSPC", err)
	}
}
