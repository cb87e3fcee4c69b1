package ledger_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"belay.dev/belay/internal/runtime/ledger"
)

// The files in testdata/v1 were written by a separate program from the description
// of the format, not by this package.
const golden = "testdata/v1"

func goldenCopy(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "ledger")
	copyDir(t, golden, dir)
	return dir
}

func TestWriterProducesExactlyTheGoldenBytes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), runUID)
	clock := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	opts := options(nil, dir, 1)
	opts.Now = func() time.Time { return clock }
	l, _ := open(t, opts)
	blob, err := l.PutBlob([]byte("a long output\n"))
	if err != nil {
		t.Fatal(err)
	}
	type toolStart struct {
		Turn    int    `json:"turn"`
		Call    string `json:"call"`
		Attempt int    `json:"attempt"`
	}
	type toolResult struct {
		Text ledger.Text    `json:"text"`
		Blob ledger.BlobRef `json:"blob"`
	}
	for _, r := range []struct {
		at   time.Duration
		typ  string
		crit bool
		data any
	}{
		{0, "run.start", true, map[string]string{"runUID": runUID}},
		{1500 * time.Millisecond, "epoch.start", true, map[string]string{"podName": "nightly-1"}},
		{2*time.Second + time.Microsecond, "tool.start", true, toolStart{Turn: 1, Call: "Ab3dE9xQ1", Attempt: 1}},
		{3 * time.Second, "tool.result", false, toolResult{Text: "<a & b>\u2028", Blob: blob}},
	} {
		clock = newYear().Add(r.at)
		if _, err := l.Append(r.typ, r.crit, r.data); err != nil {
			t.Fatal(err)
		}
	}
	closeLedger(t, l)
	want := string(readTestFile(t, filepath.Join(golden, "ledger.jsonl")))
	if diff := cmp.Diff(want, string(readTestFile(t, filepath.Join(dir, "ledger.jsonl")))); diff != "" {
		t.Errorf("written bytes (-want +got):\n%s", diff)
	}
}

