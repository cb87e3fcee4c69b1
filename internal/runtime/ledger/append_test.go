package ledger_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/ledger/faultfs"
)

func TestRecordsSurviveAReopen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "runs", runUID)
	l, found := open(t, options(nil, dir, 1))
	if !found.Fresh || found.Records != 0 || found.Head != (ledger.Head{}) {
		t.Errorf("a new ledger was found as %+v", found)
	}
	appendNotes(t, l, 1, 3)
	syncLedger(t, l)
	head := l.Head()
	closeLedger(t, l)
	entries := replay(t, nil, dir)
	if diff := cmp.Diff(upTo(3), notes(t, entries)); diff != "" {
		t.Errorf("notes:\n%s", diff)
	}
	if head != entries[2].Head() {
		t.Errorf("the head is %v, the last record %v", head, entries[2].Head())
	}
	opts := options(nil, dir, 2)
	opts.PinnedHead = &head
	l, found = open(t, opts)
	if found.Fresh || found.Head != head || found.Records != 3 || found.NewestEpoch != 1 {
		t.Errorf("found %+v", found)
	}
	closeLedger(t, l)
}

func TestEpochZeroTakesTheNext(t *testing.T) {
	dir := filepath.Join(t.TempDir(), runUID)
	for want := uint64(1); want <= 3; want++ {
		opts := options(nil, dir, 0)
		l, _ := open(t, opts)
		if l.Epoch() != want {
			t.Errorf("epoch %d, want %d", l.Epoch(), want)
		}
		appendNotes(t, l, int(want), int(want))
		closeLedger(t, l)
	}
}

func TestHeadMovesOnlyAtABarrier(t *testing.T) {
	l, _ := open(t, options(faultfs.NewMemory(), "/runs/a", 1))
	appendNotes(t, l, 1, 2)
	if got := l.Head(); got.Seq != 0 {
		t.Errorf("before any barrier the head is %v", got)
	}
	syncLedger(t, l)
	appendNotes(t, l, 3, 3)
	if got := l.Head(); got.Seq != 2 {
		t.Errorf("the head is %v, want record 2", got)
	}
}

func TestBarriersCostOneFsyncAndOnlyIfThereIsSomethingNew(t *testing.T) {
	l, _ := open(t, options(faultfs.NewMemory(), "/runs/a", 1))
	before := l.Stats()
	appendNotes(t, l, 1, 5)
	for range 3 {
		syncLedger(t, l)
	}
	after := l.Stats()
	if got := after.FileSyncs - before.FileSyncs; got != 1 {
		t.Errorf("%d fsyncs, want 1", got)
	}
	if after.DirSyncs != before.DirSyncs {
		t.Errorf("%d directory fsyncs, want none", after.DirSyncs-before.DirSyncs)
	}
	if after.Barriers-before.Barriers != 3 || after.Records-before.Records != 5 {
		t.Errorf("stats went from %+v to %+v", before, after)
	}
}

