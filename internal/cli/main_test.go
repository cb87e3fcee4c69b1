package cli

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"belay.dev/belay/internal/chaos"
)

// program is a copy of the test binary that acts as belay. A name tells the two apart, since the tool server is started
// from the program's path with a scrubbed environment.
var program string

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "belay" {
		os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	dir, err := os.MkdirTemp("", "belay-cli-test-")
	if err != nil {
		panic(err)
	}
	program = filepath.Join(dir, "belay")
	self, err := os.Executable()
	if err == nil {
		var data []byte
		if data, err = os.ReadFile(self); err == nil {
			err = os.WriteFile(program, data, 0o755)
		}
	}
	if err != nil {
		panic(err)
	}
	// The tests wait for processes far more than they compute.
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	// The race detector delays the end of every process by a second, by default.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// patience bounds every wait of a test; no wait takes it on a machine that works.
const patience = 40 * time.Second

// world is a folder with manifests, and the providers that they name.
type world struct {
	t      *testing.T
	dir    string
	server *chaos.Server
	url    string
}

const manifests = `
apiVersion: agents.belay.dev/v1alpha1
kind: RouteLadder
metadata: {name: demo}
spec:
  providers:
  - {name: primary, dialect: OpenAIChat, baseURL: "ENDPOINT/primary/v1", insecure: Loopback, credential: {secretRef: {name: keys, key: primary}}}
  - {name: backup, dialect: OpenAIChat, baseURL: "ENDPOINT/backup/v1", insecure: Loopback, credential: {secretRef: {name: keys, key: backup}}}
  legs:
  - {name: a, provider: primary, model: m1, contextWindow: 128000, price: {inputMicroUSDPerMTok: 2000000, outputMicroUSDPerMTok: 10000000}}
  - {name: b, provider: backup, model: m2, contextWindow: 128000, price: {inputMicroUSDPerMTok: 1000000, outputMicroUSDPerMTok: 5000000}}
---
apiVersion: v1
kind: Secret
metadata: {name: keys}
stringData: {primary: key-of-the-primary, backup: key-of-the-backup}
---
apiVersion: agents.belay.dev/v1alpha1
kind: AgentRun
metadata: {name: r}
spec:
  ladderRef: {name: demo}
  task: do the work
  routing: {metered: Allow}
`

// newWorld serves the script and writes the manifests.
func newWorld(t *testing.T, script string) *world {
	t.Helper()
	parsed, err := chaos.ParseScript([]byte(script))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := chaos.NewServer(parsed, chaos.Options{Listener: listener, Seed: 1})
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = server.Shutdown(ctx)
	})
	w := &world{t: t, dir: t.TempDir(), server: server, url: "http://" + listener.Addr().String()}
	w.write("m.yaml", strings.ReplaceAll(manifests, "ENDPOINT", w.url))
	return w
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

func (w *world) write(name, text string) {
	w.t.Helper()
	if err := os.MkdirAll(filepath.Dir(w.path(name)), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(w.path(name), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) read(name string) string {
	w.t.Helper()
	data, err := os.ReadFile(w.path(name))
	if err != nil {
		w.t.Fatal(err)
	}
	return string(data)
}

// edit replaces a text of the manifests that must be there.
func (w *world) edit(old, new string) {
	w.t.Helper()
	text := w.read("m.yaml")
	if !strings.Contains(text, old) {
		w.t.Fatalf("the manifests have no %q", old)
	}
	w.write("m.yaml", strings.ReplaceAll(text, old, new))
}

// asked counts the requests that reached a leg.
func (w *world) asked(leg string) int { return w.server.Bill()[leg].Requests }

// process is a started belay.
type process struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr output
	ended          chan struct{}
}

type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// command prepares belay in the world's folder.
func (w *world) command(args ...string) *process {
	w.t.Helper()
	p := &process{t: w.t, cmd: exec.Command(program, args...), ended: make(chan struct{})}
	p.cmd.Dir = w.dir
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	return p
}

func (p *process) start() *process {
	p.t.Helper()
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait()
	}()
	p.t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
	})
	return p
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// wait returns the exit code.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatalf("belay %s does not end; stderr:\n%s", strings.Join(p.cmd.Args[1:], " "), p.stderr.String())
	}
	return p.cmd.ProcessState.ExitCode()
}

// belay runs the command to its end.
func (w *world) belay(args ...string) *process {
	w.t.Helper()
	p := w.command(args...).start()
	p.wait()
	return p
}

var runArgs = []string{"run", "-f", "m.yaml", "--data-dir", "data", "--workspace", "ws", "--ballast-bytes", "0"}

// ledgerDir is where the run of the manifests keeps its ledger.
const runLedger = "data/default/r"

func (w *world) run(args ...string) *process {
	w.t.Helper()
	return w.belay(append(append([]string(nil), runArgs...), args...)...)
}

func (w *world) startRun(args ...string) *process {
	w.t.Helper()
	return w.command(append(append([]string(nil), runArgs...), args...)...).start()
}

// must checks the exit code and what stderr says.
func (p *process) must(code Code, says ...string) *process {
	p.t.Helper()
	if got := p.wait(); got != int(code) {
		p.t.Fatalf("exit code %d, want %d; stdout:\n%s\nstderr:\n%s", got, code, p.stdout.String(), p.stderr.String())
	}
	for _, s := range says {
		if !strings.Contains(p.stderr.String(), s) {
			p.t.Errorf("stderr does not say %q:\n%s", s, p.stderr.String())
		}
	}
	return p
}

func (p *process) answers(want string) *process {
	p.t.Helper()
	if got := p.stdout.String(); got != want {
		p.t.Errorf("stdout is %q, want %q", got, want)
	}
	return p
}

// eventually polls until the condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-deadline:
			t.Fatalf("never came true: %s", what)
		case <-tick.C:
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, os.ErrNotExist)
}

// processesOf are the processes that work in a directory or were started for it.
func processesOf(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, e := range entries {
		cmdline, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		cwd, _ := os.Readlink(filepath.Join("/proc", e.Name(), "cwd"))
		if len(cmdline) > 0 && (cwd == dir || strings.HasPrefix(cwd, dir+"/") || bytes.Contains(cmdline, []byte(dir+"\x00"))) {
			found = append(found, fmt.Sprintf("%s: %s", e.Name(), bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '})))
		}
	}
	return found
}
