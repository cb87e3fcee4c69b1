package ledger

import (
	"fmt"
	"time"
)

// chain is the state of a reader after the records it accepted so far.
type chain struct {
	seq  uint64
	hash [hashLen]byte
	// epoch is the newest epoch of an accepted record.
	epoch uint64
}

func newChain() chain {
	c := chain{}
	copy(c.hash[:], zeroHash)
	return c
}

func (c chain) head() Head {
	if c.seq == 0 {
		return Head{}
	}
	return Head{Seq: c.seq, Hash: string(c.hash[:])}
}

type verdict int

const (
	// accepted: the record follows the last one.
	accepted verdict = iota
	// fenced: an older epoch wrote the record after a newer one had started. It
	// is no part of the ledger.
	fenced
	// broken: the record is intact but does not follow the last one.
	broken
)

// accept judges an intact record and, if it follows, moves on to it.
func (c *chain) accept(h header, raw []byte) (verdict, string) {
	switch {
	case h.epoch < c.epoch:
		return fenced, ""
	case h.seq != c.seq+1:
		if h.seq > c.seq+1 {
			return broken, fmt.Sprintf("record %d of epoch %d stands there; those before it are missing", h.seq, h.epoch)
		}
		return broken, fmt.Sprintf("record %d of epoch %d stands there a second time", h.seq, h.epoch)
	case string(h.prev) != string(c.hash[:]):
		return broken, fmt.Sprintf("record %d names %s as its predecessor, which is %s", h.seq, h.prev, c.hash[:])
	}
	c.seq = h.seq
	c.epoch = h.epoch
	c.hash = lineHash(raw)
	return accepted, ""
}

// entry builds the Entry of an accepted record. Data points into the line. A time
// that does not parse is left zero: it is a label, and the checksum has vouched for
// the line.
func entry(h header, hash [hashLen]byte, segment int, offset int64) Entry {
	at, err := time.Parse(time.RFC3339Nano, string(h.at))
	if err != nil {
		at = time.Time{}
	}
	return Entry{
		Seq: h.seq, Epoch: h.epoch, At: at.UTC(), Type: string(h.typ), Crit: h.crit, Data: h.data,
		Segment: segment, Offset: offset, Hash: string(hash[:]),
	}
}
