package ledger_test

import (
	"context"
	"io"
	"io/fs"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/ledger/faultfs"
)

// lagging shows only the first bytes of a segment until a reader has come to their
// end once, as if a writer were at work just then.
type lagging struct {
	ledger.FS
	visible *int64
}

func (l lagging) OpenFile(name string, flag int, perm fs.FileMode) (ledger.File, error) {
	f, err := l.FS.OpenFile(name, flag, perm)
	if err != nil || !strings.HasSuffix(name, ".jsonl") {
		return f, err
	}
	return laggingFile{f, l.visible}, nil
}

type laggingFile struct {
	ledger.File
	visible *int64
}

func (f laggingFile) ReadAt(p []byte, offset int64) (int, error) {
	left := *f.visible - offset
	if left > int64(len(p)) {
		return f.File.ReadAt(p, offset)
	}
	if left > 0 {
		return f.File.ReadAt(p[:left], offset)
	}
	*f.visible = 1 << 40
	return 0, io.EOF
}

func TestReaderThatCatchesAWriterInTheActSeesNoDamage(t *testing.T) {
	disk := faultfs.NewMemory()
	l, _ := open(t, options(disk, faultDir, 1))
	appendNotes(t, l, 1, 4)
	syncLedger(t, l)
	size := l.Stats().Bytes
	for visible := range size + 1 {
		left := visible
		if report := ledger.Verify(lagging{disk, &left}, faultDir); len(report.Findings) != 0 {
			t.Fatalf("with %d bytes at first: %+v", visible, report.Findings)
		}
		left = visible
		entries, err := tryReplay(lagging{disk, &left}, faultDir)
		if err != nil || !cmp.Equal(notes(t, entries), upTo(len(entries)), cmp.Transformer("nil", func(s []int) []int { return append([]int{}, s...) })) {
			t.Fatalf("with %d bytes at first: %d records, %v", visible, len(entries), err)
		}
	}
}

func TestFollowYieldsNewRecordsAtEachTickAndEndsWithItsContext(t *testing.T) {
	disk := faultfs.NewMemory()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tick := make(chan time.Time)
	seen := make(chan int, 100)
	go func() {
		defer close(seen)
		for e, err := range ledger.Follow(ctx, disk, faultDir, tick) {
			if err != nil {
				t.Error(err)
				return
			}
			seen <- int(e.Seq)
		}
	}()
	tick <- newYear() // there is nothing yet, not even the directory
	opts := options(disk, faultDir, 1)
	opts.SegmentBytes = 300
	l, _ := open(t, opts)
	next := 1
	for range 3 {
		appendNotes(t, l, 1, 2)
		tick <- newYear()
		for ; int64(next) <= l.Stats().Records; next++ {
			if got := <-seen; got != next {
				t.Fatalf("followed record %d, want %d", got, next)
			}
		}
	}
	cancel()
	if extra, open := <-seen; open {
		t.Errorf("record %d after the end", extra)
	}
}

func TestFollowEndsWhenItsTickerIsClosedOrItsReaderStops(t *testing.T) {
	disk := faultfs.NewMemory()
	l, _ := open(t, options(disk, faultDir, 1))
	appendNotes(t, l, 1, 3)
	closed := make(chan time.Time)
	close(closed)
	count := 0
	for _, err := range ledger.Follow(t.Context(), disk, faultDir, closed) {
		if err != nil {
			t.Fatal(err)
		}
		count++
	}
	if count != 3 {
		t.Errorf("followed %d records, want 3", count)
	}
	for _, read := range []iter.Seq2[ledger.Entry, error]{ledger.Follow(t.Context(), disk, faultDir, nil), ledger.Replay(disk, faultDir)} {
		for e, err := range read {
			if e.Seq != 1 || err != nil {
				t.Errorf("read record %d, %v", e.Seq, err)
			}
			break
		}
	}
}

func TestReaderOfNothing(t *testing.T) {
	disk := faultfs.NewMemory()
	if entries := replay(t, disk, "/nowhere"); len(entries) != 0 {
		t.Errorf("read %d records of nothing", len(entries))
	}
	if report := ledger.Verify(disk, "/nowhere"); report.OK() {
		t.Error("verify finds nothing wrong with nothing")
	}
	if uid, err := ledger.RunUID(disk, "/nowhere"); uid != "" || err != nil {
		t.Errorf("nothing is of run %q, %v", uid, err)
	}
}
