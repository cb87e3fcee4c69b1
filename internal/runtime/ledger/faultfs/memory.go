package faultfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"belay.dev/belay/internal/runtime/ledger"
)

// ErrCrashed is returned by every operation after the simulated power loss.
var ErrCrashed = errors.New("power was lost")

// Memory is a file system in memory that is strict about durability: the content
// of a file is durable up to its last Sync, a name up to the last SyncDir of its
// directory. [Memory.Crash] gives what is left after a power loss.
type Memory struct {
	mu   sync.Mutex
	root *directory
	held map[string]bool
	// ops counts the changing operations; at crashAt the power is lost.
	ops, crashAt int
	// capacity bounds the bytes of all files, 0 means no bound.
	capacity, used int64
	noLocks        bool
}

// node is a *directory or an *inode.
type node interface{ isNode() }

type directory struct {
	names, durable map[string]node
}

type inode struct {
	data, durable []byte
	mode          fs.FileMode
}

func (*directory) isNode() {}
func (*inode) isNode()     {}

func newDirectory() *directory {
	return &directory{names: map[string]node{}, durable: map[string]node{}}
}

// NewMemory returns an empty file system.
func NewMemory() *Memory { return &Memory{root: newDirectory(), held: map[string]bool{}} }

// CrashAt loses power at the n-th changing operation from the beginning, counted
// from 1. That operation may or may not reach the disk; it and all later ones fail.
func (m *Memory) CrashAt(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.crashAt = n
}

// Restart ends the simulated process but keeps the power on: what was written stays
// written, synced or not, and all locks are free.
func (m *Memory) Restart() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.crashAt = 0
	clear(m.held)
}

// Ops returns the number of changing operations so far.
func (m *Memory) Ops() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ops
}

// SetCapacity bounds the bytes of all files together; 0 lifts the bound.
func (m *Memory) SetCapacity(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.capacity = n
}

// Used returns the bytes of all files together.
func (m *Memory) Used() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// WithoutLocks makes Lock report that locks are not supported.
func (m *Memory) WithoutLocks() *Memory {
	m.noLocks = true
	return m
}

func (m *Memory) crashed() bool { return m.crashAt > 0 && m.ops >= m.crashAt }

// change counts one changing operation. It fails before the operation if the power
// is gone already; after says whether it has just gone, so that the operation
// happens and then fails.
func (m *Memory) change() (after error, err error) {
	if m.crashed() {
		return nil, ErrCrashed
	}
	m.ops++
	if m.crashed() {
		return ErrCrashed, nil
	}
	return nil, nil
}

// walk finds the directory that holds a name.
func (m *Memory) walk(name string) (*directory, string, error) {
	dir, base := filepath.Split(filepath.Clean("/" + name))
	current := m.root
	for _, step := range splitPath(dir) {
		next, ok := current.names[step].(*directory)
		if !ok {
			return nil, "", &fs.PathError{Op: "walk", Path: name, Err: fs.ErrNotExist}
		}
		current = next
	}
	return current, base, nil
}

func splitPath(path string) []string {
	var parts []string
	for path = filepath.Clean(path); path != "/" && path != "."; path = filepath.Dir(path) {
		parts = append(parts, filepath.Base(path))
	}
	slices.Reverse(parts)
	return parts
}

func (m *Memory) findDir(name string) (*directory, error) {
	parent, base, err := m.walk(name)
	if err != nil {
		return nil, err
	}
	if base == "" {
		return parent, nil
	}
	dir, ok := parent.names[base].(*directory)
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return dir, nil
}

