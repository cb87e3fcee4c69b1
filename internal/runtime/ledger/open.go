package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// Recovered says what Open found.
type Recovered struct {
	// Fresh is true if the ledger held no record.
	Fresh bool
	// Head names the newest record as found, before Open wrote anything.
	Head Head
	// NewestEpoch is the epoch of that record, 0 if Fresh.
	NewestEpoch uint64
	// Records counts the records found.
	Records int
	// Torn lists what was cut off, now or by an Open that was interrupted before
	// it could record it. Each has its "recovered" record.
	Torn []TornTail
	// Terminated says that the last record was intact but lacked its newline.
	Terminated bool
	// Fenced lists records of an older epoch that were ignored.
	Fenced []FencedRecord
	// Unlocked says that the file system has no locks, so that only the epoch
	// guards against a second writer.
	Unlocked bool
}

// TornTail is an unfinished record that a crash left behind. It is the payload of
// a "recovered" record.
type TornTail struct {
	RunUID string `json:"runUID"`
	// Segment and Offset tell where it began, Seq which record it would have been.
	Segment int    `json:"segment"`
	Offset  int64  `json:"offset"`
	Seq     uint64 `json:"seq"`
	Size    int64  `json:"size"`
	// Saved is the file that holds its bytes, relative to the ledger's directory.
	Saved string `json:"saved"`
}

// FencedRecord is a record that a stale writer appended after its epoch had ended.
type FencedRecord struct {
	Seq     uint64
	Epoch   uint64
	Type    string
	Segment int
	Offset  int64
}

// Open opens the ledger in opts.Dir for writing and repairs a torn tail.
//
// It refuses with [*LockedError] if another process has it open, with an error
// that wraps [ErrForeignRun] if it belongs to another run, with [*FencedError] if a
// newer epoch owns it, with [*CorruptError] on damage that a crash cannot explain,
// with [*RegressedError] if the pinned head is gone, with an error that wraps
// [ErrNewerVersion] or with [*UnknownCriticalError] if it needs a newer program, and
// with [*UnwritableError] if the directory cannot take a durable write. All but the
// last leave the records untouched.
//
// The caller appends the first record of its epoch, "epoch.start"; only "recovered"
// and "segment.start" records of this package may stand before it.
func Open(opts Options) (*Ledger, *Recovered, error) {
	if opts.Dir == "" || opts.RunUID == "" || opts.Now == nil {
		return nil, nil, errors.New("opening ledger: Dir, RunUID and Now are required")
	}
	opts.FS = orOS(opts.FS)
	opts.Dir = filepath.Clean(opts.Dir)
	if opts.SegmentBytes <= 0 {
		opts.SegmentBytes = defaultSegment
	}
	l := &Ledger{fsys: opts.FS, dir: opts.Dir, opts: opts}
	found := &Recovered{}
	if err := l.open(found); err != nil {
		if l.file != nil {
			err = errors.Join(err, l.file.Close())
		}
		if l.lock != nil {
			err = errors.Join(err, l.lock.Close())
		}
		return nil, nil, err
	}
	return l, found, nil
}

func (l *Ledger) open(found *Recovered) error {
	if err := makeDirs(l.fsys, l.dir, &l.counts); err != nil {
		return err
	}
	if err := l.takeLock(found); err != nil {
		return err
	}
	s, err := l.survey()
	if err != nil {
		return err
	}
	if err := writeHolder(l.fsys, l.dir, l.holder()); err != nil {
		return err
	}
	if err := l.reserveBallast(); err != nil {
		return err
	}
	// Proves at the same time that the directory takes a durable file: data
	// sync, rename and directory sync.
	if l.epochFile, err = l.opts.owner().encode(); err != nil {
		return err
	}
	if err := writeDurably(l.fsys, filepath.Join(l.dir, epochFile), l.epochFile, &l.counts); err != nil {
		return err
	}
	// A writer that the lock did not keep away may have appended since; from now
	// on it fails its barriers.
	changed, err := s.changed()
	if err != nil {
		return err
	}
	if changed {
		if s, err = l.survey(); err != nil {
			return err
		}
	}
	found.Fresh = s.walker.chain.seq == 0
	found.Head = s.walker.chain.head()
	found.NewestEpoch = s.walker.chain.epoch
	found.Records = s.records
	found.Fenced = s.fenced
	return l.repair(s, found)
}

func (l *Ledger) holder() Holder {
	pid, host := thisProcess()
	return Holder{Epoch: l.opts.Epoch, PodUID: l.opts.PodUID, PID: pid, Host: host}
}