func TestReaderReadsTheGoldenLedger(t *testing.T) {
	at := func(text string) time.Time {
		parsed, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	want := []ledger.Entry{
		{Seq: 1, Epoch: 1, At: at("2026-01-01T00:00:00Z"), Type: "run.start", Crit: true, Segment: 1, Hash: "9d2cd12939637478"},
		{Seq: 2, Epoch: 1, At: at("2026-01-01T00:00:01.5Z"), Type: "epoch.start", Crit: true, Segment: 1, Hash: "93684e997af75149"},
		{Seq: 3, Epoch: 1, At: at("2026-01-01T00:00:02.000001Z"), Type: "tool.start", Crit: true, Segment: 1, Hash: "7d6ae4fc02cfde3a"},
		{Seq: 4, Epoch: 1, At: at("2026-01-01T00:00:03Z"), Type: "tool.result", Segment: 1, Hash: "241b76b00b2e85ec"},
		{Seq: 5, Epoch: 1, At: at("2026-01-01T00:00:04Z"), Type: "segment.start", Segment: 2, Hash: "0ac622eaed292ab6"},
		{Seq: 6, Epoch: 1, At: at("2026-01-01T00:00:04Z"), Type: "tool.result", Segment: 2, Hash: "e657800b31a1cfa3"},
		{Seq: 7, Epoch: 2, At: at("2025-12-31T23:50:00Z"), Type: "epoch.start", Crit: true, Segment: 2},
	}
	got := replay(t, nil, golden)
	if len(got) != len(want) {
		t.Fatalf("read %d records, want %d", len(got), len(want))
	}
	lines := strings.SplitAfter(string(readTestFile(t, filepath.Join(golden, "ledger.jsonl")))+
		string(readTestFile(t, filepath.Join(golden, "ledger-000002.jsonl"))), "\n")
	var offset int64
	for i := range want {
		if i == 4 {
			offset = 0
		}
		want[i].Offset = offset
		offset += int64(len(lines[i]))
		if data := string(got[i].Data); !strings.HasSuffix(strings.SplitN(lines[i], `,"crc"`, 2)[0], `"data":`+data) {
			t.Errorf("record %d: data is %s", i+1, data)
		}
		got[i].Data = nil
	}
	want[6].Hash = handHash(strings.TrimSuffix(lines[6], "\n"))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	if report := ledger.Verify(nil, golden); !report.OK() || len(report.Findings) != 0 || report.Records != 7 || report.Blobs != 1 || report.Segments != 2 {
		t.Errorf("verify: %+v", report)
	}
}

// An upgrade in the midst of a run: the newer program goes on in the file of the
// older one.
func TestLedgerOfAnEarlierVersionIsContinued(t *testing.T) {
	dir := goldenCopy(t)
	before := readTestFile(t, filepath.Join(dir, "ledger-000002.jsonl"))
	opts := options(nil, dir, 3)
	opts.PinnedHead = &ledger.Head{Seq: 6, Hash: "e657800b31a1cfa3"}
	l, found := open(t, opts)
	if found.Records != 7 || found.NewestEpoch != 2 {
		t.Errorf("found %+v", found)
	}
	pos, err := l.Append("epoch.start", true, map[string]string{"podName": "nightly-3"})
	if err != nil {
		t.Fatal(err)
	}
	if pos.Seq != 8 || pos.Segment != 2 || pos.Offset != int64(len(before)) {
		t.Errorf("appended at %+v", pos)
	}
	closeLedger(t, l)
	after := string(readTestFile(t, filepath.Join(dir, "ledger-000002.jsonl")))
	want := string(before) + handmade(1, 8, 3, handHash(lastLine(t, before)), "epoch.start", true, `{"podName":"nightly-3"}`) + "\n"
	if diff := cmp.Diff(want, after); diff != "" {
		t.Errorf("segment (-want +got):\n%s", diff)
	}
}

// A downgrade in the midst of a run.
func TestLedgerOfANewerVersionIsRefusedAndLeftAlone(t *testing.T) {
	dir := written(t, 3)
	path := filepath.Join(dir, "ledger.jsonl")
	data := readTestFile(t, path)
	// A later version may look different between its first and its last member.
	next := handmade(2, 4, 1, handHash(lastLine(t, data)), "note", false, `{"n":4},"new":true`)
	writeTestFile(t, path, append(data, next+"\n"...))
	before := files(t, dir)
	_, _, err := ledger.Open(options(nil, dir, 2))
	if !errors.Is(err, ledger.ErrNewerVersion) {
		t.Errorf("opening: %v, want ErrNewerVersion", err)
	}
	if diff := cmp.Diff(before, files(t, dir)); diff != "" {
		t.Errorf("the directory has changed:\n%s", diff)
	}
	entries, err := tryReplay(nil, dir)
	if !errors.Is(err, ledger.ErrNewerVersion) || len(entries) != 3 {
		t.Errorf("replayed %d records and %v, want 3 and ErrNewerVersion", len(entries), err)
	}
	if report := ledger.Verify(nil, dir); report.OK() {
		t.Error("verify finds nothing wrong")
	}
}

func TestUnknownTypesSurviveUnlessTheyAreCritical(t *testing.T) {
	dir := filepath.Join(t.TempDir(), runUID)
	l, _ := open(t, options(nil, dir, 1))
	appendNotes(t, l, 1, 1)
	if _, err := l.Append("weather.report", false, map[string]string{"sky": "grey"}); err != nil {
		t.Fatal(err)
	}
	closeLedger(t, l)
	knowsNotes := func(typ string) bool { return typ == "note" }

	opts := options(nil, dir, 2)
	opts.KnownCritical = knowsNotes
	l, _ = open(t, opts)
	if got := replay(t, nil, dir)[1]; got.Type != "weather.report" || string(got.Data) != `{"sky":"grey"}` {
		t.Errorf("the unknown record reads as %s %s", got.Type, got.Data)
	}
	if _, err := l.Append("weather.warning", true, map[string]string{"sky": "black"}); err != nil {
		t.Fatal(err)
	}
	closeLedger(t, l)

	opts = options(nil, dir, 3)
	opts.KnownCritical = knowsNotes
	_, _, err := ledger.Open(opts)
	var unknown *ledger.UnknownCriticalError
	if !errors.As(err, &unknown) || unknown.Type != "weather.warning" || unknown.Seq != 3 {
		t.Errorf("opening: %v, want a refusal of weather.warning in record 3", err)
	}
}

func TestSegmentsRotateAndOldOnesAreWriteProtected(t *testing.T) {
	dir := filepath.Join(t.TempDir(), runUID)
	opts := options(nil, dir, 1)
	opts.SegmentBytes = 1000
	l, _ := open(t, opts)
	appendNotes(t, l, 1, 20)
	closeLedger(t, l)
	names, err := filepath.Glob(filepath.Join(dir, "ledger*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if len(names) < 3 {
		t.Fatalf("segments %v, want at least three", names)
	}
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		want := os.FileMode(0o444)
		if filepath.Base(name) == "ledger-00000"+string(rune('0'+len(names)))+".jsonl" {
			want = 0o600
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %o, want %o", filepath.Base(name), info.Mode().Perm(), want)
		}
		if first, _, _ := strings.Cut(string(readTestFile(t, name)), "\n"); filepath.Base(name) != "ledger.jsonl" && !strings.Contains(first, `"type":"segment.start"`) {
			t.Errorf("%s begins with %s", name, first)
		}
	}
	entries := replay(t, nil, dir)
	if diff := cmp.Diff(upTo(20), notes(t, entries)); diff != "" {
		t.Errorf("notes:\n%s", diff)
	}
	for i, e := range entries {
		if e.Seq != uint64(i+1) {
			t.Fatalf("record %d has sequence number %d", i+1, e.Seq)
		}
	}
	l, found := open(t, options(nil, dir, 2))
	if found.Records != len(entries) || found.Head.Seq != uint64(len(entries)) {
		t.Errorf("found %+v, want %d records", found, len(entries))
	}
	closeLedger(t, l)
}

func TestMissingSegmentIsDamage(t *testing.T) {
	dir := goldenCopy(t)
	if err := os.Remove(filepath.Join(dir, "ledger.jsonl")); err != nil {
		t.Fatal(err)
	}
	_, _, err := ledger.Open(options(nil, dir, 3))
	var corrupt *ledger.CorruptError
	if !errors.As(err, &corrupt) || filepath.Base(corrupt.Segment) != "ledger.jsonl" {
		t.Errorf("opening: %v, want damage at ledger.jsonl", err)
	}
}
