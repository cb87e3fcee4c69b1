// Package spawn starts child processes that cannot outlive this one.
//
// Linux sends a parent-death signal when the *thread* that forked the child
// ends, not the process. The Go runtime moves goroutines between threads and
// may end one, so a child started from an arbitrary goroutine can be killed
// while its parent is well. Start forks every child from one thread that lives
// as long as the process.
//
// It imports the standard library only.
package spawn

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

var (
	once     sync.Once
	requests = make(chan request)
)

type request struct {
	cmd  *exec.Cmd
	done chan error
}

// Start starts cmd with SIGKILL as its parent-death signal. The caller waits
// for cmd as usual. Other fields of cmd.SysProcAttr are kept.
func Start(cmd *exec.Cmd) error {
	once.Do(func() { go serve() })
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	r := request{cmd: cmd, done: make(chan error, 1)}
	requests <- r
	return <-r.done
}

// serve never returns: its thread is the parent of every child.
func serve() {
	runtime.LockOSThread()
	for r := range requests {
		r.done <- r.cmd.Start()
	}
}