// OpenFile implements [ledger.FS].
func (m *Memory) OpenFile(name string, flag int, perm fs.FileMode) (ledger.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.crashed() {
		return nil, ErrCrashed
	}
	dir, base, err := m.walk(name)
	if err != nil {
		return nil, err
	}
	found, exists := dir.names[base]
	file, regular := found.(*inode)
	if exists && !regular {
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.EISDIR}
	}
	changes := !exists || flag&os.O_TRUNC != 0
	if !exists && flag&os.O_CREATE == 0 {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	if exists && flag&(os.O_WRONLY|os.O_RDWR) != 0 && file.mode&0o200 == 0 {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	var after error
	if changes {
		if after, err = m.change(); err != nil {
			return nil, err
		}
	}
	if !exists {
		file = &inode{mode: perm}
		dir.names[base] = file
	}
	if flag&os.O_TRUNC != 0 {
		m.used -= int64(len(file.data))
		file.data = nil
	}
	if after != nil {
		return nil, after
	}
	return &memoryFile{fs: m, name: name, node: file}, nil
}

// Mkdir implements [ledger.FS].
func (m *Memory) Mkdir(name string, _ fs.FileMode) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.walk(name)
	if err != nil {
		return err
	}
	if _, exists := dir.names[base]; exists || base == "" {
		return &fs.PathError{Op: "mkdir", Path: name, Err: fs.ErrExist}
	}
	after, err := m.change()
	if err != nil {
		return err
	}
	dir.names[base] = newDirectory()
	return after
}

// ReadDir implements [ledger.FS].
func (m *Memory) ReadDir(name string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.crashed() {
		return nil, ErrCrashed
	}
	dir, err := m.findDir(name)
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(dir.names)), nil
}

// Stat implements [ledger.FS].
func (m *Memory) Stat(name string) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.crashed() {
		return 0, ErrCrashed
	}
	dir, base, err := m.walk(name)
	if err != nil {
		return 0, err
	}
	switch found := dir.names[base].(type) {
	case *inode:
		return int64(len(found.data)), nil
	case *directory:
		return 0, nil
	default:
		return 0, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
	}
}

// Rename implements [ledger.FS].
func (m *Memory) Rename(oldName, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, oldBase, err := m.walk(oldName)
	if err != nil {
		return err
	}
	to, newBase, err := m.walk(newName)
	if err != nil {
		return err
	}
	moved, exists := from.names[oldBase]
	if !exists {
		return &fs.PathError{Op: "rename", Path: oldName, Err: fs.ErrNotExist}
	}
	after, err := m.change()
	if err != nil {
		return err
	}
	if replaced, ok := to.names[newBase].(*inode); ok {
		m.used -= int64(len(replaced.data))
	}
	delete(from.names, oldBase)
	to.names[newBase] = moved
	return after
}

// Remove implements [ledger.FS].
func (m *Memory) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.walk(name)
	if err != nil {
		return err
	}
	removed, exists := dir.names[base]
	if !exists {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	after, err := m.change()
	if err != nil {
		return err
	}
	if file, ok := removed.(*inode); ok {
		m.used -= int64(len(file.data))
	}
	delete(dir.names, base)
	return after
}

// Chmod implements [ledger.FS].
func (m *Memory) Chmod(name string, perm fs.FileMode) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.walk(name)
	if err != nil {
		return err
	}
	file, ok := dir.names[base].(*inode)
	if !ok {
		return &fs.PathError{Op: "chmod", Path: name, Err: fs.ErrNotExist}
	}
	after, err := m.change()
	if err != nil {
		return err
	}
	file.mode = perm
	return after
}

// SyncDir implements [ledger.FS].
func (m *Memory) SyncDir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, err := m.findDir(name)
	if err != nil {
		return err
	}
	after, err := m.change()
	if err != nil {
		return err
	}
	dir.durable = maps.Clone(dir.names)
	return after
}

type heldLock struct {
	fs   *Memory
	name string
}

// Lock implements [ledger.FS].
func (m *Memory) Lock(name string) (io.Closer, error) {
	if _, err := m.Stat(name); errors.Is(err, fs.ErrNotExist) {
		if _, err := m.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
			return nil, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.crashed():
		return nil, ErrCrashed
	case m.noLocks:
		return nil, fmt.Errorf("locking %s: %w", name, errors.ErrUnsupported)
	case m.held[name]:
		return nil, fmt.Errorf("locking %s: %w", name, ledger.ErrLocked)
	}
	m.held[name] = true
	return &heldLock{fs: m, name: name}, nil
}

func (l *heldLock) Close() error {
	l.fs.mu.Lock()
	defer l.fs.mu.Unlock()
	delete(l.fs.held, l.name)
	return nil
}
