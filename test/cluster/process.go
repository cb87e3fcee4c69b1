package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"belay.dev/belay/test/spawn"
)

const readyPoll = 100 * time.Millisecond

// process is a child with its output in a file.
type process struct {
	cmd   *exec.Cmd
	log   string
	ended chan struct{}
	err   error
}

// startProcess starts a program that ends with this one.
func startProcess(program string, args, env []string, log string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(program, args...), log: log, ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if err := spawn.Start(p.cmd); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", program, err), out.Close())
	}
	go func() {
		p.err = errors.Join(p.cmd.Wait(), out.Close())
		close(p.ended)
	}()
	return p, nil
}

// ready waits until the URL answers 200.
func (p *process) ready(ctx context.Context, url string, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	ticker := time.NewTicker(readyPoll)
	defer ticker.Stop()
	for {
		if answers(ctx, url) {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("%s ended at once: %w: %s", filepath.Base(p.cmd.Path), p.err, p.tail())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready after %s: %s", filepath.Base(p.cmd.Path), within, p.tail())
		case <-ticker.C:
		}
	}
}

func answers(ctx context.Context, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	return response.Body.Close() == nil && response.StatusCode == http.StatusOK
}

// tail is the end of the process's output, for an error message.
func (p *process) tail() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(data[max(0, len(data)-2000):]))
}

// stop sends the signal, and SIGKILL when that does not help.
func (p *process) stop(signal syscall.Signal, within time.Duration) error {
	_ = p.cmd.Process.Signal(signal) // fails only when it has ended
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-p.ended:
		return nil
	case <-timer.C:
	}
	_ = p.cmd.Process.Kill() // fails only when it has ended
	<-p.ended
	return fmt.Errorf("%s did not end within %s and was killed", filepath.Base(p.cmd.Path), within)
}

// output runs a command and returns its stdout; its error has the stderr.
func output(cmd *exec.Cmd, input string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w: %s", filepath.Base(cmd.Path), strings.Join(cmd.Args[1:], " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}

// freeAddress is an address of this machine that was free a moment ago.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
