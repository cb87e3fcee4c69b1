package ledger_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"
	"time"

	"belay.dev/belay/internal/runtime/ledger"
)

const (
	runUID   = "6d0d5a2e-6f3b-4c55-9a51-1f2c0d9a7e10"
	otherUID = "00000000-0000-4000-8000-000000000000"
)

// newYear is the time in tests that do not care about time.
func newYear() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// note is the payload of most test records.
type note struct {
	RunUID string      `json:"runUID,omitempty"`
	N      int         `json:"n"`
	Text   ledger.Text `json:"text,omitempty"`
}

func numbered(n int) note { return note{RunUID: runUID, N: n} }

func options(fsys ledger.FS, dir string, epoch uint64) ledger.Options {
	return ledger.Options{
		Dir: dir, RunUID: runUID, Epoch: epoch, PodUID: fmt.Sprintf("pod-%d", epoch), FS: fsys, Now: newYear,
	}
}

func open(t *testing.T, opts ledger.Options) (*ledger.Ledger, *ledger.Recovered) {
	t.Helper()
	l, found, err := ledger.Open(opts)
	if err != nil {
		t.Fatalf("opening: %v", err)
	}
	return l, found
}

func appendNotes(t *testing.T, l *ledger.Ledger, from, to int) {
	t.Helper()
	for n := from; n <= to; n++ {
		if _, err := l.Append("note", false, numbered(n)); err != nil {
			t.Fatalf("appending note %d: %v", n, err)
		}
	}
}

func syncLedger(t *testing.T, l *ledger.Ledger) {
	t.Helper()
	if err := l.Sync(); err != nil {
		t.Fatalf("barrier: %v", err)
	}
}

func closeLedger(t *testing.T, l *ledger.Ledger) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatalf("closing: %v", err)
	}
}

// written makes a closed ledger of notes 1 to n and returns its directory.
func written(t *testing.T, n int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), runUID)
	l, _ := open(t, options(nil, dir, 1))
	appendNotes(t, l, 1, n)
	closeLedger(t, l)
	return dir
}

func replay(t *testing.T, fsys ledger.FS, dir string) []ledger.Entry {
	t.Helper()
	entries, err := tryReplay(fsys, dir)
	if err != nil {
		t.Fatalf("replaying: %v", err)
	}
	return entries
}

func tryReplay(fsys ledger.FS, dir string) ([]ledger.Entry, error) {
	var entries []ledger.Entry
	for e, err := range ledger.Replay(fsys, dir) {
		if err != nil {
			return entries, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// notes returns the numbers of the notes among entries, in order.
func notes(t *testing.T, entries []ledger.Entry) []int {
	t.Helper()
	var numbers []int
	for _, e := range entries {
		if e.Type != "note" {
			continue
		}
		var n note
		if err := json.Unmarshal(e.Data, &n); err != nil {
			t.Fatalf("record %d: %v", e.Seq, err)
		}
		numbers = append(numbers, n.N)
	}
	return numbers
}

// upTo lists 1 to n.
func upTo(n int) []int {
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i + 1
	}
	return numbers
}

func readTestFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func writeTestFile(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// files reads a whole directory tree except for the lock file.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	content := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || entry.Name() == "LOCK" {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		content[rel] = string(readTestFile(t, path))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func copyDir(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// handmade builds a line without the code under test.
func handmade(version, seq, epoch int, prev, typ string, crit bool, data string) string {
	critical := ""
	if crit {
		critical = `,"crit":true`
	}
	body := fmt.Sprintf(`{"v":%d,"seq":%d,"epoch":%d,"prev":"%s","at":"2026-01-01T00:00:00.000000Z","type":"%s"%s,"data":%s`,
		version, seq, epoch, prev, typ, critical, data)
	return sealed(body)
}

// sealed adds the crc member to the rest of a line.
func sealed(body string) string {
	return fmt.Sprintf(`%s,"crc":"%08x"}`, body, crc32.Checksum([]byte(body), crc32.MakeTable(crc32.Castagnoli)))
}

// handHash is the prev member of the line after this one.
func handHash(line string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(line)))[:16] }

func lastLine(t *testing.T, data []byte) string {
	t.Helper()
	lines := bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
	return string(lines[len(lines)-1])
}
