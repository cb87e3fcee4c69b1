package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"k8s.io/utils/clock"

	"belay.dev/belay/internal/runtime/tools"
)

const (
	// readyWithin is how long the tool server may take until it answers.
	readyWithin = 15 * time.Second
	readyPoll   = 20 * time.Millisecond
	// stopWithin is how long it may take to end its jobs and itself.
	stopWithin = 10 * time.Second
	// longestTempDir leaves room in a socket's path, which has 108 bytes at most, 104 on some systems.
	longestTempDir = 60
)

// workspace is the tool server of a run, as a child process.
type workspace struct {
	cmd *exec.Cmd
	// stderr is read after the process has ended only.
	stderr bytes.Buffer
	// dir holds the socket.
	dir    string
	client *tools.Client
	tools  []tools.Tool
	// ended is closed when the process has ended.
	ended chan struct{}
	clock clock.Clock
}

// startWorkspace starts the tool server and says hello to it. The server dies with this process, and its jobs with it.
func startWorkspace(ctx context.Context, o Options, dir, uid string, epoch uint64) (*workspace, error) {
	sockets, err := socketDir()
	if err != nil {
		return nil, fmt.Errorf("make a folder for the workspace's socket: %w", err)
	}
	w := &workspace{dir: sockets, ended: make(chan struct{}), clock: o.Clock}
	socket := filepath.Join(sockets, "toolbox.sock")
	w.cmd = exec.Command(o.Program, "toolbox", "--socket", socket, "--scratch", sockets, "--workspace", dir,
		"--epoch", strconv.FormatUint(epoch, 10), "--run", uid, "--shell="+strconv.FormatBool(o.AllowShell))
	w.cmd.Env = scrubbed(dir)
	w.cmd.Stderr = &w.stderr
	// A process group of its own keeps the terminal's interrupt from it: it is this process that ends it.
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// The tool server ends when its input does: the kernel closes this pipe even if this process is killed.
	_, err = w.cmd.StdinPipe()
	if err == nil {
		err = w.cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the workspace's tool server: %w", err), os.RemoveAll(sockets))
	}
	go func() {
		defer close(w.ended)
		_ = w.cmd.Wait() // how it ended says less than what it wrote
	}()
	if err := w.connect(ctx, socket, int64(epoch)); err != nil {
		return nil, errors.Join(err, w.stop())
	}
	return w, nil
}

// socketDir makes a folder whose path is short enough for a socket in it.
func socketDir() (string, error) {
	parent := os.TempDir()
	if len(parent) > longestTempDir {
		parent = "/tmp"
	}
	return os.MkdirTemp(parent, "belay-")
}

func (w *workspace) connect(ctx context.Context, socket string, epoch int64) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	ticker := time.NewTicker(readyPoll)
	defer ticker.Stop()
	for {
		client, err := tools.Dial(ctx, socket, epoch)
		if err == nil {
			w.client = client
			w.tools, err = client.Tools(ctx)
			return err
		}
		if errors.Is(err, tools.ErrFenced) {
			return err
		}
		select {
		case <-w.ended:
			return fmt.Errorf("the workspace's tool server ended at once (%s): %s", w.cmd.ProcessState, bytes.TrimSpace(w.stderr.Bytes()))
		case <-ctx.Done():
			return fmt.Errorf("the workspace's tool server does not answer: %w", errors.Join(context.Cause(ctx), err))
		case <-ticker.C:
		}
	}
}

// stop ends the tool server and waits for it.
func (w *workspace) stop() error {
	var err error
	if w.client != nil {
		err = w.client.Close()
	}
	_ = w.cmd.Process.Signal(syscall.SIGTERM) // fails only when it has ended
	timer := w.clock.NewTimer(stopWithin)
	defer timer.Stop()
	select {
	case <-w.ended:
	case <-timer.C():
		_ = w.cmd.Process.Kill() // fails only when it has ended
		<-w.ended
	}
	return errors.Join(err, os.RemoveAll(w.dir))
}

// scrubbed is the environment of setup steps and of the tool server: nothing of the user's but where programs are.
func scrubbed(workspace string) []string {
	env := []string{"HOME=" + filepath.Join(workspace, ".home")}
	for _, name := range []string{"PATH", "LANG", "TERM", "TMPDIR"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}
