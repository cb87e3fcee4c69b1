package ledger

import (
	"errors"
	"io"
	"path/filepath"
)

// Lock takes the lock of a ledger directory without opening the ledger, for instance to move a directory that Open
// would refuse. It fails with [*LockedError] if another process holds the lock. On a file system without locks it
// returns a Closer that holds nothing. A nil FS means [OS].
func Lock(fsys FS, dir string) (io.Closer, error) {
	fsys = orOS(fsys)
	lock, err := fsys.Lock(filepath.Join(dir, lockFile))
	switch {
	case err == nil:
		return lock, nil
	case errors.Is(err, ErrLocked):
		return nil, &LockedError{Dir: dir, Holder: readHolder(fsys, dir)}
	case errors.Is(err, errors.ErrUnsupported):
		return noLock{}, nil
	default:
		return nil, &UnwritableError{Op: "locking", Path: filepath.Join(dir, lockFile), Err: err}
	}
}

type noLock struct{}

func (noLock) Close() error { return nil }
