package ledger_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/ledger/faultfs"
)

func recoveries(t *testing.T, entries []ledger.Entry) []ledger.TornTail {
	t.Helper()
	var found []ledger.TornTail
	for _, e := range entries {
		if e.Type != "recovered" {
			continue
		}
		var torn ledger.TornTail
		if err := json.Unmarshal(e.Data, &torn); err != nil {
			t.Fatal(err)
		}
		found = append(found, torn)
	}
	return found
}

// A process killed in the midst of a write leaves half a record without a newline.
// The next process must not append to that line.
func TestHalfARecordIsSavedAsideAndDoesNotSwallowTheNext(t *testing.T) {
	dir := written(t, 3)
	path := filepath.Join(dir, "ledger.jsonl")
	whole := readTestFile(t, path)
	half := handmade(1, 4, 1, handHash(lastLine(t, whole)), "note", false, `{"n":4}`)[:70]
	writeTestFile(t, path, append(bytes.Clone(whole), half...))

	if report := ledger.Verify(nil, dir); !report.OK() || len(report.Findings) != 1 ||
		report.Findings[0].Severity != ledger.Warning || report.Findings[0].Offset != int64(len(whole)) || report.Findings[0].Seq != 4 {
		t.Errorf("verify before the repair: %+v", report)
	}
	l, found := open(t, options(nil, dir, 2))
	appendNotes(t, l, 4, 5)
	closeLedger(t, l)

	want := []ledger.TornTail{{
		RunUID: runUID, Segment: 1, Offset: int64(len(whole)), Seq: 4, Size: int64(len(half)),
		Saved: fmt.Sprintf("torn/4-%d", len(whole)),
	}}
	if diff := cmp.Diff(want, found.Torn); diff != "" {
		t.Errorf("reported (-want +got):\n%s", diff)
	}
	entries := replay(t, nil, dir)
	if diff := cmp.Diff(want, recoveries(t, entries)); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(upTo(5), notes(t, entries)); diff != "" {
		t.Errorf("notes:\n%s", diff)
	}
	if got := string(readTestFile(t, filepath.Join(dir, want[0].Saved))); got != half {
		t.Errorf("saved %q, want %q", got, half)
	}
	if report := ledger.Verify(nil, dir); !report.OK() || len(report.Findings) != 0 {
		t.Errorf("verify after the repair: %+v", report)
	}
	l, found = open(t, options(nil, dir, 3))
	if len(found.Torn) != 0 {
		t.Errorf("a second open reports %+v again", found.Torn)
	}
	closeLedger(t, l)
}

func TestRecordThatLacksOnlyItsNewlineIsKept(t *testing.T) {
	dir := written(t, 3)
	path := filepath.Join(dir, "ledger.jsonl")
	whole := readTestFile(t, path)
	writeTestFile(t, path, whole[:len(whole)-1])
	if got := replay(t, nil, dir); len(got) != 2 {
		t.Errorf("a reader sees %d records, want 2: it stops at the last newline", len(got))
	}
	l, found := open(t, options(nil, dir, 2))
	closeLedger(t, l)
	if !found.Terminated || found.Records != 3 || len(found.Torn) != 0 {
		t.Errorf("found %+v", found)
	}
	if got := readTestFile(t, path); !bytes.Equal(got, whole) {
		t.Errorf("the segment is now\n%s", got)
	}
}

func TestPaddingAndGarbageAfterTheLastRecordAreATornTail(t *testing.T) {
	dir := written(t, 3)
	whole := readTestFile(t, filepath.Join(dir, "ledger.jsonl"))
	stale := string(whole[:bytes.IndexByte(whole, '\n')+1])
	for name, junk := range map[string]string{
		"NULs":                      strings.Repeat("\x00", 5000),
		"NULs and a newline":        strings.Repeat("\x00", 100) + "\n",
		"a line of text":            "lorem ipsum\n",
		"lines of text":             "lorem\nipsum\n\n\ndolor",
		"a stale record":            "x\n" + stale,
		"a stale record on a line":  "x" + stale,
		"an older epoch's record":   "x" + handmade(1, 9, 0, "0000000000000000", "note", false, "{}") + "\n",
		"more than a record's size": strings.Repeat("y", 3*ledger.MaxRecordBytes),
		"NULs, then a stale record": strings.Repeat("\x00", 2*ledger.MaxRecordBytes) + stale,
		"an empty line":             "\n",
		"a brace":                   "}",
		"an empty object":           "{}\n",
	} {
		t.Run(name, func(t *testing.T) {
			copied := filepath.Join(t.TempDir(), "ledger")
			copyDir(t, dir, copied)
			writeTestFile(t, filepath.Join(copied, "ledger.jsonl"), append(bytes.Clone(whole), junk...))
			if got := replay(t, nil, copied); len(got) != 3 {
				t.Errorf("a reader sees %d records, want 3", len(got))
			}
			l, found := open(t, options(nil, copied, 2))
			appendNotes(t, l, 4, 4)
			closeLedger(t, l)
			if len(found.Torn) != 1 || found.Torn[0].Size != int64(len(junk)) {
				t.Fatalf("found %+v", found.Torn)
			}
			if saved := string(readTestFile(t, filepath.Join(copied, found.Torn[0].Saved))); saved != junk {
				t.Errorf("%d bytes were saved, want %d", len(saved), len(junk))
			}
			if diff := cmp.Diff(upTo(4), notes(t, replay(t, nil, copied))); diff != "" {
				t.Errorf("notes:\n%s", diff)
			}
		})
	}
}

