package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// Ledger is the open ledger of one run. Its methods may be called from any
// goroutine.
type Ledger struct {
	fsys   FS
	dir    string
	opts   Options
	lock   io.Closer
	counts counters

	mu   sync.Mutex
	file File
	// segment is the number of the segment that file is.
	segment int
	// offset is the end of the last record that was written whole.
	offset int64
	chain  chain
	// synced is the state of chain at the last barrier.
	synced chain
	dirty  bool
	// failed is the error that poisoned the ledger.
	failed error
	buf    []byte
	// epochFile is the content of our EPOCH file.
	epochFile []byte
	epochBuf  [512]byte

	blobs sync.Mutex
}

// Record is one record to append.
type Record struct {
	Type string
	Crit bool
	Data any
}

type counters struct {
	records, bytes, barriers, fileSyncs, dirSyncs atomic.Int64
}

// Stats counts what a Ledger did since Open, Open included.
type Stats struct {
	Records, Bytes int64
	// Barriers counts calls of Sync that returned nil; a barrier with nothing
	// new to make durable needs no fsync.
	Barriers int64
	// FileSyncs and DirSyncs count fsyncs of files, blobs included, and of
	// directories.
	FileSyncs, DirSyncs int64
}

// Stats returns the counters. It may be called after Close.
func (l *Ledger) Stats() Stats {
	return Stats{
		Records: l.counts.records.Load(), Bytes: l.counts.bytes.Load(), Barriers: l.counts.barriers.Load(),
		FileSyncs: l.counts.fileSyncs.Load(), DirSyncs: l.counts.dirSyncs.Load(),
	}
}

// Epoch is the epoch in which this Ledger writes.
func (l *Ledger) Epoch() uint64 { return l.opts.Epoch }

// Head names the last record that is durable: the newest one at the last Sync that
// returned nil. It is what may be published.
func (l *Ledger) Head() Head {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.synced.head()
}

// Append writes one record to the operating system. It is durable, and may be acted
// on, only after the next Sync. data is encoded as JSON with encoding/json; use
// [Text] for strings that may not be valid UTF-8.
//
// A record that cannot be encoded or is too large changes nothing. If the write
// fails, the segment is cut back to its last whole record and an
// [*UnwritableError] is returned; the ledger stays usable, for instance after
// [Ledger.FreeBallast]. If cutting back fails too, the ledger is poisoned.
func (l *Ledger) Append(typ string, crit bool, data any) (Pos, error) {
	positions, err := l.AppendBatch([]Record{{Type: typ, Crit: crit, Data: data}})
	if err != nil {
		return Pos{}, err
	}
	return positions[0], nil
}

// AppendBatch writes several records with one write: all of them or, if an error is
// returned, none. After a crash a prefix of an unsynced batch may be left.
func (l *Ledger) AppendBatch(records []Record) ([]Pos, error) {
	payloads := make([][]byte, len(records))
	for i, r := range records {
		data, err := l.encode(r)
		if err != nil {
			return nil, err
		}
		payloads[i] = data
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		return nil, l.failed
	}
	if len(records) == 0 {
		return nil, nil
	}
	if l.chain.seq == 0 && firstRunUID(payloads[0]) != l.opts.RunUID {
		return nil, fmt.Errorf("appending the first record, a %s: its payload must carry runUID %q", records[0].Type, l.opts.RunUID)
	}
	if l.offset >= l.opts.SegmentBytes {
		if err := l.rotate(); err != nil {
			return nil, err
		}
	}
	return l.write(records, payloads)
}

// encode turns a payload into redacted JSON on one line.
func (l *Ledger) encode(r Record) ([]byte, error) {
	if !validType(r.Type) {
		return nil, fmt.Errorf("appending to ledger: record type %q is not allowed: want up to %d letters, digits, dots, dashes or underscores", r.Type, maxTypeBytes)
	}
	data, err := marshal(r.Data)
	if err != nil {
		return nil, fmt.Errorf("encoding a %s record: %w", r.Type, err)
	}
	if l.opts.Redact == nil {
		return data, nil
	}
	data, err = redactJSON(data, l.opts.Redact)
	if err == nil && bytes.IndexByte(data, '\n') >= 0 {
		err = errors.New("the redacted payload has a newline")
	}
	if err != nil {
		return nil, fmt.Errorf("redacting a %s record: %w", r.Type, err)
	}
	return data, nil
}

