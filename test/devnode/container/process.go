package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"belay.dev/belay/test/spawn"
)

// Process is a container that was started.
type Process struct {
	cmd     *exec.Cmd
	control *os.File

	mu      sync.Mutex
	probes  map[int]chan probeReply
	nextID  int
	closed  bool
	started chan struct{} // closed when the command runs or never will
	done    chan struct{} // closed when the container is gone
	exit    Exit
}

type probeReply struct {
	Code   int
	Output string
}

// Start starts the container that spec describes. Its output goes to stdout and
// stderr until it is gone. The error covers what is wrong with spec or with this
// machine; a command that cannot be run is a container that ended, see
// Exit.StartError.
func Start(spec Spec, stdout, stderr io.Writer) (*Process, error) {
	if err := spec.validate(); err != nil {
		return nil, err
	}
	actions, err := layout(hostTree{}, spec.Files, spec.Mounts)
	if err != nil {
		return nil, err
	}
	order, err := json.Marshal(stageOrder{Spec: spec, Actions: actions, Rootless: os.Geteuid() != 0})
	if err != nil {
		return nil, fmt.Errorf("encode the container's order: %w", err)
	}

	controlChild, control, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("control pipe: %w", err)
	}
	defer func() { _ = controlChild.Close() }()
	report, reportChild, err := os.Pipe()
	if err != nil {
		_ = control.Close()
		return nil, fmt.Errorf("report pipe: %w", err)
	}
	defer func() { _ = reportChild.Close() }()

	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{stageName}
	// Nothing of this program's environment: it may hold credentials.
	cmd.Env = []string{"GOMAXPROCS=2", "GOTRACEBACK=single"}
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.ExtraFiles = []*os.File{controlChild, reportChild}
	cmd.SysProcAttr = namespaces()

	p := &Process{
		cmd: cmd, control: control,
		probes:  map[int]chan probeReply{},
		started: make(chan struct{}),
		done:    make(chan struct{}),
	}
	if err := spawn.Start(cmd); err != nil {
		_ = control.Close()
		_ = report.Close()
		return nil, explainStart(err)
	}
	go p.run(report, order)
	return p, nil
}

// namespaces are the ones every container gets of its own.
func namespaces() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		Setsid:     true, // no terminal signal reaches a container
	}
	if uid, gid := os.Geteuid(), os.Getegid(); uid != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}}
	}
	return attr
}

func explainStart(err error) error {
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("create the container's namespaces: %w; run as root, or allow unprivileged user namespaces "+
			"(user.max_user_namespaces, kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns)", err)
	}
	return fmt.Errorf("start the container's process 1: %w", err)
}

// run owns the container until it is gone.
func (p *Process) run(report *os.File, order []byte) {
	var startError error
	var startedAt time.Time
	reports := make(chan struct{})
	go func() {
		defer close(reports)
		defer func() { _ = report.Close() }()
		dec := json.NewDecoder(report)
		for {
			var r stageReport
			if dec.Decode(&r) != nil {
				return
			}
			switch {
			case r.Error != "":
				startError = errors.New(r.Error)
			case r.Started:
				startedAt = time.Now()
				p.mu.Lock()
				p.exit.StartedAt = startedAt
				p.mu.Unlock()
				close(p.started)
			default:
				p.answer(r.Probe, probeReply{Code: r.Code, Output: r.Output})
			}
		}
	}()
	// The process may die before it has read all of its order.
	_, writeErr := p.control.Write(append(order, '\n'))

	waitErr := p.cmd.Wait()
	<-reports

	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	_ = p.control.Close() // the process at its other end is gone
	for id, c := range p.probes {
		close(c)
		delete(p.probes, id)
	}
	p.exit.FinishedAt = time.Now()
	switch {
	case startError != nil:
		p.exit.Code, p.exit.StartError = 128, startError
	case startedAt.IsZero() && !killed(p.cmd.ProcessState):
		p.exit.Code = 128
		p.exit.StartError = fmt.Errorf("the container's process 1 ended before the command started: %w", errors.Join(waitErr, writeErr))
	default:
		p.exit.Code = exitCode(p.cmd.ProcessState)
	}
	if startedAt.IsZero() {
		p.exit.StartedAt = p.exit.FinishedAt
		close(p.started)
	}
	close(p.done)
}

func killed(s *os.ProcessState) bool {
	ws, ok := s.Sys().(syscall.WaitStatus)
	return ok && ws.Signaled()
}

func exitCode(s *os.ProcessState) int {
	if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return s.ExitCode()
}

// Started is closed once the command runs, or once it is known that it never
// will: Done is closed too then.
func (p *Process) Started() <-chan struct{} { return p.started }

// Done is closed when no process of the container is left and its output was
// delivered.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit says how the container ended. It is meaningful once Done is closed;
// before, only StartedAt is set, and that once Started is closed.
func (p *Process) Exit() Exit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exit
}

// Pid is the process id, on the host, of the container's process 1.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Signal sends sig to the container's command, as a container runtime does.
func (p *Process) Signal(sig syscall.Signal) {
	p.send(stageCommand{Signal: int(sig)})
}

// Kill ends every process of the container at once with SIGKILL.
func (p *Process) Kill() {
	// The kernel kills a pid namespace with its process 1. An error means that
	// it has ended already.
	_ = p.cmd.Process.Kill()
}

func (p *Process) send(c stageCommand) bool {
	line, err := json.Marshal(c)
	if err != nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	_, err = p.control.Write(append(line, '\n'))
	return err == nil
}

// Exec runs another command in the container, as the container's user with its
// environment, and returns its exit code and the start of its output. The
// command is killed when ctx ends.
func (p *Process) Exec(ctx context.Context, args []string) (code int, output string, err error) {
	select {
	case <-p.started:
	case <-ctx.Done():
		return 0, "", ctx.Err()
	}
	reply := make(chan probeReply, 1)
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return 0, "", errors.New("the container has ended")
	}
	p.nextID++
	id := p.nextID
	p.probes[id] = reply
	p.mu.Unlock()
	p.send(stageCommand{Probe: id, Args: args})
	select {
	case r, ok := <-reply:
		if !ok {
			return 0, "", errors.New("the container ended while " + strconv.Quote(args[0]) + " ran in it")
		}
		return r.Code, r.Output, nil
	case <-ctx.Done():
		p.mu.Lock()
		delete(p.probes, id)
		p.mu.Unlock()
		p.send(stageCommand{Probe: id, Signal: int(syscall.SIGKILL)})
		return 0, "", fmt.Errorf("run %q in the container: %w", args[0], context.Cause(ctx))
	}
}

func (p *Process) answer(id int, r probeReply) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c, ok := p.probes[id]; ok {
		c <- r
		delete(p.probes, id)
	}
}