func TestDamageBeforeAnIntactRecordIsRefusedAndNothingIsTouched(t *testing.T) {
	dir := written(t, 5)
	whole := string(readTestFile(t, filepath.Join(dir, "ledger.jsonl")))
	lines := strings.SplitAfter(whole, "\n")[:5]
	last := handHash(strings.TrimSuffix(lines[4], "\n"))
	second := int64(len(lines[0]))
	join := func(parts ...string) string { return strings.Join(parts, "") }
	for name, c := range map[string]struct {
		content string
		offset  int64
		seq     uint64
	}{
		"half a record fused with the next": {join(lines[0], lines[1][:40], lines[2], lines[3]), second, 2},
		"a lost newline":                    {join(lines[0], strings.TrimSuffix(lines[1], "\n"), lines[2]), second + int64(len(lines[1])) - 1, 3},
		"a missing record":                  {join(lines[0], lines[2], lines[3]), second, 2},
		"a record twice":                    {join(lines[0], lines[1], lines[1], lines[2]), second + int64(len(lines[1])), 3},
		"a foreign line":                    {join(lines[0], "lorem\n", lines[1]), second, 2},
		"a hole of NULs":                    {join(lines[0], strings.Repeat("\x00", len(lines[1])), lines[2]), second, 2},
		"a large hole":                      {join(lines[0], strings.Repeat("\x00", 3*ledger.MaxRecordBytes), lines[2]), second, 2},
		"a hole, lines after it":            {join(lines[0], strings.Repeat("z\n", 2*ledger.MaxRecordBytes), lines[4]), second, 2},
		"a wrong predecessor":               {join(whole, handmade(1, 6, 1, "0123456789abcdef", "note", false, "{}"), "\n"), int64(len(whole)), 6},
		"a skipped number":                  {join(whole, handmade(1, 7, 1, last, "note", false, "{}"), "\n"), int64(len(whole)), 6},
		"a checksummed line of nonsense":    {join(whole, sealed(`{"v":1,"seq":6,"lorem":"ipsum"`), "\n"), int64(len(whole)), 6},
		"another format":                    {"lorem ipsum\ndolor\n", 0, 1},
		"a damaged first and only record":   {"X" + lines[0][1:], 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			copied := filepath.Join(t.TempDir(), "ledger")
			copyDir(t, dir, copied)
			path := filepath.Join(copied, "ledger.jsonl")
			writeTestFile(t, path, []byte(c.content))
			before := files(t, copied)
			_, _, err := ledger.Open(options(nil, copied, 2))
			var corrupt *ledger.CorruptError
			if !errors.As(err, &corrupt) {
				t.Fatalf("opening: %v, want a CorruptError", err)
			}
			if corrupt.Segment != path || corrupt.Offset != c.offset || corrupt.Seq != c.seq || corrupt.Advice == "" {
				t.Errorf("got %+v, want offset %d and record %d", corrupt, c.offset, c.seq)
			}
			if diff := cmp.Diff(before, files(t, copied)); diff != "" {
				t.Errorf("the directory has changed:\n%s", diff)
			}
			report := ledger.Verify(nil, copied)
			if report.OK() || report.Findings[0].Offset != c.offset || report.Findings[0].Seq != c.seq {
				t.Errorf("verify: %+v", report)
			}
			if _, err := tryReplay(nil, copied); !errors.As(err, &corrupt) {
				t.Errorf("replaying: %v, want a CorruptError", err)
			}
		})
	}
}

func TestDamageInAnOlderSegmentIsRefused(t *testing.T) {
	for name, change := range map[string]func([]byte) []byte{
		"cut short":      func(b []byte) []byte { return b[:len(b)-10] },
		"lost a newline": func(b []byte) []byte { return b[:len(b)-1] },
		"emptied":        func([]byte) []byte { return nil },
		"garbage added":  func(b []byte) []byte { return append(b, "x"...) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := goldenCopy(t)
			path := filepath.Join(dir, "ledger.jsonl")
			writeTestFile(t, path, change(readTestFile(t, path)))
			_, _, err := ledger.Open(options(nil, dir, 3))
			var corrupt *ledger.CorruptError
			if !errors.As(err, &corrupt) {
				t.Errorf("opening: %v, want a CorruptError", err)
			}
		})
	}
}