func TestBatchIsOneWrite(t *testing.T) {
	disk := faultfs.Inject(faultfs.NewMemory(), func(faultfs.Op) faultfs.Fault { return faultfs.Fault{} })
	l, _ := open(t, options(disk, "/runs/a", 1))
	before := len(disk.Trace())
	positions, err := l.AppendBatch([]ledger.Record{
		{Type: "note", Data: numbered(1)}, {Type: "note", Crit: true, Data: numbered(2)}, {Type: "note", Data: numbered(3)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if trace := disk.Trace()[before:]; len(trace) != 1 || trace[0].Kind != faultfs.Write {
		t.Errorf("the batch did %v, want one write", trace)
	}
	entries := replay(t, disk, "/runs/a")
	if diff := cmp.Diff(upTo(3), notes(t, entries)); diff != "" {
		t.Errorf("notes:\n%s", diff)
	}
	for i, e := range entries {
		if !e.At.Equal(positions[i].At) || e.Seq != positions[i].Seq || e.Offset != positions[i].Offset || e.Segment != positions[i].Segment {
			t.Errorf("record %d was announced at %+v and read at %+v", i, positions[i], e)
		}
	}
	if !entries[1].Crit || entries[0].Crit {
		t.Error("the critical mark is on the wrong record")
	}
}

func TestConcurrentAppendsFormOneChain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), runUID)
	opts := options(nil, dir, 1)
	opts.SegmentBytes = 2000
	l, _ := open(t, opts)
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for n := range 25 {
				if _, err := l.Append("note", false, numbered(w*25+n+1)); err != nil {
					t.Error(err)
				}
				if err := l.Sync(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	closeLedger(t, l)
	seen := map[int]bool{}
	for _, n := range notes(t, replay(t, nil, dir)) {
		seen[n] = true
	}
	if len(seen) != 100 {
		t.Errorf("%d different notes, want 100", len(seen))
	}
}

// Tool output with newlines, NULs and bytes that are no UTF-8 must neither break
// the line format nor change.
func TestToolOutputOfAnyBytesStaysOnOneLineAndComesBackExactly(t *testing.T) {
	outputs := []string{
		"line\nline\r\nline", "\u2028\u2029", "\x00\x01\x1b[31m", "\xff\xfe", "a\xffb", "\xed\xa0\x80",
		`{"base64":"aGk="}`, `"quoted" \ <html> &amp;`, "\ufffd", "", strings.Repeat("ä", 1000),
	}
	dir := filepath.Join(t.TempDir(), runUID)
	l, _ := open(t, options(nil, dir, 1))
	for i, output := range outputs {
		if _, err := l.Append("note", false, note{RunUID: runUID, N: i, Text: ledger.Text(output)}); err != nil {
			t.Fatalf("%q: %v", output, err)
		}
	}
	closeLedger(t, l)
	raw := readTestFile(t, filepath.Join(dir, "ledger.jsonl"))
	if got := bytes.Count(raw, []byte("\n")); got != len(outputs) || !bytes.HasSuffix(raw, []byte("\n")) {
		t.Errorf("%d newlines for %d records", got, len(outputs))
	}
	for i, e := range replay(t, nil, dir) {
		var n note
		if err := json.Unmarshal(e.Data, &n); err != nil {
			t.Fatal(err)
		}
		if string(n.Text) != outputs[i] {
			t.Errorf("wrote %q, read %q", outputs[i], n.Text)
		}
	}
}

func TestTextRefusesOtherShapes(t *testing.T) {
	for _, bad := range []string{`1`, `[]`, `{}`, `{"base64":3}`, `{"base64":"?"}`, `true`} {
		var text ledger.Text
		if err := json.Unmarshal([]byte(bad), &text); err == nil {
			t.Errorf("%s was read as %q", bad, text)
		}
	}
}

func TestRecordsThatCannotBeWrittenChangeNothing(t *testing.T) {
	l, _ := open(t, options(faultfs.NewMemory(), "/runs/a", 1))
	appendNotes(t, l, 1, 1)
	big := note{Text: ledger.Text(strings.Repeat("x", ledger.MaxRecordBytes))}
	if _, err := l.Append("note", false, big); !errors.Is(err, ledger.ErrTooLarge) {
		t.Errorf("a record over the limit: %v", err)
	}
	if _, err := l.AppendBatch([]ledger.Record{{Type: "note", Data: numbered(2)}, {Type: "note", Data: big}}); !errors.Is(err, ledger.ErrTooLarge) {
		t.Errorf("a batch with a record over the limit: %v", err)
	}
	for _, typ := range []string{"", `a"b`, "a b", "ä", strings.Repeat("a", 65)} {
		if _, err := l.Append(typ, false, numbered(2)); err == nil {
			t.Errorf("type %q was accepted", typ)
		}
	}
	if _, err := l.Append("note", false, func() {}); err == nil {
		t.Error("a function was encoded")
	}
	if _, err := l.Append("note", false, json.RawMessage(`{`)); err == nil {
		t.Error("broken JSON was accepted")
	}
	appendNotes(t, l, 2, 2)
	syncLedger(t, l)
	if l.Head().Seq != 2 {
		t.Errorf("the head is %v, want record 2", l.Head())
	}
}

func TestLargestRecordIsReadBack(t *testing.T) {
	l, _ := open(t, options(faultfs.NewMemory(), "/runs/a", 1))
	// Finds the size at which a record just fits.
	room := ledger.MaxRecordBytes - 400
	last := 0
	for n := room; n < ledger.MaxRecordBytes; n++ {
		if _, err := l.Append("note", false, note{RunUID: runUID, Text: ledger.Text(strings.Repeat("x", n))}); err != nil {
			if !errors.Is(err, ledger.ErrTooLarge) {
				t.Fatal(err)
			}
			break
		}
		last = n
		if n < ledger.MaxRecordBytes-260 {
			n += 10
		}
	}
	syncLedger(t, l)
	fsys := faultfs.NewMemory()
	l, _ = open(t, options(fsys, "/runs/b", 1))
	for range 3 {
		if _, err := l.Append("note", false, note{RunUID: runUID, Text: ledger.Text(strings.Repeat("x", last))}); err != nil {
			t.Fatal(err)
		}
	}
	closeLedger(t, l)
	if got := len(replay(t, fsys, "/runs/b")); got != 3 {
		t.Errorf("read %d records, want 3", got)
	}
}

func TestSecretsAreRedactedInEveryForm(t *testing.T) {
	const secret = `s3"cr\et<`
	redact := func(b []byte) []byte { return bytes.ReplaceAll(b, []byte(secret), []byte("[redacted]")) }
	dir := filepath.Join(t.TempDir(), runUID)
	opts := options(nil, dir, 1)
	opts.Redact = redact
	l, _ := open(t, opts)
	payload := map[string]any{
		"runUID": runUID, "plain": "key " + secret + "\n", "binary": ledger.Text("\xff" + secret + "\xff"),
		"nested": []any{map[string]string{secret: "as a key"}},
		"raw":    json.RawMessage(`{"a":"s3\u0022cr\\et\u003c","base64":"not base64"}`),
	}
	if _, err := l.Append("note", false, payload); err != nil {
		t.Fatal(err)
	}
	plainBlob, err := l.PutBlob([]byte("\xff" + secret))
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := json.MarshalIndent(payload, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	jsonBlob, err := l.PutBlob(encoded)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(replay(t, nil, dir)[0].Data, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"runUID": runUID, "plain": "key [redacted]\n", "binary": map[string]any{"base64": "/1tyZWRhY3RlZF3/"},
		"nested": []any{map[string]any{"[redacted]": "as a key"}},
		"raw":    map[string]any{"a": "[redacted]", "base64": "not base64"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	if data, err := l.Blob(plainBlob); err != nil || string(data) != "\xff[redacted]" {
		t.Errorf("the blob reads as %q, %v", data, err)
	}
	data, err := l.Blob(jsonBlob)
	if err != nil {
		t.Fatal(err)
	}
	got = nil
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("blob (-want +got):\n%s", diff)
	}
	closeLedger(t, l)
}

func TestRedactionThatBreaksTheJSONIsAnError(t *testing.T) {
	opts := options(faultfs.NewMemory(), "/runs/a", 1)
	opts.Redact = func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("8"), []byte(`"`)) }
	l, _ := open(t, opts)
	if _, err := l.Append("note", false, numbered(8)); err == nil {
		t.Error("the record was accepted")
	}
	if _, err := l.Append("note", false, numbered(1)); err != nil {
		t.Errorf("the next record: %v", err)
	}
}

// The wall clock is a label: order is the sequence number.
func TestAClockThatStepsBackDoesNotChangeTheOrder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), runUID)
	clock := newYear()
	opts := options(nil, dir, 1)
	opts.Now = func() time.Time { return clock }
	l, _ := open(t, opts)
	for n := 1; n <= 6; n++ {
		if n == 4 {
			closeLedger(t, l)
			opts.Epoch, opts.PodUID = 2, "pod-2"
			l, _ = open(t, opts)
		}
		appendNotes(t, l, n, n)
		clock = clock.Add(-10 * time.Minute)
	}
	closeLedger(t, l)
	entries := replay(t, nil, dir)
	if diff := cmp.Diff(upTo(6), notes(t, entries)); diff != "" {
		t.Errorf("order:\n%s", diff)
	}
	if !entries[5].At.Equal(newYear().Add(-50 * time.Minute)) {
		t.Errorf("the last record is labelled %v", entries[5].At)
	}
	if report := ledger.Verify(nil, dir); !report.OK() {
		t.Errorf("verify: %+v", report.Findings)
	}
}

