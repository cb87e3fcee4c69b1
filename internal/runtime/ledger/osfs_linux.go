package ledger

import (
	"errors"
	"os"
	"syscall"
)

// syncData uses fdatasync: it flushes the content and what is needed to read it
// back, the size included, and spares the journal entry for the time stamps.
func syncData(f *os.File) error {
	for {
		err := syscall.Fdatasync(int(f.Fd()))
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		return os.NewSyscallError("fdatasync", err)
	}
}

// allocate prefers fallocate, which cannot be undone by a file system that
// compresses zeros, and writes zeros where it is not supported.
func allocate(f *os.File, size int64) error {
	for {
		err := syscall.Fallocate(int(f.Fd()), 0, 0, size)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.ENOSYS):
			return writeZeros(f, size)
		default:
			return os.NewSyscallError("fallocate", err)
		}
	}
}
