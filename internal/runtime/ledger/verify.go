package ledger

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Report is the result of [Verify].
type Report struct {
	// Segments, Records and Bytes count what is intact.
	Segments int   `json:"segments"`
	Records  int   `json:"records"`
	Bytes    int64 `json:"bytes"`
	// Blobs counts the intact blobs.
	Blobs int `json:"blobs"`
	// Epoch is the newest epoch.
	Epoch uint64 `json:"epoch"`
	// Head names the last intact record.
	Head Head `json:"head"`
	// Newer says that from there on the ledger needs a newer program; what this one can read is intact, unless a finding
	// says otherwise.
	Newer    bool      `json:"newer,omitempty"`
	Findings []Finding `json:"findings"`
}

// Severity tells a finding that Open repairs or ignores from damage that it refuses.
type Severity string

const (
	// Warning is a trace of a crash or of a stale writer; the ledger is usable.
	Warning Severity = "warning"
	// Error is damage: Open refuses, or content is lost.
	Error Severity = "error"
)

// Finding is one thing that is wrong in a ledger directory.
type Finding struct {
	Severity Severity `json:"severity"`
	// File is the path of the file, Offset the place in it, Seq the record there.
	File   string `json:"file"`
	Offset int64  `json:"offset"`
	Seq    uint64 `json:"seq"`
	What   string `json:"what"`
	// Advice says what to do.
	Advice string `json:"advice"`
}

// OK reports whether there is no finding of severity Error.
func (r Report) OK() bool {
	for _, f := range r.Findings {
		if f.Severity == Error {
			return false
		}
	}
	return true
}

// Verify checks a whole ledger directory without changing it: every record, the
// chain between them, the epoch file and every blob, and whether each blob that a
// record names is there. It may run beside a live writer. A nil FS means [OS].
func Verify(fsys FS, dir string) Report {
	v := verifier{fsys: orOS(fsys), dir: dir, named: map[BlobRef]Finding{}}
	v.records()
	v.owner()
	v.blobs()
	return v.report
}

type verifier struct {
	fsys   FS
	dir    string
	report Report
	// named holds each blob that a record names, with the place.
	named map[BlobRef]Finding
	order []BlobRef
}

func (v *verifier) find(f Finding) { v.report.Findings = append(v.report.Findings, f) }

func (v *verifier) records() {
	newest, err := lastSegment(v.fsys, v.dir)
	if err == nil && newest == 0 {
		v.find(Finding{
			Severity: Error, File: v.dir, Seq: 1, What: "there is no ledger here",
			Advice: "name the directory that holds " + firstSegment,
		})
		return
	}
	w := newWalker(v.fsys, v.dir)
	w.keepUnterminated = true
	w.skipped = func(h header, segment int, offset int64) {
		v.find(Finding{
			Severity: Warning, File: filepath.Join(v.dir, segmentName(segment)), Offset: offset, Seq: h.seq,
			What:   fmt.Sprintf("a %s record of epoch %d was written after a newer epoch had begun; it is ignored", h.typ, h.epoch),
			Advice: "a stale runner was stopped too late; find out why two pods had the volume",
		})
	}
	w.visit = func(h header, _ [hashLen]byte, segment int, offset int64) error {
		v.report.Records++
		v.report.Segments = segment
		v.note(h, segment, offset)
		return nil
	}
	if err = w.advance(); err != nil {
		v.damage(w, err)
	}
	v.report.Epoch = w.chain.epoch
	v.report.Head = w.chain.head()
	v.report.Bytes = w.offset
	for number := 1; number < w.segment; number++ {
		if size, err := v.fsys.Stat(filepath.Join(v.dir, segmentName(number))); err == nil {
			v.report.Bytes += size
		}
	}
	if w.tail.size > 0 {
		v.find(Finding{
			Severity: Warning, File: w.path(), Offset: w.tail.offset, Seq: w.chain.seq + 1,
			What:   fmt.Sprintf("torn tail: the last %d bytes are no whole record; a crash interrupted the write, or a writer is at work", w.tail.size),
			Advice: "nothing to do: the next start saves these bytes in " + tornDir + "/ and cuts them off",
		})
	} else if w.tail.missingNewline {
		v.find(Finding{
			Severity: Warning, File: w.path(), Offset: w.tail.offset, Seq: w.chain.seq,
			What:   "the last record is intact but lacks its newline",
			Advice: "nothing to do: the next start adds it",
		})
	}
}