func (l *Ledger) takeLock(found *Recovered) error {
	path := filepath.Join(l.dir, lockFile)
	lock, err := l.fsys.Lock(path)
	switch {
	case err == nil:
		l.lock = lock
	case errors.Is(err, ErrLocked):
		return &LockedError{Dir: l.dir, Holder: readHolder(l.fsys, l.dir)}
	case errors.Is(err, errors.ErrUnsupported):
		found.Unlocked = true
	default:
		return &UnwritableError{Op: "locking", Path: path, Err: err}
	}
	return nil
}

// makeDirs makes a directory and its parents, and makes each new name durable.
func makeDirs(fsys FS, dir string, counts *counters) error {
	err := fsys.Mkdir(dir, dirMode)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) && filepath.Dir(dir) != dir {
		if err := makeDirs(fsys, filepath.Dir(dir), counts); err != nil {
			return err
		}
		err = fsys.Mkdir(dir, dirMode)
	}
	if err != nil {
		return &UnwritableError{Op: "making directory", Path: dir, Err: err}
	}
	return syncDir(fsys, filepath.Dir(dir), counts)
}

// survey is the state of a directory as Open judges it.
type survey struct {
	walker  *walker
	records int
	fenced  []FencedRecord
	// recorded holds the saved files that a "recovered" record names.
	recorded map[string]bool
}

// survey reads everything and refuses what must not be opened. It writes nothing.
func (l *Ledger) survey() (*survey, error) {
	current, err := readOwner(l.fsys, l.dir)
	if err != nil {
		return nil, err
	}
	if current.RunUID != "" && current.RunUID != l.opts.RunUID {
		return nil, foreignRun(l.dir, current.RunUID, l.opts.RunUID)
	}
	s := &survey{recorded: map[string]bool{}}
	pin := pinCheck{pinned: l.opts.PinnedHead}
	w := newWalker(l.fsys, l.dir)
	s.walker = w
	w.keepUnterminated = true
	w.skipped = func(h header, segment int, offset int64) {
		s.fenced = append(s.fenced, FencedRecord{Seq: h.seq, Epoch: h.epoch, Type: string(h.typ), Segment: segment, Offset: offset})
	}
	w.visit = func(h header, hash [hashLen]byte, segment int, offset int64) error {
		s.records++
		pin.see(h.seq, hash)
		return l.judge(s, h, segment, offset)
	}
	if err := w.advance(); err != nil {
		return nil, err
	}
	if err := pin.verdict(w.chain.head()); err != nil {
		return nil, err
	}
	return s, l.claimEpoch(current, w.chain.epoch)
}

// changed reports whether the segments have grown since they were surveyed.
func (s *survey) changed() (bool, error) {
	w := s.walker
	newest, err := lastSegment(w.fsys, w.dir)
	if err != nil {
		return false, err
	}
	size, err := w.fsys.Stat(w.path())
	if errors.Is(err, fs.ErrNotExist) {
		return newest != 0, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the size of ledger segment %s: %w", w.path(), err)
	}
	return newest != w.segment || size != w.offset+w.tail.size, nil
}

// judge looks into the few records that Open has to understand.
func (l *Ledger) judge(s *survey, h header, segment int, offset int64) error {
	typ := string(h.typ)
	if h.seq == 1 {
		switch found := firstRunUID(h.data); found {
		case l.opts.RunUID:
		case "":
			return &CorruptError{
				Segment: s.walker.path(), Offset: offset, Seq: 1,
				What: "the first record does not say which run it belongs to", Advice: adviceReport,
			}
		default:
			return foreignRun(l.dir, found, l.opts.RunUID)
		}
	}
	if typ == recoveredType {
		var torn TornTail
		if err := json.Unmarshal(h.data, &torn); err == nil {
			s.recorded[torn.Saved] = true
		}
	}
	if h.crit && l.opts.KnownCritical != nil && !l.opts.KnownCritical(typ) {
		return &UnknownCriticalError{Type: typ, Segment: filepath.Join(l.dir, segmentName(segment)), Offset: offset, Seq: h.seq}
	}
	return nil
}

// firstRunUID reads the run's UID from the payload of a first record.
func firstRunUID(data []byte) string {
	var first struct {
		RunUID string `json:"runUID"`
	}
	if err := json.Unmarshal(data, &first); err != nil {
		return ""
	}
	return first.RunUID
}

func foreignRun(dir, found, want string) error {
	return fmt.Errorf("opening ledger %s: %w: it is of run %s, not of %s; use another directory", dir, ErrForeignRun, found, want)
}

