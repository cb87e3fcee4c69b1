package ledger_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/ledger/faultfs"
)

// FuzzOpen feeds any bytes as the last segment. Whatever they are, Open either
// refuses and changes nothing, or keeps a prefix of them as records and saves the
// rest aside: no byte is lost, and the result is a sound ledger.
func FuzzOpen(f *testing.F) {
	seed, err := os.ReadFile(filepath.Join(golden, "ledger.jsonl"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add(seed[:len(seed)-1])
	f.Add(seed[:len(seed)-40])
	f.Add(append(bytes.Clone(seed), seed...))
	f.Add(append(bytes.Clone(seed), make([]byte, 100)...))
	f.Add([]byte(handmade(2, 1, 1, "0000000000000000", "note", false, "{}") + "\n"))
	f.Add([]byte(`{"v":1,"seq":1,"epoch":1,"prev":"`))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, segment []byte) {
		disk := faultfs.NewMemory()
		put := func(name string, content []byte) {
			file, err := disk.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := file.Write(content); err != nil {
				t.Fatal(err)
			}
		}
		get := func(name string) []byte {
			size, err := disk.Stat(name)
			if err != nil {
				t.Fatal(err)
			}
			file, err := disk.OpenFile(name, os.O_RDONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			content := make([]byte, size)
			if n, err := file.ReadAt(content, 0); n != len(content) {
				t.Fatal(err)
			}
			return content
		}
		if err := disk.Mkdir("/ledger", 0o700); err != nil {
			t.Fatal(err)
		}
		put("/ledger/ledger.jsonl", segment)
		// The seeds name this blob.
		if err := disk.Mkdir("/ledger/blobs", 0o700); err != nil {
			t.Fatal(err)
		}
		put("/ledger/blobs/39498c3dabfcae0320770ad5785f576fe59d3d3965e9df1d5c79c79b9a087f1c", []byte("a long output\n"))
		readable, readErr := tryReplay(disk, "/ledger")
		report := ledger.Verify(disk, "/ledger")

		l, found, err := ledger.Open(options(disk, "/ledger", 100))
		if err != nil {
			if !bytes.Equal(get("/ledger/ledger.jsonl"), segment) {
				t.Fatalf("Open refused with %v and changed the segment", err)
			}
			return
		}
		if readErr != nil || !report.OK() {
			t.Fatalf("Open accepts what Replay (%v) or Verify (%+v) refuses", readErr, report)
		}
		if found.Records < len(readable) || found.Records > len(readable)+1 {
			t.Fatalf("Open found %d records, Replay %d", found.Records, len(readable))
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		after := get("/ledger/ledger.jsonl")
		var saved []byte
		if len(found.Torn) > 0 {
			saved = get("/ledger/" + found.Torn[0].Saved)
		}
		kept := segment[:len(segment)-len(saved)]
		if !bytes.HasSuffix(segment, saved) || !bytes.HasPrefix(after, kept) {
			t.Fatal("bytes are neither kept nor saved")
		}
		if report := ledger.Verify(disk, "/ledger"); !report.OK() {
			t.Fatalf("after the repair: %+v", report.Findings)
		}
	})
}

// FuzzAppend writes any payload between two others and reads it back.
func FuzzAppend(f *testing.F) {
	f.Add("note", false, "text", []byte(`{"a":[1,2]}`))
	f.Add("tool.result", true, "\xff\x00\n\u2028", []byte("{\"a\":\n\"b\"}"))
	f.Add("x", false, `{"v":1,"seq":2,"epoch":1,"prev":"`, []byte(`"\u0000\ud800"`))
	f.Add(`a","crit":true`, false, "", []byte(`{`))
	f.Fuzz(func(t *testing.T, typ string, crit bool, text string, raw []byte) {
		disk := faultfs.NewMemory()
		l, _ := open(t, options(disk, faultDir, 1))
		appendNotes(t, l, 1, 1)
		payload := struct {
			Text ledger.Text     `json:"text"`
			Raw  json.RawMessage `json:"raw"`
		}{ledger.Text(text), raw}
		_, err := l.Append(typ, crit, payload)
		appendNotes(t, l, 2, 2)
		closeLedger(t, l)
		entries := replay(t, disk, faultDir)
		if err != nil {
			if len(entries) != 2 {
				t.Fatalf("after %v there are %d records, want 2", err, len(entries))
			}
			return
		}
		if len(entries) != 3 || entries[1].Type != typ || entries[1].Crit != crit {
			t.Fatalf("read %+v", entries)
		}
		var got struct {
			Text ledger.Text `json:"text"`
		}
		if err := json.Unmarshal(entries[1].Data, &got); err != nil {
			t.Fatal(err)
		}
		if string(got.Text) != text {
			t.Fatalf("wrote %q, read %q", text, got.Text)
		}
	})
}

// FuzzRedact hides a secret in every place of a payload and looks for it afterwards.
func FuzzRedact(f *testing.F) {
	f.Add("s3cret-key", "before ", " after")
	f.Add(`quote"d\`, "\xff", "\n")
	f.Add("<&>\u2028", "", "{")
	f.Fuzz(func(t *testing.T, secret, before, after string) {
		const mask = "[redacted]"
		if len(secret) < 6 || !utf8.ValidString(secret) || strings.Contains(`{"runUID":"`+runUID+`","text":"base64`+mask, secret) {
			return // part of the format
		}
		text := before + secret + after
		hidden := strings.ReplaceAll(text, secret, mask)
		if strings.Contains(hidden, secret) {
			return // masking forms the secret anew
		}
		disk := faultfs.NewMemory()
		opts := options(disk, faultDir, 1)
		opts.Redact = func(b []byte) []byte { return bytes.ReplaceAll(b, []byte(secret), []byte(mask)) }
		l, _ := open(t, opts)
		payload := struct {
			RunUID string      `json:"runUID"`
			Text   ledger.Text `json:"text"`
		}{runUID, ledger.Text(text)}
		if _, err := l.Append("note", false, payload); err != nil {
			// The raw pass may break the JSON; then nothing is written.
			return
		}
		closeLedger(t, l)
		entries := replay(t, disk, faultDir)
		if err := json.Unmarshal(entries[0].Data, &payload); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(payload.Text), secret) {
			t.Fatalf("the secret %q is in %s", secret, entries[0].Data)
		}
	})
}