func (v *verifier) damage(w *walker, err error) {
	var corrupt *CorruptError
	switch {
	case errors.As(err, &corrupt):
		v.find(Finding{
			Severity: Error, File: corrupt.Segment, Offset: corrupt.Offset, Seq: corrupt.Seq,
			What: corrupt.What, Advice: corrupt.Advice,
		})
	case errors.Is(err, ErrNewerVersion):
		v.report.Newer = true
		v.find(Finding{
			Severity: Error, File: w.path(), Offset: w.offset, Seq: w.chain.seq + 1,
			What: "the record was written by a newer version of belay", Advice: "use a version of belay at least as new as the writer",
		})
	default:
		v.find(Finding{
			Severity: Error, File: w.path(), Offset: w.offset, Seq: w.chain.seq + 1,
			What: err.Error(), Advice: "check the volume and its permissions, then try again",
		})
	}
}

// blobMember matches an encoded BlobRef. Inside a JSON string its quotes would be
// escaped, so that text cannot look like it.
var blobMember = regexp.MustCompile(`\{"sha256":"([0-9a-f]{64})","size":([0-9]{1,18})\}`)

func (v *verifier) note(h header, segment int, offset int64) {
	if !bytes.Contains(h.data, []byte(`{"sha256":"`)) {
		return
	}
	for _, match := range blobMember.FindAllSubmatch(h.data, -1) {
		size, err := strconv.ParseInt(string(match[2]), 10, 64)
		if err != nil {
			continue
		}
		ref := BlobRef{SHA256: string(match[1]), Size: size}
		if _, known := v.named[ref]; !known {
			v.order = append(v.order, ref)
			v.named[ref] = Finding{Severity: Error, File: filepath.Join(v.dir, segmentName(segment)), Offset: offset, Seq: h.seq}
		}
	}
}

func (v *verifier) owner() {
	o, err := readOwner(v.fsys, v.dir)
	var corrupt *CorruptError
	switch {
	case errors.As(err, &corrupt):
		v.find(Finding{Severity: Error, File: corrupt.Segment, What: corrupt.What, Advice: corrupt.Advice})
	case err != nil:
		v.find(Finding{
			Severity: Error, File: filepath.Join(v.dir, epochFile), What: err.Error(),
			Advice: "check the volume and its permissions, then try again",
		})
	case o.Epoch != 0 && o.Epoch < v.report.Epoch:
		v.find(Finding{
			Severity: Error, File: filepath.Join(v.dir, epochFile),
			What:   fmt.Sprintf("it names epoch %d, but the records go up to epoch %d", o.Epoch, v.report.Epoch),
			Advice: "the files come from different copies of the directory; restore them together",
		})
	}
}

func (v *verifier) blobs() {
	names, err := v.fsys.ReadDir(filepath.Join(v.dir, blobDir))
	if err != nil {
		names = nil // No blob was ever stored, or each named one is reported below.
	}
	intact := map[string]bool{}
	for _, name := range names {
		if raw, err := hex.DecodeString(name); err != nil || len(raw) != 32 || strings.ToLower(name) != name {
			continue
		}
		path := filepath.Join(v.dir, blobDir, name)
		size, err := v.fsys.Stat(path)
		if err == nil {
			_, err = readBlob(v.fsys, v.dir, BlobRef{SHA256: name, Size: size})
		}
		if err != nil {
			v.find(Finding{Severity: Error, File: path, What: "the blob's content does not match its name, or cannot be read", Advice: "restore the file from a copy"})
			continue
		}
		intact[name] = true
		v.report.Blobs++
	}
	for _, ref := range v.order {
		if intact[ref.SHA256] {
			continue
		}
		f := v.named[ref]
		f.What = fmt.Sprintf("the record names blob %s, which is missing or damaged", ref.SHA256)
		f.Advice = "restore " + blobDir + "/" + ref.SHA256 + " from a copy"
		v.find(f)
	}
}
