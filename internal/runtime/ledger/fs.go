package ledger

import (
	"errors"
	"io"
	"io/fs"
)

// FS is the file system as the ledger uses it. The product uses [OS]; package
// faultfs has one that injects faults and one that simulates power loss.
//
// Names are paths as the caller of [Open] gave them, joined with path/filepath.
type FS interface {
	// OpenFile opens a file with the os.O_* flags. A missing file is reported
	// as fs.ErrNotExist.
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	// Mkdir makes one directory; an existing one is reported as fs.ErrExist.
	Mkdir(name string, perm fs.FileMode) error
	// ReadDir lists the names in a directory in lexical order.
	ReadDir(name string) ([]string, error)
	// Stat returns the size of a file, or fs.ErrNotExist.
	Stat(name string) (int64, error)
	Rename(oldName, newName string) error
	Remove(name string) error
	Chmod(name string, perm fs.FileMode) error
	// SyncDir makes creations, renames and removals in a directory durable.
	SyncDir(name string) error
	// Lock takes an exclusive lock on a file, making the file if needed, without
	// waiting. It returns an error that wraps ErrLocked if someone else holds
	// the lock, and one that wraps errors.ErrUnsupported if this file system has
	// no locks. The lock is held until the returned Closer is closed or the
	// process ends.
	Lock(name string) (io.Closer, error)
}

// File is an open file.
type File interface {
	io.Reader
	io.ReaderAt
	io.Writer
	io.Closer
	Size() (int64, error)
	Truncate(size int64) error
	// Sync makes the content and the size of the file durable.
	Sync() error
	// Allocate reserves real blocks for the first size bytes, or fails with
	// ENOSPC. It may leave the content unspecified.
	Allocate(size int64) error
}

// ErrLocked is wrapped by [LockedError], and by the errors of [FS.Lock] when the
// lock is taken.
var ErrLocked = errors.New("ledger is locked by another process")

// readFile reads a whole file of at most limit bytes.
func readFile(fsys FS, name string, limit int64) ([]byte, error) {
	f, err := fsys.OpenFile(name, flagRead, 0)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil && int64(len(data)) > limit {
		err = errors.New("file is larger than expected")
	}
	return data, err
}
