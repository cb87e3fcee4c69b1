package toolbox

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// Tags in the environment of every process of a job.
const (
	tagCall  = "BELAY_CALL_ID"
	tagBoot  = "BELAY_BOOT_ID"
	tagSpool = "BELAY_SPOOL_ID"
)

// jobOOMScore makes the kernel end a job before the toolbox when memory runs out.
const jobOOMScore = "500"

// launcher starts commands from one OS thread that lives as long as itself. A
// command's parent-death signal is sent when the thread that started it ends,
// not the process; the Go runtime ends threads as it likes.
type launcher struct {
	work chan func()
	done chan struct{}

	// mu is held while a child is started and while orphans are reaped, so that
	// a child is registered before anybody could reap it.
	mu       sync.Mutex
	children map[int]struct{}
}

func newLauncher() (*launcher, error) {
	if err := becomeReaper(); err != nil {
		return nil, err
	}
	l := &launcher{work: make(chan func()), done: make(chan struct{}), children: make(map[int]struct{})}
	go func() {
		defer close(l.done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for task := range l.work {
			task()
		}
	}()
	return l, nil
}

// stop ends the thread and with it every child that still lives.
func (l *launcher) stop() {
	close(l.work)
	<-l.done
}

// start starts cmd as the leader of a session of its own. The caller calls
// wait exactly once.
func (l *launcher) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = leaderAttributes()
	result := make(chan error, 1)
	l.work <- func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		err := cmd.Start()
		if err == nil {
			l.children[cmd.Process.Pid] = struct{}{}
			// Best effort: raising one's own children's score needs no privilege.
			_ = os.WriteFile("/proc/"+strconv.Itoa(cmd.Process.Pid)+"/oom_score_adj", []byte(jobOOMScore), 0)
		}
		result <- err
	}
	return <-result
}

func (l *launcher) wait(cmd *exec.Cmd) error {
	err := cmd.Wait()
	l.mu.Lock()
	delete(l.children, cmd.Process.Pid)
	l.mu.Unlock()
	return err
}

func (l *launcher) isChild(pid int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.children[pid]
	return ok
}

// reap collects the dead among the orphans that this process has inherited.
func (l *launcher) reap() {
	self := os.Getpid()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range scanProcesses() {
		if _, started := l.children[p.pid]; started || p.ppid != self || !p.dead() {
			continue
		}
		var status unix.WaitStatus
		_, _ = unix.Wait4(p.pid, &status, unix.WNOHANG, nil)
	}
}
