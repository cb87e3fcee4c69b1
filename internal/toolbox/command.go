package toolbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"belay.dev/belay/internal/runtime/tools"
)

// Causes for which a command is stopped before its own end.
var (
	errTimeLimit = errors.New("time limit reached")
	errWithdrawn = errors.New("cancelled by the caller")
	errStopping  = errors.New("the workspace is being stopped")
)

// command is one process tree of a job.
type command struct {
	callID  string
	argv    []string
	dir     string
	env     []string
	timeout time.Duration
}

// result is what a command came to.
type result struct {
	state     *os.ProcessState
	stopped   error // why it was ended early, or nil
	output    *outputSpool
	survivors int
	// outputErr says why a part of the output is missing from the spool.
	outputErr error
}

// runCommand runs a command to its end and ends everything that it leaves
// behind. An error means that it was never started.
func (s *Supervisor) runCommand(ctx context.Context, c command) (*result, error) {
	s.commandStarted()
	defer s.commandEnded()
	path := filepath.Join(s.spool.callDir(c.callID), outputFile)
	output, err := newOutputSpool(path, s.config.MaxOutputBytes)
	if err != nil {
		return nil, err
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("output pipe: %w", err), output.Close())
	}
	cmd := exec.Command(c.argv[0], c.argv[1:]...)
	cmd.Dir, cmd.Env = c.dir, c.env
	cmd.Stdout, cmd.Stderr = writer, writer
	if err := s.launcher.start(cmd); err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w", c.argv[0], err), reader.Close(), writer.Close(), output.Close())
	}
	outputErr := writer.Close() // the tree has the only copies now
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(output, reader)
		copied <- err
	}()

	r := &result{output: output}
	leader := cmd.Process.Pid
	ended := make(chan error, 1)
	go func() { ended <- s.launcher.wait(cmd) }()
	waitErr, stopped := s.awaitLeader(ctx, c, leader, ended)
	r.stopped, r.state = stopped, cmd.ProcessState

	r.survivors = s.killTree(c.callID, leader)
	if r.survivors > 0 {
		// They may hold the pipe open for ever.
		outputErr = errors.Join(outputErr, reader.SetReadDeadline(time.Unix(1, 0)))
	}
	if err := <-copied; err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		outputErr = errors.Join(outputErr, err)
	}
	var exit *exec.ExitError
	if waitErr != nil && !errors.As(waitErr, &exit) {
		outputErr = errors.Join(outputErr, waitErr)
	}
	r.outputErr = errors.Join(outputErr, reader.Close(), output.Close(), output.err)
	return r, nil
}

// awaitLeader waits for the command's first process. At its time limit or when
// ctx ends it asks the process group to end, and kills it after the grace.
func (s *Supervisor) awaitLeader(ctx context.Context, c command, leader int, ended <-chan error) (waitErr, stopped error) {
	timer := s.config.Clock.NewTimer(c.timeout)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err, nil
	case <-timer.C():
		stopped = errTimeLimit
	case <-ctx.Done():
		stopped = context.Cause(ctx)
	}
	if !errors.Is(stopped, errStopping) { // there is no time for courtesy at the end
		_ = unix.Kill(-leader, unix.SIGTERM)
		grace := s.config.Clock.NewTimer(s.config.TermGrace)
		defer grace.Stop()
		select {
		case err := <-ended:
			return err, stopped
		case <-grace.C():
		}
	}
	_ = unix.Kill(-leader, unix.SIGKILL)
	return <-ended, stopped
}

// killTree ends every process of a job: its session, what carries its tag, the
// descendants of both, and orphans that nobody can be told the parent of,
// unless another job might be theirs.
func (s *Supervisor) killTree(callID string, leader int) int {
	find := func() []process {
		all := scanProcesses()
		alone := s.runningCommands() <= 1
		self := os.Getpid()
		return family(all, func(p process) bool {
			switch {
			case p.pid == self || p.dead():
				return false
			case p.session == leader:
				return true
			case p.ppid == self && s.launcher.isChild(p.pid):
				return p.pid == leader
			}
			if call := tagOf(p.pid, tagCall); call != "" {
				return call == callID && tagOf(p.pid, tagSpool) == s.spool.id
			}
			return alone && p.ppid == self
		})
	}
	return killAll(context.Background(), s.config.Clock, find, s.launcher.reap)
}

// describe puts the exit state of a command into an outcome.
func (r *result) describe(outcome *tools.Outcome) {
	if r.state == nil {
		return
	}
	if status, ok := r.state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		outcome.Signal = unix.SignalName(status.Signal())
		return
	}
	code := r.state.ExitCode()
	outcome.ExitCode = &code
}

// outputSpool writes a command's output to its file up to a limit, and keeps
// its beginning and end for the model.
type outputSpool struct {
	file    *os.File
	room    int64
	stored  int64
	excerpt *tools.HeadTail
	err     error
}

func newOutputSpool(path string, limit int64) (*outputSpool, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o660)
	if err != nil {
		return nil, fmt.Errorf("output: %w", err)
	}
	return &outputSpool{file: file, room: limit, excerpt: tools.NewHeadTail(tools.MaxTextBytes - statusRoom)}, nil
}

// statusRoom is kept free in a shell result for the lines about its end.
const statusRoom = 1 << 10

// Write never fails: a full disk must not look like a broken pipe to the
// command, and what is lost is told with its outcome.
func (o *outputSpool) Write(p []byte) (int, error) {
	_, _ = o.excerpt.Write(p)
	if keep := min(o.room, int64(len(p))); keep > 0 && o.err == nil {
		n, err := o.file.Write(p[:keep])
		o.stored += int64(n)
		o.room -= int64(n)
		o.err = err
	}
	return len(p), nil
}

func (o *outputSpool) Close() error { return o.file.Close() }