// write appends encoded records to the segment, under the mutex.
func (l *Ledger) write(records []Record, payloads [][]byte) ([]Pos, error) {
	buf := l.buf[:0]
	next := l.chain
	now := l.opts.Now().UTC().Truncate(timePrecision)
	positions := make([]Pos, len(records))
	for i, r := range records {
		start := len(buf)
		buf = appendLine(buf, next.seq+1, l.opts.Epoch, string(next.hash[:]), now, r.Type, r.Crit, payloads[i])
		if size := len(buf) - start; size > MaxRecordBytes {
			return nil, fmt.Errorf("appending a %s record of %d bytes: %w: at most %d bytes, put the payload into a blob",
				r.Type, size, ErrTooLarge, MaxRecordBytes)
		}
		next.seq++
		next.epoch = l.opts.Epoch
		next.hash = lineHash(buf[start : len(buf)-1])
		positions[i] = Pos{Seq: next.seq, At: now, Data: payloads[i], Segment: l.segment, Offset: l.offset + int64(start)}
	}
	if cap(buf) <= 2*MaxRecordBytes {
		l.buf = buf
	}
	n, err := l.file.Write(buf)
	if err == nil && n < len(buf) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return nil, l.cutBack(err)
	}
	l.chain = next
	l.offset += int64(len(buf))
	l.dirty = true
	l.counts.records.Add(int64(len(records)))
	l.counts.bytes.Add(int64(len(buf)))
	return positions, nil
}

// cutBack removes what a failed write left behind. Whatever follows a half record
// on the same line would be lost with it.
func (l *Ledger) cutBack(cause error) error {
	failure := &UnwritableError{Op: "appending to", Path: l.path(), Err: cause}
	err := l.file.Truncate(l.offset)
	var size int64
	if err == nil {
		size, err = l.file.Size()
	}
	if err == nil && size != l.offset {
		err = fmt.Errorf("its size is %d, not %d", size, l.offset)
	}
	if err != nil {
		return l.poison(fmt.Errorf("%w; cutting it back to its last record also failed: %w", failure, err))
	}
	return failure
}

func (l *Ledger) path() string { return filepath.Join(l.dir, segmentName(l.segment)) }

// poison makes every later call return the same error.
func (l *Ledger) poison(err error) error {
	if l.failed == nil {
		l.failed = err
	}
	return l.failed
}

// Sync is the barrier: when it returns nil, every record appended before it is
// durable, and at that moment this writer still owned the ledger. Call it before a
// tool is dispatched, before the next model call, before status is published and
// before the process exits in order.
//
// It returns an error that wraps ErrFenced if another writer has taken over. Any
// error poisons the ledger, since the operating system reports a failed write-back
// only once and may then drop the data: nothing appended since the last barrier may
// be acted on, and the process must exit.
func (l *Ledger) Sync() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		return l.failed
	}
	return l.barrier()
}

func (l *Ledger) barrier() error {
	if err := l.checkOwned(); err != nil {
		return l.poison(err)
	}
	if l.dirty {
		l.counts.fileSyncs.Add(1)
		if err := l.file.Sync(); err != nil {
			return l.poison(&UnwritableError{Op: "syncing", Path: l.path(), Err: &syncError{err}})
		}
		l.dirty = false
	}
	l.synced = l.chain
	l.counts.barriers.Add(1)
	return nil
}

// checkOwned finds out about other writers where the lock does not keep them away.
// A successor first writes the EPOCH file and then looks at the segment's size; we
// first write to the segment and then look at the EPOCH file. So either it sees our
// records, or we see its epoch.
func (l *Ledger) checkOwned() error {
	now, err := l.readEpoch()
	if err != nil {
		return fmt.Errorf("checking who owns the ledger: %w", err)
	}
	if want := l.opts.owner(); now.Epoch != want.Epoch || now.PodUID != want.PodUID || now.RunUID != want.RunUID {
		return &FencedError{Epoch: now.Epoch, PodUID: now.PodUID, What: "the epoch file is no longer ours"}
	}
	size, err := l.file.Size()
	if err != nil {
		return fmt.Errorf("checking the size of ledger segment %s: %w", l.path(), err)
	}
	if size != l.offset {
		return &FencedError{
			Epoch: now.Epoch, PodUID: now.PodUID,
			What: fmt.Sprintf("%s has %d bytes, but we wrote up to %d", l.path(), size, l.offset),
		}
	}
	return nil
}

// readEpoch reads the EPOCH file, and parses it only if it has changed.
func (l *Ledger) readEpoch() (owner, error) {
	f, err := l.fsys.OpenFile(filepath.Join(l.dir, epochFile), flagRead, 0)
	if err != nil {
		return owner{}, err
	}
	n, err := f.ReadAt(l.epochBuf[:], 0)
	if closeErr := f.Close(); closeErr != nil {
		return owner{}, closeErr
	}
	if errors.Is(err, io.EOF) && bytes.Equal(l.epochBuf[:n], l.epochFile) {
		return l.opts.owner(), nil
	}
	return readOwner(l.fsys, l.dir)
}

