package toolbox_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"belay.dev/belay/internal/runtime/tools"
	"belay.dev/belay/internal/toolbox"
)

// serveEnv makes the test binary a toolbox: its value is a JSON Config.
const serveEnv = "TOOLBOX_TEST_SERVE"

// dialEnv makes the test binary a client that says whether it got through.
const dialEnv = "TOOLBOX_TEST_DIAL"

// TestMain lets the test binary stand in for the toolbox program, so that the
// tests run against a real process that can be killed.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == toolbox.LimitedCommand {
		fmt.Fprintln(os.Stderr, toolbox.RunLimited(os.Args[2:]))
		os.Exit(1)
	}
	if socket := os.Getenv(dialEnv); socket != "" {
		_, err := tools.Dial(context.Background(), socket, 1<<40)
		fmt.Println("dial:", err)
		os.Exit(0)
	}
	if raw := os.Getenv(serveEnv); raw != "" {
		var config toolbox.Config
		if err := json.Unmarshal([]byte(raw), &config); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		go func() { // a test that ends in a panic must leave nothing behind
			_, _ = io.Copy(io.Discard, os.Stdin)
			stop()
		}()
		if err := toolbox.Serve(ctx, config); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		stop()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// workspace is a workspace with at most one toolbox process.
type workspace struct {
	t      testing.TB
	dir    string
	config toolbox.Config
	cmd    *exec.Cmd
	exit   chan int // gets the exit code of cmd
}

func newWorkspace(t testing.TB) *workspace {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	run, err := os.MkdirTemp("", "tb") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	return &workspace{t: t, dir: dir, config: toolbox.Config{
		Socket: filepath.Join(run, "s"), Workspace: dir, Epoch: 1, AllowShell: true, ClientUID: -1,
		TermGrace: 200 * time.Millisecond,
	}}
}

// start starts the toolbox process and waits for its socket.
func (w *workspace) start() {
	w.t.Helper()
	if out, err := w.tryStart(); err != nil {
		w.t.Fatalf("toolbox did not start: %v\n%s", err, out)
	}
}

func (w *workspace) tryStart() (string, error) {
	w.t.Helper()
	raw, err := json.Marshal(w.config)
	if err != nil {
		w.t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serveEnv+"="+string(raw), "SECRET_OF_TOOLBOX=hunter2")
	cmd.Stderr = &stderr
	if _, err := cmd.StdinPipe(); err != nil {
		return "", err
	}
	_ = os.Remove(w.config.Socket)
	if err := cmd.Start(); err != nil {
		return "", err
	}
	ended, exit := make(chan error, 1), make(chan int, 1)
	go func() {
		err := cmd.Wait()
		exit <- cmd.ProcessState.ExitCode()
		ended <- err
	}()
	deadline := time.After(20 * time.Second)
	for {
		select {
		case err := <-ended:
			return stderr.String(), fmt.Errorf("ended: %w", err)
		case <-deadline:
			_ = cmd.Process.Kill()
			<-ended
			return stderr.String(), fmt.Errorf("no socket")
		case <-time.After(2 * time.Millisecond):
		}
		if _, err := os.Stat(w.config.Socket); err == nil {
			w.cmd, w.exit = cmd, exit
			w.t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
			return "", nil
		}
	}
}

// kill ends the toolbox as a crash does, and waits for its end.
func (w *workspace) kill() {
	w.t.Helper()
	pid := w.cmd.Process.Pid
	if err := w.cmd.Process.Kill(); err != nil {
		w.t.Fatal(err)
	}
	eventually(w.t, "the toolbox has ended", func() bool { return !alive(pid) })
}

func (w *workspace) path(name string) string { return filepath.Join(w.dir, name) }

// lines counts the lines of a file of the workspace; 0 if there is none.
func (w *workspace) lines(name string) int {
	raw, err := os.ReadFile(w.path(name))
	if err != nil {
		return 0
	}
	return strings.Count(string(raw), "\n")
}

func (w *workspace) dial() *tools.Client {
	w.t.Helper()
	client, err := tools.Dial(w.t.Context(), w.config.Socket, w.config.Epoch)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = client.Close() })
	return client
}

var callCounter atomic.Int64

func newCallID() string { return fmt.Sprintf("Call%05d", callCounter.Add(1)) }

func newCall(tool string, arguments map[string]any) tools.Call {
	raw, err := json.Marshal(arguments)
	if err != nil {
		panic(err)
	}
	return tools.Call{ID: newCallID(), Attempt: 1, Tool: tool, Arguments: raw}
}

func shell(command string) tools.Call {
	return newCall("shell", map[string]any{"command": command})
}

// eventually polls until the condition holds.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for !condition() {
		select {
		case <-deadline:
			t.Fatalf("not in time: %s", what)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// alive reports whether a process exists and is no zombie.
func alive(pid int) bool {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	rest := raw[strings.LastIndexByte(string(raw), ')')+1:]
	return strings.Fields(string(rest))[0] != "Z"
}

// pidsIn reads the process ids that a script has written, one a line.
func pidsIn(t testing.TB, path string) []int {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }()
	var pids []int
	for scanner := bufio.NewScanner(file); scanner.Scan(); {
		if pid, err := strconv.Atoi(strings.TrimSpace(scanner.Text())); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