func TestBlobsAreStoredOnceAndCheckedWhenRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), runUID)
	l, _ := open(t, options(nil, dir, 1))
	first, err := l.PutBlob([]byte("hello"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := l.PutBlob([]byte("hello"))
	if err != nil {
		t.Fatal(err)
	}
	// The SHA-256 of "hello".
	want := ledger.BlobRef{SHA256: "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824", Size: 5}
	if first != want || second != want {
		t.Errorf("references %v and %v, want %v", first, second, want)
	}
	if data, err := l.Blob(want); err != nil || string(data) != "hello" {
		t.Errorf("read %q, %v", data, err)
	}
	if empty, err := l.PutBlob(nil); err != nil || empty.Size != 0 {
		t.Errorf("the empty blob: %v, %v", empty, err)
	}
	path := filepath.Join(dir, "blobs", want.SHA256)
	writeTestFile(t, path, []byte("hellO"))
	var damaged *ledger.BlobError
	if _, err := l.Blob(want); !errors.As(err, &damaged) {
		t.Errorf("a damaged blob: %v", err)
	}
	if _, err := l.PutBlob([]byte("hello")); err != nil {
		t.Errorf("storing the content again: %v", err)
	}
	if data, err := ledger.ReadBlob(nil, dir, want); err != nil || string(data) != "hello" {
		t.Errorf("after storing it again it reads %q, %v", data, err)
	}
	for _, bad := range []string{"", "../LOCK", strings.ToUpper(want.SHA256), want.SHA256[:10]} {
		if _, err := l.Blob(ledger.BlobRef{SHA256: bad, Size: 5}); err == nil {
			t.Errorf("reference %q was read", bad)
		}
	}
	closeLedger(t, l)
}

func TestVerifyReportsLostAndDamagedBlobs(t *testing.T) {
	dir := goldenCopy(t)
	path := filepath.Join(dir, "blobs", "39498c3dabfcae0320770ad5785f576fe59d3d3965e9df1d5c79c79b9a087f1c")
	writeTestFile(t, path, []byte("a long outpuT\n"))
	report := ledger.Verify(nil, dir)
	if report.OK() || report.Blobs != 0 {
		t.Fatalf("verify: %+v", report)
	}
	var records []uint64
	for _, f := range report.Findings {
		if f.Advice == "" || f.What == "" {
			t.Errorf("finding without words: %+v", f)
		}
		if f.Seq != 0 {
			records = append(records, f.Seq)
		}
	}
	if diff := cmp.Diff([]uint64{4}, records); diff != "" {
		t.Errorf("records with a damaged blob:\n%s", diff)
	}
}

func TestEveryCallAfterCloseIsRefused(t *testing.T) {
	l, _ := open(t, options(faultfs.NewMemory(), "/runs/a", 1))
	closeLedger(t, l)
	if _, err := l.Append("note", false, numbered(1)); !errors.Is(err, ledger.ErrClosed) {
		t.Errorf("Append: %v", err)
	}
	if err := l.Sync(); !errors.Is(err, ledger.ErrClosed) {
		t.Errorf("Sync: %v", err)
	}
	if _, err := l.PutBlob(nil); !errors.Is(err, ledger.ErrClosed) {
		t.Errorf("PutBlob: %v", err)
	}
	if _, err := l.Blob(ledger.BlobRef{}); !errors.Is(err, ledger.ErrClosed) {
		t.Errorf("Blob: %v", err)
	}
	if err := l.Close(); !errors.Is(err, ledger.ErrClosed) {
		t.Errorf("Close: %v", err)
	}
}

func TestOpenNeedsDirRunUIDAndClock(t *testing.T) {
	for _, opts := range []ledger.Options{
		{RunUID: runUID, Now: newYear}, {Dir: "/runs/a", Now: newYear}, {Dir: "/runs/a", RunUID: runUID},
	} {
		opts.FS = faultfs.NewMemory()
		if _, _, err := ledger.Open(opts); err == nil {
			t.Errorf("%+v was accepted", opts)
		}
	}
}
