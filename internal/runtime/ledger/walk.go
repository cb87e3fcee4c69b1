package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"path/filepath"
)

const (
	adviceRestore = "restore the directory from a copy; nothing was changed"
	adviceReport  = "keep a copy of the directory, restore it from a backup or start a new run; nothing was changed"
)

// walker reads the records of a directory in order, as far as they go. It never
// writes, and copes with a writer that is at work: advance can be called again to
// go on from where it stopped.
type walker struct {
	fsys FS
	dir  string
	// visit gets every accepted record. The header points into a buffer that is
	// reused. An error stops the walk and is returned.
	visit func(h header, hash [hashLen]byte, segment int, offset int64) error
	// skipped gets every fenced record.
	skipped func(h header, segment int, offset int64)
	// keepUnterminated accepts an intact last record that lacks its newline.
	keepUnterminated bool

	chain   chain
	segment int
	// offset is where the next record begins in the segment.
	offset int64
	// tail is what follows the last accepted record of the last segment.
	tail tail
}

// tail is the unfinished end of the last segment. The zero tail is a clean end.
type tail struct {
	// offset and size delimit the bytes that belong to no record.
	offset, size int64
	// missingNewline says that the last record is intact but lacks its newline.
	missingNewline bool
}

func (t tail) clean() bool { return t.size == 0 && !t.missingNewline }

func newWalker(fsys FS, dir string) *walker {
	return &walker{fsys: fsys, dir: dir, chain: newChain(), segment: 1}
}

func (w *walker) path() string { return filepath.Join(w.dir, segmentName(w.segment)) }

// advance reads to the end of the last segment. A torn tail ends the walk without
// an error and is left in w.tail; damage elsewhere is an error.
func (w *walker) advance() error {
	newest, err := lastSegment(w.fsys, w.dir)
	if err != nil {
		return err
	}
	for w.segment <= newest {
		if err := w.readSegment(); err != nil {
			return err
		}
		if w.segment == newest {
			// A live writer may have begun another segment in the meantime.
			if newest, err = lastSegment(w.fsys, w.dir); err != nil {
				return err
			}
			if w.segment == newest {
				return nil
			}
			continue
		}
		if !w.tail.clean() {
			return w.corrupt(w.offset, "the record is damaged, and a later segment follows", adviceReport)
		}
		w.segment++
		w.offset = 0
	}
	return nil
}

func (w *walker) corrupt(offset int64, what, advice string) error {
	return &CorruptError{Segment: w.path(), Offset: offset, Seq: w.chain.seq + 1, What: what, Advice: advice}
}

// readSegment reads the current segment from w.offset to its end.
func (w *walker) readSegment() (err error) {
	w.tail = tail{}
	f, err := w.fsys.OpenFile(w.path(), flagRead, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("opening ledger segment: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for {
		doubtful, err := w.readRecords(f)
		if err != nil || !doubtful {
			return err
		}
		again, err := w.examineTail(f)
		if err != nil || !again {
			return err
		}
	}
}

// readRecords reads whole intact records from w.offset on. doubtful says that what
// begins at w.offset then is none.
func (w *walker) readRecords(f File) (doubtful bool, err error) {
	lines := newLineReader(io.NewSectionReader(f, w.offset, math.MaxInt64-w.offset), w.offset)
	for {
		l, err := lines.next()
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("reading ledger segment %s at offset %d: %w", w.path(), w.offset, err)
		}
		if intact := l.whole && checkCRC(l.bytes) == nil; !intact {
			return true, nil
		}
		if err := w.take(l.bytes); err != nil {
			return false, err
		}
		w.offset += int64(len(l.bytes)) + 1
	}
}

// take judges one intact line that begins at w.offset.
func (w *walker) take(raw []byte) error {
	h, err := parseHeader(raw[:len(raw)-crcLen])
	if errors.Is(err, ErrNewerVersion) {
		return fmt.Errorf("reading ledger segment %s at offset %d: %w; use a version of belay at least as new as the writer", w.path(), w.offset, err)
	}
	if err != nil {
		return w.corrupt(w.offset, "the line has a valid checksum but is no record", adviceReport)
	}
	verdict, what := w.chain.accept(h, raw)
	switch verdict {
	case fenced:
		if w.skipped != nil {
			w.skipped(h, w.segment, w.offset)
		}
		return nil
	case broken:
		return w.corrupt(w.offset, what, adviceReport)
	case accepted:
	}
	if w.visit != nil {
		return w.visit(h, w.chain.hash, w.segment, w.offset)
	}
	return nil
}

