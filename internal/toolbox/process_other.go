//go:build !linux

package toolbox

import (
	"errors"
	"net"
	"syscall"
)

// errNotLinux is why Serve fails elsewhere: without /proc and a reaper of
// orphans the toolbox could not promise that no process outlives its call.
var errNotLinux = errors.New("the toolbox needs Linux to keep track of processes")

func becomeReaper() error { return errNotLinux }

func leaderAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func peer(*net.UnixConn) (pid, uid int, err error) { return 0, 0, errNotLinux }
