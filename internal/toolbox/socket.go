package toolbox

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"sync"
)

// socketMode lets the runner in, which shares the group (fsGroup) only.
const socketMode = 0o660

// maxSocketPath is the size of sun_path less the suffix of the path that is
// bound first and the final NUL.
const maxSocketPath = 108 - len(newSuffix) - 1

const newSuffix = ".new"

// listener is a unix listener that removes its path when it is closed.
type listener struct {
	*net.UnixListener
	path string
	self os.FileInfo

	once sync.Once
	err  error
}

// listen binds the socket under another name, sets its mode and renames it
// into place: whoever sees the path can connect. A stale socket is replaced; a
// live one, or a file of another kind, is not.
func listen(path string) (*listener, error) {
	switch {
	case path == "" || strings.HasPrefix(path, "@") || strings.HasPrefix(path, "\x00"):
		return nil, fmt.Errorf("socket %q: a path in the file system is needed, abstract sockets have no permissions", path)
	case len(path) > maxSocketPath:
		return nil, fmt.Errorf("socket %q: the path has %d bytes, at most %d are possible", path, len(path), maxSocketPath)
	}
	if err := checkStale(path); err != nil {
		return nil, err
	}
	temporary := path + newSuffix
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("socket: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: temporary, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	l.SetUnlinkOnClose(false)
	err = os.Chmod(temporary, socketMode)
	if err == nil {
		err = os.Rename(temporary, path)
	}
	var self os.FileInfo
	if err == nil {
		self, err = os.Lstat(path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("socket: %w", err), l.Close())
	}
	return &listener{UnixListener: l, path: path, self: self}, nil
}

func checkStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("socket %s: there is a file that is no socket; remove it or choose another path", path)
	}
	if conn, err := net.Dial("unix", path); err == nil {
		return errors.Join(fmt.Errorf("socket %s: another toolbox is listening", path), conn.Close())
	}
	return nil
}

// Close stops listening and removes the path, unless somebody else's socket
// has taken it over. When it returns, both are done, whoever called it first.
func (l *listener) Close() error {
	l.once.Do(func() {
		l.err = l.UnixListener.Close()
		if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.self) {
			l.err = errors.Join(l.err, os.Remove(l.path))
		}
	})
	return l.err
}
