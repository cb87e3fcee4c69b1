package ledger

import (
	"bytes"
	"errors"
	"iter"
)

var errStop = errors.New("reader stopped")

// Replay yields the records of a ledger directory in order, without decoding their
// payloads. It opens the files read-only, takes no lock, and may run beside a live
// writer: it stops at the last newline that ends an intact record. Records of an
// older epoch that were written after a newer one began are left out; [Verify] names
// them. Damage anywhere else, or a newer format version, is yielded as the last
// error. A directory without a ledger yields nothing. A nil FS means [OS].
//
// Entries own their memory.
func Replay(fsys FS, dir string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		w := newWalker(orOS(fsys), dir)
		w.visit = yieldTo(yield)
		if err := w.advance(); err != nil && !errors.Is(err, errStop) {
			yield(Entry{}, err)
		}
	}
}

func yieldTo(yield func(Entry, error) bool) func(header, [hashLen]byte, int, int64) error {
	return func(h header, hash [hashLen]byte, segment int, offset int64) error {
		e := entry(h, hash, segment, offset)
		e.Data = bytes.Clone(e.Data)
		if !yield(e, nil) {
			return errStop
		}
		return nil
	}
}

func orOS(fsys FS) FS {
	if fsys == nil {
		return OS()
	}
	return fsys
}
