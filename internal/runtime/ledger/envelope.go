package ledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"strconv"
	"time"
)

const (
	// Version is the format version that this package writes, and the newest that
	// it reads. In every version a line begins with {"v":<version>, and ends with
	// the crc member.
	Version = 1
	// MaxRecordBytes bounds one line, its newline included. Larger payloads go
	// into blobs.
	MaxRecordBytes = 256 << 10

	maxTypeBytes = 64
	// timeLayout has a fixed width, so that lines of equal payload have equal size.
	timeLayout = "2006-01-02T15:04:05.000000Z"
	// timePrecision is that of timeLayout.
	timePrecision = time.Microsecond
	crcLead       = `,"crc":"`
	crcLen        = len(crcLead) + 8 + len(`"}`)
	hashLen       = 16
	zeroHash      = "0000000000000000"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header is what the envelope of one line says, apart from its checksum.
type header struct {
	version uint64
	seq     uint64
	epoch   uint64
	prev    []byte
	at      []byte
	typ     []byte
	crit    bool
	data    []byte
}

// lineHash is the hash by which the next record names a line: the first 8 bytes
// of the SHA-256 of the line without its newline, in hex.
func lineHash(line []byte) [hashLen]byte {
	sum := sha256.Sum256(line)
	var out [hashLen]byte
	hex.Encode(out[:], sum[:hashLen/2])
	return out
}

// appendLine appends one record and its newline to dst.
func appendLine(dst []byte, seq, epoch uint64, prev string, at time.Time, typ string, crit bool, data []byte) []byte {
	start := len(dst)
	dst = append(dst, `{"v":`...)
	dst = strconv.AppendUint(dst, Version, 10)
	dst = append(dst, `,"seq":`...)
	dst = strconv.AppendUint(dst, seq, 10)
	dst = append(dst, `,"epoch":`...)
	dst = strconv.AppendUint(dst, epoch, 10)
	dst = append(dst, `,"prev":"`...)
	dst = append(dst, prev...)
	dst = append(dst, `","at":"`...)
	dst = at.UTC().AppendFormat(dst, timeLayout)
	dst = append(dst, `","type":"`...)
	dst = append(dst, typ...)
	dst = append(dst, '"')
	if crit {
		dst = append(dst, `,"crit":true`...)
	}
	dst = append(dst, `,"data":`...)
	dst = append(dst, data...)
	crc := crc32.Checksum(dst[start:], castagnoli)
	dst = append(dst, crcLead...)
	dst = appendCRC(dst, crc)
	return append(dst, '"', '}', '\n')
}

func appendCRC(dst []byte, crc uint32) []byte {
	var raw [4]byte
	binary.BigEndian.PutUint32(raw[:], crc)
	return hex.AppendEncode(dst, raw[:])
}

var (
	errChecksum = errors.New("checksum does not match")
	errShape    = errors.New("not a record")
)

// checkCRC reports whether a line without its newline ends with its checksum.
func checkCRC(line []byte) error {
	body := len(line) - crcLen
	if body <= 0 || string(line[body:body+len(crcLead)]) != crcLead || string(line[len(line)-2:]) != `"}` {
		return errShape
	}
	var want [8]byte
	appendCRC(want[:0], crc32.Checksum(line[:body], castagnoli))
	if !bytes.Equal(line[body+len(crcLead):len(line)-2], want[:]) {
		return errChecksum
	}
	return nil
}

// parseHeader splits the part of a line before the crc member. It accepts exactly
// the bytes that appendLine produces. A newer version gives an error that wraps
// ErrNewerVersion. The header points into body.
func parseHeader(body []byte) (header, error) {
	var h header
	p := parser{rest: body}
	p.literal(`{"v":`)
	h.version = p.number()
	if p.failed || h.version == 0 {
		return header{}, errShape
	}
	if h.version > Version {
		return header{}, fmt.Errorf("%w: format version %d, this program knows %d", ErrNewerVersion, h.version, Version)
	}
	p.literal(`,"seq":`)
	h.seq = p.number()
	p.literal(`,"epoch":`)
	h.epoch = p.number()
	p.literal(`,"prev":"`)
	h.prev = p.take(hashLen)
	p.literal(`","at":"`)
	h.at = p.until('"')
	p.literal(`,"type":"`)
	h.typ = p.until('"')
	h.crit = p.optional(`,"crit":true`)
	p.literal(`,"data":`)
	h.data = p.rest
	if p.failed || len(h.data) == 0 || !validType(string(h.typ)) || h.seq == 0 || h.seq == math.MaxUint64 || h.epoch == 0 {
		return header{}, errShape
	}
	return h, nil
}

// parser walks over bytes of a known shape and remembers whether they had it.
type parser struct {
	rest   []byte
	failed bool
}

func (p *parser) literal(want string) {
	if !p.optional(want) {
		p.failed = true
	}
}

func (p *parser) optional(want string) bool {
	if len(p.rest) < len(want) || string(p.rest[:len(want)]) != want {
		return false
	}
	p.rest = p.rest[len(want):]
	return true
}

func (p *parser) take(n int) []byte {
	if len(p.rest) < n {
		p.failed = true
		return nil
	}
	out := p.rest[:n]
	p.rest = p.rest[n:]
	return out
}

// until returns the bytes before the delimiter and skips both.
func (p *parser) until(delimiter byte) []byte {
	i := bytes.IndexByte(p.rest, delimiter)
	if i < 0 {
		p.failed = true
		return nil
	}
	out := p.rest[:i]
	p.rest = p.rest[i+1:]
	return out
}

// number reads a decimal number without sign or leading zero.
func (p *parser) number() uint64 {
	var n uint64
	i := 0
	for ; i < len(p.rest) && p.rest[i] >= '0' && p.rest[i] <= '9'; i++ {
		digit := uint64(p.rest[i] - '0')
		if n > (math.MaxUint64-digit)/10 {
			p.failed = true
			return 0
		}
		n = n*10 + digit
	}
	if i == 0 || (p.rest[0] == '0' && i > 1) {
		p.failed = true
		return 0
	}
	p.rest = p.rest[i:]
	return n
}

// validType allows ASCII letters, digits, dots, dashes and underscores, such as
// "tool.start".
func validType(typ string) bool {
	if typ == "" || len(typ) > maxTypeBytes {
		return false
	}
	for _, c := range []byte(typ) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// Head names a record: its sequence number and the hash of its line, which the
// next record repeats as prev. The zero Head is before the first record.
type Head struct {
	Seq  uint64 `json:"seq"`
	Hash string `json:"hash"`
}

// Pos is where a record was written.
type Pos struct {
	Seq uint64
	// At is the record's time exactly as a reader will find it.
	At time.Time
	// Data is the payload exactly as a reader will find it: encoded, and redacted.
	Data    json.RawMessage
	Segment int
	Offset  int64
}

// Entry is one record as it was read.
type Entry struct {
	Seq   uint64
	Epoch uint64
	// At is the writer's wall clock, a label: it may step back.
	At   time.Time
	Type string
	// Crit says that a reader which does not know Type must not go on.
	Crit bool
	// Data is the payload, not decoded.
	Data json.RawMessage
	// Segment is the number of the segment file, from 1; Offset where the line
	// begins in it.
	Segment int
	Offset  int64
	// Hash is the hash of the line, see Head.
	Hash string
}

// Head names the record.
func (e Entry) Head() Head { return Head{Seq: e.Seq, Hash: e.Hash} }
