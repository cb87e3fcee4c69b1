//go:build !linux

package ledger

import "os"

func syncData(f *os.File) error { return f.Sync() }

func allocate(f *os.File, size int64) error { return writeZeros(f, size) }
