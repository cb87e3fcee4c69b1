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

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"belay.dev/belay/internal/runtime/tools"
	"belay.dev/belay/internal/toolbox"
)

const (
	// readyWithin is how long the tool server may take until it answers.
	readyWithin = 15 * time.Second
	readyPoll   = 20 * time.Millisecond
	// stopWithin is how long it may take to end its jobs and itself.
	stopWithin = 10 * time.Second
)

// hideMemory keeps other processes of the same user, such as the commands of the model, from reading this process's
// memory and environment through /proc. It does not hide the files.
func hideMemory() {
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // there is nothing to do about a kernel that refuses
}

// workspace is the tool server of a run, as a child process.
type workspace struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
	dir    string
	client *tools.Client
	tools  []tools.Tool
	ended  chan error
	clock  clock.Clock
}

// startWorkspace starts the tool server and says hello to it. The server dies with this process, and its jobs with it.
func startWorkspace(ctx context.Context, o Options, uid string, epoch uint64) (*workspace, error) {
	dir, err := os.MkdirTemp("", "belay-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the workspace's socket: %w", err)
	}
	w := &workspace{dir: dir, ended: make(chan error, 1), clock: o.Clock}
	socket := filepath.Join(dir, "toolbox.sock")
	w.cmd = exec.Command(o.Program, "toolbox", "--socket", socket, "--workspace", o.Workspace,
		"--epoch", strconv.FormatUint(epoch, 10), "--run", uid, "--shell="+strconv.FormatBool(o.AllowShell))
	w.cmd.Env = scrubbed(o.Workspace)
	w.cmd.Stderr = &w.stderr
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// The tool server ends when its input does: the kernel closes this pipe even if this process is killed.
	_, err = w.cmd.StdinPipe()
	if err == nil {
		err = w.cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the workspace's tool server: %w", err), os.RemoveAll(dir))
	}
	go func() { w.ended <- w.cmd.Wait() }()
	if err := w.connect(ctx, socket, int64(epoch)); err != nil {
		return nil, errors.Join(err, w.stop())
	}
	return w, nil
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
		select {
		case ended := <-w.ended:
			w.ended <- ended
			return fmt.Errorf("the workspace's tool server ended at once: %w: %s", errors.Join(ended, err), bytes.TrimSpace(w.stderr.Bytes()))
		case <-ctx.Done():
			return fmt.Errorf("the workspace's tool server does not answer: %w", err)
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

// setup runs the steps that prepare the workspace, each to success once.
func (j *job) setup(ctx context.Context, o Options, progress *narrator) error {
	if j.run.Spec.Workspace == nil {
		return nil
	}
	dir, err := filepath.Abs(o.Workspace)
	if err != nil {
		return &InputError{fmt.Errorf("--workspace: %w", err)}
	}
	for _, s := range j.run.Spec.Workspace.Setup {
		env := scrubbed(dir)
		for _, e := range s.Env {
			value := ptr.Deref(e.Value, "")
			if e.ValueFrom != nil {
				ref := e.ValueFrom.SecretKeyRef
				if ref == nil {
					return &InputError{fmt.Errorf("AgentRun %s: spec.workspace.setup[%s].env[%s]: without a cluster only value and secretKeyRef work", j.run.Name, s.Name, e.Name)}
				}
				value, _ = j.secrets.Credential(ref.Name, ref.Key)
			}
			env = append(env, e.Name+"="+value)
		}
		var output bytes.Buffer
		step := toolbox.Setup{
			Name: s.Name, Marker: filepath.Join(dir, ".belay", "setup", s.Name), Command: append(append([]string(nil), s.Command...), s.Args...),
			Dir: dir, Env: env, Stdout: &output, Stderr: &output,
		}
		code, err := step.Run(ctx)
		if err == nil && code != 0 {
			err = fmt.Errorf("setup step %s ended with exit code %d: %s", s.Name, code, j.redactor.String(tools.TailText(output.Bytes(), 2048)))
		}
		if err != nil {
			return err
		}
		progress.line("workspace: setup step %s is done", s.Name)
	}
	return nil
}
