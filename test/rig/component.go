package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"belay.dev/belay/test/spawn"
)

// component is one program of the control plane, as a child process.
type component struct {
	name    string
	logPath string
	cmd     *exec.Cmd
	done    chan struct{}
	err     error // set before done is closed
}

// errPortTaken says that somebody took a port between its choice and its use.
var errPortTaken = errors.New("a chosen port was taken by another program")

func startComponent(binary, dir string, args ...string) (*component, error) {
	name := filepath.Base(binary)
	c := &component{name: name, logPath: filepath.Join(dir, "logs", name+".log"), done: make(chan struct{})}
	if err := os.MkdirAll(filepath.Dir(c.logPath), 0o700); err != nil {
		return nil, fmt.Errorf("make the log directory: %w", err)
	}
	log, err := os.Create(c.logPath)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", name, err)
	}
	defer func() { _ = log.Close() }() // the component has it open by then
	c.cmd = exec.Command(binary, args...)
	c.cmd.Dir = dir
	c.cmd.Stdout, c.cmd.Stderr = log, log
	// A group of its own: an interrupt at the terminal goes to the caller, who
	// stops the rig in order.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := spawn.Start(c.cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		c.err = c.cmd.Wait()
		close(c.done)
	}()
	return c, nil
}

// exited describes a component that ended by itself.
func (c *component) exited() error {
	tail := c.logTail()
	if bytes.Contains(tail, []byte("address already in use")) {
		return fmt.Errorf("%s: %w", c.name, errPortTaken)
	}
	return fmt.Errorf("%s ended (%w); the end of its log %s:\n%s", c.name, c.err, c.logPath, tail)
}

func (c *component) logTail() []byte {
	data, err := os.ReadFile(c.logPath)
	if err != nil {
		return []byte(err.Error())
	}
	if len(data) > 3000 {
		data = data[len(data)-3000:]
	}
	return bytes.TrimSpace(data)
}

// stop asks the component to end and kills it when it has not within grace.
func (c *component) stop(grace time.Duration) {
	select {
	case <-c.done:
		return
	default:
	}
	// Errors here mean that the process has ended.
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.done:
	case <-time.After(grace):
		_ = c.cmd.Process.Kill()
		<-c.done
	}
}

// await polls ok until it returns nil. It fails when ctx ends or the component
// does.
func (c *component) await(ctx context.Context, what string, ok func(context.Context) error) error {
	for {
		err := ok(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-c.done:
			return c.exited()
		case <-ctx.Done():
			return fmt.Errorf("%s: %s: last answer: %w; the end of its log %s:\n%s", c.name, what, err, c.logPath, c.logTail())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// findBinaries returns the directory's control plane programs by name.
func findBinaries(dir string, names ...string) (map[string]string, error) {
	if dir == "" {
		return nil, errors.New("no directory of control plane programs: set KUBEBUILDER_ASSETS, hack/assets.sh prints one")
	}
	found := map[string]string{}
	var missing []string
	for _, name := range names {
		p := filepath.Join(dir, name)
		if info, err := os.Stat(p); err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			missing = append(missing, name)
			continue
		}
		found[name] = p
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("%s lacks the programs %s; hack/assets.sh builds them and prints their directory", dir, strings.Join(missing, ", "))
	}
	return found, nil
}
