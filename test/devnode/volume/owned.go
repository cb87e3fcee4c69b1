package volume

import (
	"io/fs"
	"os"
	"syscall"
)

// owned says that dir belongs to group and has all bits.
func owned(dir string, group int, bits fs.FileMode) bool {
	info, err := os.Stat(dir)
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Gid) == group && info.Mode()&bits == bits
}
