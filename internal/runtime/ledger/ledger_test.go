package ledger_test

import (
	"path/filepath"
	"testing"
	"time"

	"belay.dev/belay/internal/runtime/ledger"
)

const runUID = "6d0d5a2e-6f3b-4c55-9a51-1f2c0d9a7e10"

// newYear is the fixed time of the tests that do not care about time.
func newYear() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

type note struct {
	RunUID string      `json:"runUID,omitempty"`
	N      int         `json:"n"`
	Text   ledger.Text `json:"text,omitempty"`
}

func options(dir string, epoch uint64) ledger.Options {
	return ledger.Options{Dir: dir, RunUID: runUID, Epoch: epoch, PodUID: "pod-1", Now: newYear}
}

func TestRecordsSurviveAReopen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), runUID)
	l, found, err := ledger.Open(options(dir, 1))
	if err != nil {
		t.Fatal(err)
	}
	if !found.Fresh {
		t.Error("a new ledger is not fresh")
	}
	for i := range 3 {
		if _, err := l.Append("note", false, note{RunUID: runUID, N: i}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	head := l.Head()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	n := 0
	for e, err := range ledger.Replay(nil, dir) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		t.Logf("%+v %s", e, e.Data)
	}
	if n != 3 {
		t.Errorf("replayed %d records, want 3", n)
	}
	if r := ledger.Verify(nil, dir); !r.OK() || r.Records != 3 || len(r.Findings) != 0 {
		t.Errorf("verify: %+v", r)
	}
	opts := options(dir, 2)
	opts.PinnedHead = &head
	l, found, err = ledger.Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	if found.Head != head || found.Records != 3 || found.NewestEpoch != 1 {
		t.Errorf("found %+v", found)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
