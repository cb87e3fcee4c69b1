package ledger

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

const (
	flagRead   = os.O_RDONLY
	flagCreate = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	flagAppend = os.O_RDWR | os.O_CREATE | os.O_APPEND
)

// OS returns the machine's own file system.
func OS() FS { return osFS{} }

type osFS struct{}

func (osFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osFS) Mkdir(name string, perm fs.FileMode) error { return os.Mkdir(name, perm) }

func (osFS) ReadDir(name string) ([]string, error) {
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, entry := range entries {
		names[i] = entry.Name()
	}
	return names, nil
}

func (osFS) Stat(name string) (int64, error) {
	info, err := os.Stat(name)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (osFS) Rename(oldName, newName string) error      { return os.Rename(oldName, newName) }
func (osFS) Remove(name string) error                  { return os.Remove(name) }
func (osFS) Chmod(name string, perm fs.FileMode) error { return os.Chmod(name, perm) }

func (osFS) SyncDir(name string) error {
	dir, err := os.Open(name)
	if err != nil {
		return err
	}
	err = dir.Sync()
	return errors.Join(err, dir.Close())
}

func (osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return nil, err
	}
	err = flock(f)
	if err == nil {
		return f, nil
	}
	closeErr := f.Close()
	switch {
	case errors.Is(err, syscall.EWOULDBLOCK):
		err = fmt.Errorf("locking %s: %w", name, ErrLocked)
	case errors.Is(err, syscall.ENOLCK), errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.ENOSYS):
		err = fmt.Errorf("locking %s: %w: %w", name, errors.ErrUnsupported, err)
	default:
		err = fmt.Errorf("locking %s: %w", name, err)
	}
	return nil, errors.Join(err, closeErr)
}

// flock retries on EINTR: the Go runtime's preemption signals interrupt
// system calls on some network file systems.
func flock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f osFile) Sync() error { return syncData(f.File) }

func (f osFile) Allocate(size int64) error { return allocate(f.File, size) }

// writeZeros is the portable way to make a file of real blocks.
func writeZeros(f *os.File, size int64) error {
	zeros := make([]byte, 1<<20)
	for size > 0 {
		n, err := f.Write(zeros[:min(size, int64(len(zeros)))])
		if err != nil {
			return err
		}
		size -= int64(n)
	}
	return nil
}
