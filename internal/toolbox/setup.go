package toolbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
)

// Setup is one command that prepares a workspace, run to success once.
type Setup struct {
	// Name is the step's name, for messages.
	Name string
	// Marker is the file that says that the step has succeeded.
	Marker string
	// Command is the program and its arguments.
	Command []string
	// Dir is the working directory; empty is the process's own.
	Dir string
	// Env is the command's environment; nil is the process's own.
	Env            []string
	Stdout, Stderr io.Writer
}

// The exit codes of a command that could not be started, as shells give them.
const (
	exitCannotRun = 126
	exitNotFound  = 127
)

// ran is the content of a marker.
type ran struct {
	Step    string   `json:"step"`
	Command []string `json:"command"`
}

// Run runs the step unless its marker is there, and leaves the marker durably when it has succeeded. It returns the exit
// code of the command. An error means that the step's own bookkeeping failed; the command may have run, and will run again.
func (s Setup) Run(ctx context.Context) (int, error) {
	if _, err := os.Stat(s.Marker); err == nil {
		return 0, nil
	} else if !errors.Is(err, os.ErrNotExist) {
		return 1, fmt.Errorf("setup %s: %w", s.Name, err)
	}
	if code, err := s.run(ctx); code != 0 || err != nil {
		return code, err
	}
	dir := filepath.Dir(s.Marker)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 1, fmt.Errorf("setup %s succeeded, but its marker cannot be written: %w", s.Name, err)
	}
	if err := writeDurably(dir, filepath.Base(s.Marker), ran{Step: s.Name, Command: s.Command}); err != nil {
		return 1, fmt.Errorf("setup %s succeeded, but its marker cannot be written: %w", s.Name, err)
	}
	return 0, nil
}

func (s Setup) run(ctx context.Context) (int, error) {
	if len(s.Command) == 0 {
		return 1, fmt.Errorf("setup %s: no command", s.Name)
	}
	cmd := exec.CommandContext(ctx, s.Command[0], s.Command[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = s.Dir, s.Env, s.Stdout, s.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		code := exitCannotRun
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			code = exitNotFound
		}
		return code, fmt.Errorf("setup %s: start %s: %w", s.Name, s.Command[0], err)
	}
	done := make(chan struct{})
	forwarded := make(chan struct{})
	go func() {
		defer close(forwarded)
		for {
			select {
			case sig := <-signals:
				_ = cmd.Process.Signal(sig) // fails only when the process has just ended
			case <-done:
				return
			}
		}
	}()
	err := cmd.Wait()
	close(done)
	<-forwarded
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return 128 + int(status.Signal()), nil
		}
		return exit.ExitCode(), nil
	}
	if err != nil {
		return 1, fmt.Errorf("setup %s: %w", s.Name, err)
	}
	return 0, nil
}
