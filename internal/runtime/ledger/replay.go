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

// RunUID tells which run a ledger directory belongs to: the run of its first record
// or, if a writer was stopped before its first record, of its epoch file. It is empty
// for a directory that no run has used. A nil FS means [OS].
func RunUID(fsys FS, dir string) (string, error) {
	for e, err := range Replay(fsys, dir) {
		if err != nil {
			return "", err
		}
		if uid := firstRunUID(e.Data); uid != "" {
			return uid, nil
		}
		break
	}
	o, err := readOwner(orOS(fsys), dir)
	return o.RunUID, err
}
