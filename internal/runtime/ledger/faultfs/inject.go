// Package faultfs has file systems for tests of the ledger: [Injector] makes chosen
// operations of another file system fail, and [Memory] keeps apart what was written
// from what was made durable, so that a power loss can be simulated at any point.
//
// It is for tests only and imports package ledger for its FS interface.
package faultfs

import (
	"io"
	"io/fs"
	"os"
	"sync"

	"belay.dev/belay/internal/runtime/ledger"
)

// Kind names an operation of [ledger.FS] or [ledger.File].
type Kind string

// The operations.
const (
	Create   Kind = "create" // OpenFile with os.O_CREATE
	Open     Kind = "open"   // OpenFile without it
	Write    Kind = "write"
	Truncate Kind = "truncate"
	Sync     Kind = "sync"
	Allocate Kind = "allocate"
	Close    Kind = "close"
	Mkdir    Kind = "mkdir"
	Rename   Kind = "rename"
	Remove   Kind = "remove"
	Chmod    Kind = "chmod"
	SyncDir  Kind = "syncdir"
	Lock     Kind = "lock"
)

// Op is one operation about to happen.
type Op struct {
	Kind Kind
	Path string
	// Size is the number of bytes of a Write, the new size of a Truncate.
	Size int64
}

// Fault says how an operation fails. The zero Fault lets it happen.
type Fault struct {
	// Err is returned instead of the result; the operation does not happen,
	// except for the first Wrote bytes of a Write.
	Err   error
	Wrote int
	// Short makes a Write report Wrote bytes and no error, as a broken file
	// system would.
	Short bool
}

// Injector is a file system that asks before each operation whether it should fail.
type Injector struct {
	under ledger.FS
	mu    sync.Mutex
	ask   func(Op) Fault
	trace []Op
}

// Inject wraps a file system. ask is called under a lock, once for each operation.
func Inject(under ledger.FS, ask func(Op) Fault) *Injector {
	return &Injector{under: under, ask: ask}
}

// Trace returns the operations so far, those that failed included.
func (i *Injector) Trace() []Op {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]Op(nil), i.trace...)
}

func (i *Injector) fault(kind Kind, path string, size int64) Fault {
	i.mu.Lock()
	defer i.mu.Unlock()
	op := Op{Kind: kind, Path: path, Size: size}
	i.trace = append(i.trace, op)
	return i.ask(op)
}

// OpenFile implements [ledger.FS].
func (i *Injector) OpenFile(name string, flag int, perm fs.FileMode) (ledger.File, error) {
	kind := Open
	if flag&os.O_CREATE != 0 {
		kind = Create
	}
	if f := i.fault(kind, name, 0); f.Err != nil {
		return nil, f.Err
	}
	f, err := i.under.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &injectedFile{File: f, name: name, fs: i}, nil
}

// Mkdir implements [ledger.FS].
func (i *Injector) Mkdir(name string, perm fs.FileMode) error {
	if f := i.fault(Mkdir, name, 0); f.Err != nil {
		return f.Err
	}
	return i.under.Mkdir(name, perm)
}

// ReadDir implements [ledger.FS].
func (i *Injector) ReadDir(name string) ([]string, error) { return i.under.ReadDir(name) }

// Stat implements [ledger.FS].
func (i *Injector) Stat(name string) (int64, error) { return i.under.Stat(name) }

// Rename implements [ledger.FS].
func (i *Injector) Rename(oldName, newName string) error {
	if f := i.fault(Rename, newName, 0); f.Err != nil {
		return f.Err
	}
	return i.under.Rename(oldName, newName)
}

// Remove implements [ledger.FS].
func (i *Injector) Remove(name string) error {
	if f := i.fault(Remove, name, 0); f.Err != nil {
		return f.Err
	}
	return i.under.Remove(name)
}

// Chmod implements [ledger.FS].
func (i *Injector) Chmod(name string, perm fs.FileMode) error {
	if f := i.fault(Chmod, name, 0); f.Err != nil {
		return f.Err
	}
	return i.under.Chmod(name, perm)
}

// SyncDir implements [ledger.FS].
func (i *Injector) SyncDir(name string) error {
	if f := i.fault(SyncDir, name, 0); f.Err != nil {
		return f.Err
	}
	return i.under.SyncDir(name)
}

// Lock implements [ledger.FS].
func (i *Injector) Lock(name string) (io.Closer, error) {
	if f := i.fault(Lock, name, 0); f.Err != nil {
		return nil, f.Err
	}
	return i.under.Lock(name)
}

type injectedFile struct {
	ledger.File
	name string
	fs   *Injector
}

func (f *injectedFile) Write(p []byte) (int, error) {
	fault := f.fs.fault(Write, f.name, int64(len(p)))
	if fault.Err == nil && !fault.Short {
		return f.File.Write(p)
	}
	n, err := f.File.Write(p[:fault.Wrote])
	if err != nil {
		return n, err
	}
	return n, fault.Err
}

func (f *injectedFile) Truncate(size int64) error {
	if fault := f.fs.fault(Truncate, f.name, size); fault.Err != nil {
		return fault.Err
	}
	return f.File.Truncate(size)
}

func (f *injectedFile) Sync() error {
	if fault := f.fs.fault(Sync, f.name, 0); fault.Err != nil {
		return fault.Err
	}
	return f.File.Sync()
}

func (f *injectedFile) Allocate(size int64) error {
	if fault := f.fs.fault(Allocate, f.name, size); fault.Err != nil {
		return fault.Err
	}
	return f.File.Allocate(size)
}

func (f *injectedFile) Close() error {
	fault := f.fs.fault(Close, f.name, 0)
	if err := f.File.Close(); err != nil {
		return err
	}
	return fault.Err
}
