package faultfs

import (
	"bytes"
	"io"
	"syscall"
)

// memoryFile appends on Write, whatever the flags: the ledger writes in no other way.
type memoryFile struct {
	fs   *Memory
	name string
	node *inode
	// position is where Read goes on.
	position int64
}

func (f *memoryFile) Read(p []byte) (int, error) {
	n, err := f.ReadAt(p, f.position)
	f.position += int64(n)
	if n > 0 {
		return n, nil
	}
	return 0, err
}

func (f *memoryFile) ReadAt(p []byte, offset int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.fs.crashed() {
		return 0, ErrCrashed
	}
	if offset >= int64(len(f.node.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.node.data[offset:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memoryFile) Write(p []byte) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	after, err := f.fs.change()
	if err != nil {
		return 0, err
	}
	n := len(p)
	if f.fs.capacity > 0 {
		n = int(min(int64(n), max(f.fs.capacity-f.fs.used, 0)))
	}
	f.node.data = append(bytes.Clone(f.node.data), p[:n]...)
	f.fs.used += int64(n)
	if after == nil && n < len(p) {
		return n, syscall.ENOSPC
	}
	return n, after
}

func (f *memoryFile) Size() (int64, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.fs.crashed() {
		return 0, ErrCrashed
	}
	return int64(len(f.node.data)), nil
}

func (f *memoryFile) Truncate(size int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	after, err := f.fs.change()
	if err != nil {
		return err
	}
	if grow := size - int64(len(f.node.data)); grow > 0 {
		f.node.data = append(bytes.Clone(f.node.data), make([]byte, grow)...)
		f.fs.used += grow
		return after
	}
	f.fs.used -= int64(len(f.node.data)) - size
	f.node.data = bytes.Clone(f.node.data[:size])
	return after
}

func (f *memoryFile) Sync() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	after, err := f.fs.change()
	if err != nil {
		return err
	}
	f.node.durable = f.node.data
	return after
}

func (f *memoryFile) Allocate(size int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	after, err := f.fs.change()
	if err != nil {
		return err
	}
	if f.fs.capacity > 0 && f.fs.used+size > f.fs.capacity {
		return syscall.ENOSPC
	}
	f.node.data = append(bytes.Clone(f.node.data), make([]byte, size)...)
	f.fs.used += size
	return after
}

// Close never fails: the lock of a crashed process is gone with it.
func (f *memoryFile) Close() error { return nil }