// examineTail decides what the bytes from w.offset on are, which do not begin with
// a whole intact record: a torn tail, which it leaves in w.tail, or interior damage,
// which is an error. It says again if a live writer has completed the record.
func (w *walker) examineTail(f File) (again bool, err error) {
	size, err := f.Size()
	if err != nil {
		return false, fmt.Errorf("reading the size of ledger segment %s: %w", w.path(), err)
	}
	if size <= w.offset {
		// A new epoch truncated the torn bytes that were here.
		return size == w.offset, w.sizeError(size)
	}
	start := make([]byte, min(size-w.offset, MaxRecordBytes))
	if _, err := f.ReadAt(start, w.offset); errors.Is(err, io.EOF) {
		return true, nil // a new epoch has just cut the tail off
	} else if err != nil {
		return false, fmt.Errorf("reading ledger segment %s at offset %d: %w", w.path(), w.offset, err)
	}
	junk, search := w.offset, w.offset
	missingNewline := false
	if n, h, ok := intactPrefix(start); ok {
		if n < len(start) && start[n] == '\n' {
			return true, nil
		}
		search += int64(n)
		if w.keepUnterminated && h.epoch >= w.chain.epoch {
			if err := w.take(start[:n]); err != nil {
				return false, err
			}
			junk = search
			w.offset = junk
			missingNewline = true
		}
	} else if first, _, ended := bytes.Cut(start, []byte{'\n'}); w.chain.seq == 0 && ended && len(bytes.Trim(first, "\x00")) > 0 {
		return false, w.corrupt(w.offset, "the first line is complete but is no intact record", adviceReport)
	}
	later, found, err := findLaterRecord(f, search, size, w.chain)
	if errors.Is(err, io.EOF) && !w.keepUnterminated {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading ledger segment %s: %w", w.path(), err)
	}
	if found {
		return false, w.corrupt(junk, fmt.Sprintf("the record is damaged, and an intact later one follows at offset %d", later), adviceReport)
	}
	w.tail = tail{offset: junk, size: size - junk, missingNewline: missingNewline}
	return false, nil
}

func (w *walker) sizeError(size int64) error {
	if size == w.offset {
		return nil
	}
	return w.corrupt(size, fmt.Sprintf("the segment shrank below offset %d while it was read", w.offset), adviceReport)
}

var recordLead = []byte(`{"v":`)

// intactPrefix finds an intact record at the very start of b, whatever follows it.
// n is its length without a newline. A record of a newer version is found too;
// its header is empty but for the version.
func intactPrefix(b []byte) (n int, h header, ok bool) {
	if len(b) > MaxRecordBytes {
		b = b[:MaxRecordBytes]
	}
	if !bytes.HasPrefix(b, recordLead) {
		return 0, header{}, false
	}
	if _, err := parseHeader(b); err != nil && !errors.Is(err, ErrNewerVersion) {
		return 0, header{}, false
	}
	var crc uint32
	var want [8]byte
	done := 0
	for search := 0; ; {
		i := bytes.Index(b[search:], []byte(crcLead))
		if i < 0 || search+i+crcLen > len(b) {
			return 0, header{}, false
		}
		body := search + i
		crc = crc32.Update(crc, castagnoli, b[done:body])
		done, search = body, body+1
		end := body + crcLen
		appendCRC(want[:0], crc)
		if !bytes.Equal(b[body+len(crcLead):end-2], want[:]) || string(b[end-2:end]) != `"}` {
			continue
		}
		h, err := parseHeader(b[:body])
		if err != nil && !errors.Is(err, ErrNewerVersion) {
			return 0, header{}, false
		}
		return end, h, true
	}
}

// findLaterRecord looks between two offsets for an intact record that the ledger
// should contain after c, be it at the start of a line or in the midst of one.
// Records that c has seen already, or of an older epoch, are stale blocks.
func findLaterRecord(f io.ReaderAt, from, to int64, c chain) (offset int64, found bool, err error) {
	window := make([]byte, min(to-from, 2*MaxRecordBytes))
	for from < to {
		n, err := f.ReadAt(window[:min(to-from, int64(len(window)))], from)
		if err != nil {
			return 0, false, fmt.Errorf("reading at offset %d: %w", from, err)
		}
		b := window[:n]
		last := from+int64(n) >= to
		for at := 0; ; at++ {
			i := bytes.Index(b[at:], recordLead)
			if i < 0 {
				break
			}
			at += i
			if !last && at >= MaxRecordBytes {
				break
			}
			if _, h, ok := intactPrefix(b[at:]); ok && (h.seq == 0 || (h.seq > c.seq && h.epoch >= c.epoch)) {
				return from + int64(at), true, nil
			}
		}
		if last {
			return 0, false, nil
		}
		from += MaxRecordBytes
	}
	return 0, false, nil
}
