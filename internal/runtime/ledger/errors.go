package ledger

import (
	"errors"
	"fmt"
)

var (
	// ErrFenced is wrapped when a newer epoch owns the ledger, or when somebody
	// else wrote to its last segment. The writer must stop at once: nothing that
	// it appended since its last successful Sync counts.
	ErrFenced = errors.New("ledger is fenced: another writer owns it")
	// ErrForeignRun is wrapped when the directory holds the ledger of another run.
	ErrForeignRun = errors.New("ledger belongs to another run")
	// ErrNewerVersion is wrapped when a record was written in a format version
	// that this program does not know. Use a program at least as new as the writer.
	ErrNewerVersion = errors.New("ledger was written by a newer version of belay")
	// ErrTooLarge is wrapped when a record does not fit into [MaxRecordBytes]. Put the
	// payload into a blob with PutBlob and record its BlobRef.
	ErrTooLarge = errors.New("record is too large")
	// ErrClosed is returned by every call after Close.
	ErrClosed = errors.New("ledger is closed")
)

// FencedError says that a newer epoch than ours, or our epoch in another pod, owns
// the ledger. It wraps [ErrFenced].
type FencedError struct {
	// Epoch is the newest epoch that the ledger knows of.
	Epoch uint64
	// PodUID is the pod of that epoch, if known.
	PodUID string
	// What says how it was found out.
	What string
}

func (e *FencedError) Error() string {
	msg := fmt.Sprintf("%v: newest epoch %d", ErrFenced, e.Epoch)
	if e.PodUID != "" {
		msg += " of pod " + e.PodUID
	}
	if e.What != "" {
		msg += ": " + e.What
	}
	return msg
}

func (e *FencedError) Unwrap() error { return ErrFenced }

// LockedError says who holds the lock of the directory. It wraps [ErrLocked].
type LockedError struct {
	Dir    string
	Holder Holder
}

func (e *LockedError) Error() string {
	return fmt.Sprintf("opening ledger %s: %v (epoch %d, pod %q, process %d on %q); wait until it has ended",
		e.Dir, ErrLocked, e.Holder.Epoch, e.Holder.PodUID, e.Holder.PID, e.Holder.Host)
}

func (e *LockedError) Unwrap() error { return ErrLocked }

// CorruptError says where a ledger is damaged in a way that no crash can explain.
// Nothing was changed.
type CorruptError struct {
	// Segment is the path of the damaged file, Offset the first byte that is not
	// understood, Seq the sequence number expected there.
	Segment string
	Offset  int64
	Seq     uint64
	What    string
	Advice  string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("ledger is damaged: %s at offset %d, where record %d was expected: %s; %s",
		e.Segment, e.Offset, e.Seq, e.What, e.Advice)
}

// RegressedError says that the ledger no longer holds a record that was published
// as durable: the volume was rolled back or lost acknowledged writes. Nothing was
// changed.
type RegressedError struct {
	Pinned Head
	// Found is the newest record of the ledger as it is now.
	Found Head
	What  string
}

func (e *RegressedError) Error() string {
	return fmt.Sprintf("ledger has regressed: record %d (%s) was published as durable, but %s; newest record is %d (%s); "+
		"restore the newest copy of the volume", e.Pinned.Seq, e.Pinned.Hash, e.What, e.Found.Seq, e.Found.Hash)
}

// UnwritableError says that the directory cannot take a durable write.
type UnwritableError struct {
	// Op says what was tried, Path on what.
	Op   string
	Path string
	Err  error
}

func (e *UnwritableError) Error() string {
	return fmt.Sprintf("ledger is not writable: %s %s: %v; check the volume's free space, inodes, mount options and ownership",
		e.Op, e.Path, e.Err)
}

func (e *UnwritableError) Unwrap() error { return e.Err }

// UnknownCriticalError says that a record that may not be skipped has a type that
// the caller does not know.
type UnknownCriticalError struct {
	Type    string
	Segment string
	Offset  int64
	Seq     uint64
}

func (e *UnknownCriticalError) Error() string {
	return fmt.Sprintf("ledger record %d (%s, offset %d) has the critical type %q, which this version of belay does not know; "+
		"use a version at least as new as the writer", e.Seq, e.Segment, e.Offset, e.Type)
}
