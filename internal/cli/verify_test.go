package cli

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/ledger/record"
)

// writeBlobLedger is a ledger with a record whose payload is a blob, and returns the blob's path.
func writeBlobLedger(t *testing.T) (dir, blob string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "run-1")
	book, _, err := ledger.Open(ledger.Options{Dir: dir, RunUID: "run-1", Now: func() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }})
	if err != nil {
		t.Fatal(err)
	}
	ref := ledger.BlobRef{}
	data, err := record.Encode(record.RunStart{RunUID: "run-1", Contract: record.Contract{Task: strings.Repeat("x", 300_000)}}, func(b []byte) (record.Blob, error) {
		var err error
		ref, err = book.PutBlob(b)
		return record.Blob(ref), err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := book.Append(string(record.TypeRunStart), true, data); err != nil {
		t.Fatal(err)
	}
	if err := book.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, filepath.Join(dir, "blobs", ref.SHA256)
}

// newer is a line as a later version would write it.
func newer(line string) string {
	line = strings.Replace(line, `{"v":1,`, `{"v":2,`, 1)
	body, _, _ := strings.Cut(line, `,"crc":"`)
	return fmt.Sprintf("%s,\"crc\":\"%08x\"}\n", body, crc32.Checksum([]byte(body), crc32.MakeTable(crc32.Castagnoli)))
}

// TestVerifyTellsWhatWhereAndWhatToDo is what a person reads of each kind of finding. DIR stands for the ledger's directory.
func TestVerifyTellsWhatWhereAndWhatToDo(t *testing.T) {
	for name, test := range map[string]struct {
		harm func(t *testing.T, lines []string) (dir string, harmed string)
		code Code
		want string
	}{
		"a torn tail": {
			func(_ *testing.T, lines []string) (string, string) {
				last := lines[len(lines)-1]
				return "", strings.Join(lines[:9], "") + last[:40]
			}, CodeCompleted, `warning: DIR/ledger.jsonl, byte 2621, record 10: torn tail: the last 40 bytes are no whole record; a crash interrupted the write, or a writer is at work
  nothing to do: the next start saves these bytes in torn/ and cuts them off
ok: 9 records in 1 segment, 2621 bytes, 0 blobs, epoch 1, head 9 891da651379677fc
`,
		},
		"a changed record": {
			func(_ *testing.T, lines []string) (string, string) {
				return "", strings.Replace(strings.Join(lines, ""), `"leg":"a"`, `"leg":"b"`, 1)
			}, CodeLedgerDamaged, `error: DIR/ledger.jsonl, byte 686, record 4: the record is damaged, and an intact later one follows at offset 988
  keep a copy of the directory, restore it from a backup or start a new run; nothing was changed
damaged: 3 records in 1 segment, 686 bytes, 0 blobs, epoch 1, head 3 51802045f3b5bb4e
`,
		},
		"a missing record": {
			func(_ *testing.T, lines []string) (string, string) {
				return "", strings.Join(append(append([]string(nil), lines[:4]...), lines[5:]...), "")
			}, CodeLedgerDamaged, `error: DIR/ledger.jsonl, byte 988, record 5: record 6 of epoch 1 stands there; those before it are missing
  keep a copy of the directory, restore it from a backup or start a new run; nothing was changed
damaged: 4 records in 1 segment, 988 bytes, 0 blobs, epoch 1, head 4 a0452397b50d26b5
`,
		},
		"a newer version": {
			func(_ *testing.T, lines []string) (string, string) {
				return "", strings.Join(lines[:9], "") + newer(lines[9])
			}, CodeLedgerDamaged, `error: DIR/ledger.jsonl, byte 2621, record 10: the record was written by a newer version of belay
  use a version of belay at least as new as the writer
newer than this belay: 9 records in 1 segment, 2621 bytes, 0 blobs, epoch 1, head 9 891da651379677fc
`,
		},
		"a missing blob": {
			func(t *testing.T, _ []string) (string, string) {
				dir, blob := writeBlobLedger(t)
				if err := os.Remove(blob); err != nil {
					t.Fatal(err)
				}
				return dir, ""
			}, CodeLedgerDamaged, `error: DIR/ledger.jsonl, byte 0, record 1: the record names blob 519b5c0ba5cfa571c7e24318c6225fe8a25f034ec5610a1517af70dce8799c18, which is missing or damaged
  restore blobs/519b5c0ba5cfa571c7e24318c6225fe8a25f034ec5610a1517af70dce8799c18 from a copy
damaged: 1 record in 1 segment, 263 bytes, 0 blobs, epoch 1, head 1 95697dc87b542708
`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := writeLedger(t)
			file := filepath.Join(dir, "ledger.jsonl")
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var lines []string
			for line := range bytes.Lines(data) {
				lines = append(lines, string(line))
			}
			other, harmed := test.harm(t, lines)
			if other != "" {
				dir = other
			} else if err := os.WriteFile(file, []byte(harmed), 0o600); err != nil {
				t.Fatal(err)
			}
			before := tree(t, dir)
			code, stdout, stderr := invoke("ledger", "verify", dir)
			if code != int(test.code) || stderr != "" {
				t.Errorf("exit code %d, stderr %q, want code %d", code, stderr, test.code)
			}
			if diff := cmp.Diff(test.want, strings.ReplaceAll(stdout, dir, "DIR")); diff != "" {
				t.Errorf("verify (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, tree(t, dir)); diff != "" {
				t.Errorf("verify changed the ledger:\n%s", diff)
			}
		})
	}
}