// Every prefix of a ledger is what some crash may leave. Recovery yields the whole
// records of it, and saves the rest.
func TestLedgerCutAtEveryByteRecoversItsWholeRecords(t *testing.T) {
	const records = 20
	dir := written(t, records)
	whole := readTestFile(t, filepath.Join(dir, "ledger.jsonl"))
	for size := range len(whole) + 1 {
		disk := onDisk(t, dir, whole[:size])
		complete := bytes.Count(whole[:size], []byte("\n"))
		if size < len(whole) && whole[size] == '\n' {
			complete++ // only the newline is missing
		}
		l, found, err := ledger.Open(options(disk, "/ledger", 2))
		if err != nil {
			t.Fatalf("cut at %d: %v", size, err)
		}
		if found.Records != complete {
			t.Fatalf("cut at %d: found %d records, want %d", size, found.Records, complete)
		}
		appendNotes(t, l, complete+1, complete+1)
		closeLedger(t, l)
		entries := replay(t, disk, "/ledger")
		if diff := cmp.Diff(upTo(complete+1), notes(t, entries)); diff != "" {
			t.Fatalf("cut at %d: notes\n%s", size, diff)
		}
		var saved int64
		for _, torn := range recoveries(t, entries) {
			saved += torn.Size
		}
		boundary := bytes.LastIndexByte(whole[:size], '\n') + 1
		want := int64(size - boundary)
		if size < len(whole) && whole[size] == '\n' {
			want = 0
		}
		if saved != want {
			t.Fatalf("cut at %d: saved %d bytes, want %d", size, saved, want)
		}
	}
}

// onDisk is a copy in memory of a ledger's directory, with other content in its
// first segment.
func onDisk(t *testing.T, dir string, segment []byte) *faultfs.Memory {
	t.Helper()
	disk := faultfs.NewMemory()
	if err := disk.Mkdir("/ledger", 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"EPOCH": readTestFile(t, filepath.Join(dir, "EPOCH")), "ledger.jsonl": segment} {
		f, err := disk.OpenFile("/ledger/"+name, os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	return disk
}

// Any changed byte or bit is either refused, or was in the last record, which is
// then saved aside and reported. Nothing changes silently.
func TestNoFlippedBitOrByteGoesUnnoticed(t *testing.T) {
	const records = 20
	dir := written(t, records)
	whole := readTestFile(t, filepath.Join(dir, "ledger.jsonl"))
	original := replay(t, nil, dir)
	lastStart := int(original[records-1].Offset)
	for at := range whole {
		for _, mask := range []byte{1, 2, 4, 8, 16, 32, 64, 128, 255} {
			changed := bytes.Clone(whole)
			changed[at] ^= mask
			disk := onDisk(t, dir, changed)
			l, found, err := ledger.Open(options(disk, "/ledger", 2))
			if err != nil {
				var corrupt *ledger.CorruptError
				if !errors.As(err, &corrupt) || at >= lastStart {
					t.Fatalf("byte %d ^ %#x: %v", at, mask, err)
				}
				continue
			}
			closeLedger(t, l)
			if at < lastStart {
				t.Fatalf("byte %d ^ %#x: opened, though intact records follow the damage", at, mask)
			}
			intact := records - 1
			if at == len(whole)-1 {
				intact = records // the newline is lost, the record is not
			}
			if found.Records != intact || len(found.Torn) != 1 {
				t.Fatalf("byte %d ^ %#x: found %+v", at, mask, found)
			}
			if diff := cmp.Diff(original[:intact], replay(t, disk, "/ledger")[:intact]); diff != "" {
				t.Fatalf("byte %d ^ %#x: the records have changed:\n%s", at, mask, diff)
			}
		}
	}
}

func TestSamePlaceTornTwiceKeepsBothSavedTails(t *testing.T) {
	dir := written(t, 2)
	path := filepath.Join(dir, "ledger.jsonl")
	whole := readTestFile(t, path)
	saved := map[string]string{}
	for attempt, junk := range []string{"first", "second", "third"} {
		// A crash during the repair, when the tail was cut off but not recorded.
		writeTestFile(t, path, append(bytes.Clone(whole), junk...))
		l, _ := open(t, options(nil, dir, uint64(attempt+2)))
		closeLedger(t, l)
		saved[filepath.Join("torn", []string{"3-%d", "3-%d-2", "3-%d-3"}[attempt])] = junk
		writeTestFile(t, path, whole)
	}
	got := files(t, dir)
	for pattern, junk := range saved {
		if name := fmt.Sprintf(pattern, len(whole)); got[name] != junk {
			t.Errorf("%s holds %q, want %q", name, got[name], junk)
		}
	}
	l, found := open(t, options(nil, dir, 9))
	closeLedger(t, l)
	if len(found.Torn) != 3 || len(recoveries(t, replay(t, nil, dir))) != 3 {
		t.Errorf("found %+v", found.Torn)
	}
}