// rotate starts a new segment. The old one is durable before the new one exists, so
// that only the last segment can have a torn tail. If there is no room for the new
// one's first record, nothing has happened.
func (l *Ledger) rotate() error {
	if err := l.barrier(); err != nil {
		return err
	}
	old, oldPath, oldOffset := l.file, l.path(), l.offset
	path := filepath.Join(l.dir, segmentName(l.segment+1))
	file, err := l.fsys.OpenFile(path, flagAppend, fileMode)
	if err != nil {
		return &UnwritableError{Op: "creating", Path: path, Err: err}
	}
	l.file, l.segment, l.offset = file, l.segment+1, 0
	if err := l.writeSegmentStart(); err != nil {
		l.file, l.segment, l.offset = old, l.segment-1, oldOffset
		// The new segment stays behind empty, as after a crash at this place; the
		// next append tries again.
		return errors.Join(err, file.Close())
	}
	err = l.sealSegmentStart()
	if closeErr := old.Close(); err == nil && closeErr != nil {
		err = &UnwritableError{Op: "closing", Path: oldPath, Err: closeErr}
	}
	if err == nil {
		if err = l.fsys.Chmod(oldPath, archivedMode); err != nil {
			err = &UnwritableError{Op: "write-protecting", Path: oldPath, Err: err}
		}
	}
	if err != nil {
		return l.poison(err)
	}
	return nil
}

// writeSegmentStart writes the first record of a segment that is not the first.
func (l *Ledger) writeSegmentStart() error {
	data, err := marshal(segmentHeader{Segment: l.segment, FirstSeq: l.chain.seq + 1, RunUID: l.opts.RunUID})
	if err != nil {
		return err
	}
	_, err = l.write([]Record{{Type: segmentStart}}, [][]byte{data})
	return err
}

// sealSegmentStart makes the first record durable, and the name of the segment.
func (l *Ledger) sealSegmentStart() error {
	if err := l.barrier(); err != nil {
		return err
	}
	return syncDir(l.fsys, l.dir, &l.counts)
}

// FreeBallast removes the ballast file, so that on a full disk the records that
// say why the run stops can still be written. It may be called more than once.
func (l *Ledger) FreeBallast() error {
	path := filepath.Join(l.dir, ballastFile)
	if err := removeIfPresent(l.fsys, path); err != nil {
		return &UnwritableError{Op: "freeing", Path: path, Err: err}
	}
	return nil
}

// Close makes everything durable unless the ledger is poisoned, closes the files
// and releases the lock. Without a nil result, records since the last Sync may be
// lost.
func (l *Ledger) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(l.failed, ErrClosed) {
		return ErrClosed
	}
	var err error
	if l.failed == nil {
		err = l.barrier()
	}
	if closeErr := l.file.Close(); closeErr != nil {
		err = errors.Join(err, &UnwritableError{Op: "closing", Path: l.path(), Err: closeErr})
	}
	l.failed = ErrClosed
	if l.lock != nil {
		err = errors.Join(err, l.lock.Close())
	}
	return err
}

// Options say which ledger to open, and as whom.
type Options struct {
	// Dir is the directory of this run's ledger. It is made if missing.
	Dir string
	// RunUID identifies the run. The payload of the first record must carry it
	// as runUID.
	RunUID string
	// Epoch is the writer's fencing token. 0 takes the newest epoch of the
	// ledger plus one, for callers that have no other authority.
	Epoch uint64
	// PodUID tells two processes of one epoch apart; may be empty.
	PodUID string
	// FS is the file system; nil means OS.
	FS FS
	// Now gives the time that records are labelled with.
	Now func() time.Time
	// Redact replaces secrets in a text; nil changes nothing. It sees the
	// encoded payload of a record, each of its strings that contains an escape
	// in decoded form, and each blob. Its result for JSON must be JSON.
	Redact func([]byte) []byte
	// BallastBytes is the size of the file that FreeBallast frees; 0 means none.
	// DefaultBallastBytes is a good choice.
	BallastBytes int64
	// SegmentBytes is the size from which on a new segment is begun; 0 means 64 MiB.
	SegmentBytes int64
	// PinnedHead is the newest head that was published, or nil. The ledger must
	// contain it.
	PinnedHead *Head
	// KnownCritical says whether the caller understands a critical record type.
	// Nil accepts all, for callers that do not interpret the records.
	KnownCritical func(typ string) bool
}

// DefaultBallastBytes is the usual ballast: enough to end a run in order.
const DefaultBallastBytes = 32 << 20

func (o Options) owner() owner {
	return owner{RunUID: o.RunUID, Epoch: o.Epoch, PodUID: o.PodUID}
}