// claimEpoch checks that our epoch may write, and chooses it if it was left open.
func (l *Ledger) claimEpoch(current owner, newest uint64) error {
	if l.opts.Epoch == 0 {
		l.opts.Epoch = max(newest, current.Epoch) + 1
		return nil
	}
	if newest > max(l.opts.Epoch, current.Epoch) {
		return &FencedError{Epoch: newest, What: fmt.Sprintf("it holds records of that epoch, ours is %d", l.opts.Epoch)}
	}
	if current.Epoch > l.opts.Epoch {
		return &FencedError{Epoch: current.Epoch, PodUID: current.PodUID, What: fmt.Sprintf("our epoch is %d", l.opts.Epoch)}
	}
	if current.Epoch == l.opts.Epoch && current.PodUID != l.opts.PodUID {
		return &FencedError{Epoch: current.Epoch, PodUID: current.PodUID, What: fmt.Sprintf("our pod is %q", l.opts.PodUID)}
	}
	return nil
}

// pinCheck finds out whether the ledger still holds the published head.
type pinCheck struct {
	pinned *Head
	// at is the hash of the record with the pinned sequence number, if seen.
	at   string
	seen bool
}

func (p *pinCheck) see(seq uint64, hash [hashLen]byte) {
	if p.pinned != nil && seq == p.pinned.Seq {
		p.at, p.seen = string(hash[:]), true
	}
}

func (p *pinCheck) verdict(found Head) error {
	switch {
	case p.pinned == nil || p.pinned.Seq == 0:
		return nil
	case !p.seen:
		return &RegressedError{Pinned: *p.pinned, Found: found, What: "it is missing"}
	case p.at != p.pinned.Hash:
		return &RegressedError{Pinned: *p.pinned, Found: found, What: "its hash is now " + p.at}
	}
	return nil
}

// reserveBallast makes the ballast file, or completes one that a crash left short.
func (l *Ledger) reserveBallast() error {
	if l.opts.BallastBytes <= 0 {
		return nil
	}
	path := filepath.Join(l.dir, ballastFile)
	size, err := l.fsys.Stat(path)
	if err == nil && size == l.opts.BallastBytes {
		return nil
	}
	f, err := l.fsys.OpenFile(path, flagCreate, fileMode)
	if err == nil {
		err = f.Allocate(l.opts.BallastBytes)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return errors.Join(&UnwritableError{Op: "reserving ballast in", Path: path, Err: err}, removeIfPresent(l.fsys, path))
	}
	return nil
}

// repair opens the last segment for appending, cuts off its torn tail and records
// what was cut off. Interrupted anywhere, it can be done again.
func (l *Ledger) repair(s *survey, found *Recovered) error {
	w := s.walker
	l.segment, l.chain, l.synced = w.segment, w.chain, w.chain
	l.offset = w.offset
	if !w.tail.clean() {
		l.offset = w.tail.offset
	}
	if w.tail.size > 0 {
		if err := l.saveTail(w); err != nil {
			return err
		}
	}
	file, err := l.fsys.OpenFile(l.path(), flagAppend, fileMode)
	if err != nil {
		return &UnwritableError{Op: "opening", Path: l.path(), Err: err}
	}
	l.file = file
	if w.tail.size > 0 {
		if err := file.Truncate(l.offset); err != nil {
			return &UnwritableError{Op: "truncating", Path: l.path(), Err: err}
		}
	}
	if w.tail.missingNewline {
		if n, err := file.Write([]byte{'\n'}); err != nil || n != 1 {
			return &UnwritableError{Op: "terminating the last record of", Path: l.path(), Err: err}
		}
		l.offset++
		found.Terminated = true
	}
	// What was read may so far be in memory only.
	l.dirty = true
	if err := l.barrier(); err != nil {
		return err
	}
	if err := syncDir(l.fsys, l.dir, &l.counts); err != nil {
		return err
	}
	if l.segment > 1 && l.offset == 0 {
		if err := l.writeSegmentStart(); err != nil {
			return err
		}
		if err := l.sealSegmentStart(); err != nil {
			return err
		}
	}
	return l.recordTorn(s, found)
}

// saveTail copies the torn bytes to torn/<seq>-<offset> before they are cut off.
func (l *Ledger) saveTail(w *walker) error {
	f, err := l.fsys.OpenFile(l.path(), flagRead, 0)
	if err != nil {
		return fmt.Errorf("saving the torn tail: %w", err)
	}
	torn := make([]byte, w.tail.size)
	_, err = f.ReadAt(torn, w.tail.offset)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("saving the torn tail of %s: %w", l.path(), err)
	}
	dir := filepath.Join(l.dir, tornDir)
	if err := makeDirs(l.fsys, dir, &l.counts); err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		path := filepath.Join(dir, tornName(w.chain.seq+1, w.segment, w.tail.offset, attempt))
		saved, err := readFile(l.fsys, path, w.tail.size)
		if err == nil && bytes.Equal(saved, torn) {
			return syncDir(l.fsys, dir, &l.counts)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return writeDurably(l.fsys, path, torn, &l.counts)
		}
	}
}
