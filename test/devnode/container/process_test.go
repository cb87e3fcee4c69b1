package container

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"belay.dev/belay/test/poll"
)

// output collects what a container writes.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

func shell(t *testing.T, script string) Spec {
	t.Helper()
	return Spec{
		Hostname: "pod-1", Root: t.TempDir(), Files: HostFiles(),
		Args: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"},
		UID: 65533, GID: 65533, NoNewPrivileges: true,
	}
}

func start(t *testing.T, spec Spec) (*Process, *output) {
	t.Helper()
	out := &output{}
	p, err := Start(spec, out, out)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		<-p.Done()
	})
	return p, out
}

func wait(t *testing.T, p *Process) Exit {
	t.Helper()
	select {
	case <-p.Done():
		return p.Exit()
	case <-time.After(20 * time.Second):
		t.Fatal("the container did not end within 20 s")
		return Exit{}
	}
}

func run(t *testing.T, spec Spec) (Exit, string) {
	t.Helper()
	p, out := start(t, spec)
	return wait(t, p), out.String()
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	poll.Until(t, 10*time.Second, what, func() error {
		if !ok() {
			return errors.New("it is not so")
		}
		return nil
	})
}

func TestExitCodeIsTheCommands(t *testing.T) {
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -9 $$": 137, "kill -15 $$": 143} {
		exit, out := run(t, shell(t, script))
		if exit.Code != want || exit.StartError != nil {
			t.Errorf("%q ended with %d, %v (%s), want %d", script, exit.Code, exit.StartError, out, want)
		}
		if exit.StartedAt.IsZero() || exit.FinishedAt.Before(exit.StartedAt) {
			t.Errorf("%q ran from %v to %v", script, exit.StartedAt, exit.FinishedAt)
		}
	}
}

func TestMissingCommandIsAStartError(t *testing.T) {
	spec := shell(t, "")
	spec.Args = []string{"no-such-program"}
	exit, _ := run(t, spec)
	if exit.Code != 128 || exit.StartError == nil {
		t.Fatalf("got %+v, want code 128 and a start error", exit)
	}
	if got := exit.StartError.Error(); !strings.Contains(got, `exec: "no-such-program": executable file not found in $PATH`) {
		t.Errorf("the error does not name the program: %s", got)
	}
}

func TestContainerHasItsOwnIdentityAndNamespaces(t *testing.T) {
	spec := shell(t, `id -u; id -g; hostname; echo $$; ls -d /proc/[0-9]*; ls /; grep NoNewPrivs /proc/self/status; grep -E "CapBnd|CapEff" /proc/self/status`)
	if os.Geteuid() == 0 {
		spec.Groups = []int{65532}
	}
	exit, out := run(t, spec)
	if exit.Code != 0 {
		t.Fatalf("ended with %d: %s", exit.Code, out)
	}
	lines := strings.Fields(out)
	if lines[0] != "65533" || lines[1] != "65533" || lines[2] != "pod-1" {
		t.Errorf("identity is %v, want 65533 65533 pod-1", lines[:3])
	}
	if strings.Contains(out, "\n/proc/"+strconv.Itoa(os.Getpid())+"\n") || len(strings.Split(out, "/proc/")) > 5 {
		t.Errorf("processes of the host are visible:\n%s", out)
	}
	for _, hidden := range []string{"root", "home", "var", "run", "work"} {
		if strings.Contains(out, "\n"+hidden+"\n") {
			t.Errorf("/%s of the host is visible", hidden)
		}
	}
	// A user namespace gives a full bounding set that counts only inside it.
	bounded := os.Geteuid() != 0 || strings.Contains(out, "CapBnd:\t0000000000000000")
	if !strings.Contains(out, "NoNewPrivs:\t1") || !strings.Contains(out, "CapEff:\t0000000000000000") || !bounded {
		t.Errorf("privileges are left:\n%s", out)
	}
}

func TestMountsAreRealPathsAndHonourReadOnly(t *testing.T) {
	ledger, secret := t.TempDir(), t.TempDir()
	open(t, ledger)
	if err := os.WriteFile(filepath.Join(secret, "key"), []byte("s3cret"), 0o644); err != nil {
		t.Fatal(err)
	}
	open(t, secret)
	spec := shell(t, `cat /belay/credentials/keys/key; echo one > /belay/ledger/log; echo two > /belay/credentials/keys/x || echo refused; touch /usr/x || echo refused`)
	spec.Mounts = []Mount{
		{Source: ledger, Target: "/belay/ledger"},
		{Source: secret, Target: "/belay/credentials/keys", ReadOnly: true},
	}
	_, out := run(t, spec)
	if !strings.HasPrefix(out, "s3cret") || strings.Count(out, "refused") != 2 {
		t.Errorf("got %q", out)
	}
	if data, err := os.ReadFile(filepath.Join(ledger, "log")); err != nil || string(data) != "one\n" {
		t.Errorf("the ledger holds %q, %v", data, err)
	}
}

func TestReadOnlyRootLeavesOnlyTheVolumesWritable(t *testing.T) {
	vol := t.TempDir()
	open(t, vol)
	spec := shell(t, `touch /x || echo refused; touch /tmp/x || echo refused; touch /vol/x && echo written`)
	spec.ReadOnlyRoot = true
	spec.Mounts = []Mount{{Source: vol, Target: "/vol"}}
	_, out := run(t, spec)
	if strings.Count(out, "refused") != 2 || !strings.Contains(out, "written") {
		t.Errorf("got %q", out)
	}
	spec = shell(t, `touch /tmp/x && echo written`)
	if _, out := run(t, spec); out != "written\n" {
		t.Errorf("/tmp without a read-only root: %q", out)
	}
}

// open lets every user write to dir.
func open(t *testing.T, dir string) {
	t.Helper()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
}

func TestSignalReachesTheCommandAndKillEndsEveryProcess(t *testing.T) {
	p, out := start(t, shell(t, `trap 'echo asked; exit 3' TERM; echo ready; while :; do sleep 0.05; done`))
	eventually(t, "the command is ready", func() bool { return strings.Contains(out.String(), "ready") })
	p.Signal(syscall.SIGTERM)
	if exit := wait(t, p); exit.Code != 3 || !strings.Contains(out.String(), "asked") {
		t.Errorf("after SIGTERM: code %d, output %q", exit.Code, out)
	}

	mark := "77" + strconv.Itoa(os.Getpid())
	p, out = start(t, shell(t, `trap '' TERM; setsid sleep `+mark+` & sleep `+mark+` & echo ready; wait`))
	eventually(t, "the command is ready", func() bool { return strings.Contains(out.String(), "ready") })
	p.Kill()
	if exit := wait(t, p); exit.Code != 137 {
		t.Errorf("after SIGKILL: code %d, want 137", exit.Code)
	}
	if left, _ := exec.Command("pgrep", "-f", "sleep "+mark).Output(); len(left) > 0 {
		t.Errorf("processes are left: %s", left)
	}
}

func TestOrphansAreReaped(t *testing.T) {
	exit, out := run(t, shell(t, `for i in 1 2 3; do sh -c 'sleep 0.01 & exit'; done; sleep 0.2; grep -l 'State:.Z' /proc/[0-9]*/status || echo none`))
	if exit.Code != 0 || !strings.Contains(out, "none") {
		t.Errorf("zombies are left: %q", out)
	}
}

func TestExecRunsInsideTheContainer(t *testing.T) {
	p, _ := start(t, shell(t, `echo here > /tmp/mark; sleep 60`))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	eventually(t, "the mark is written", func() bool {
		code, _, err := p.Exec(ctx, []string{"test", "-s", "/tmp/mark"})
		if err != nil {
			t.Fatal(err)
		}
		return code == 0
	})
	code, text, err := p.Exec(ctx, []string{"sh", "-c", "cat /tmp/mark; id -u; exit 5"})
	if err != nil || code != 5 || text != "here\n65533\n" {
		t.Errorf("got %d, %q, %v", code, text, err)
	}
	short, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if _, _, err := p.Exec(short, []string{"sleep", "60"}); err == nil {
		t.Error("a command that outlives its deadline is no error")
	}
	eventually(t, "the late command is killed", func() bool {
		_, text, _ := p.Exec(ctx, []string{"pgrep", "-c", "sleep"})
		return text == "1\n"
	})
}

func TestWhatAMountCannotHideIsRefused(t *testing.T) {
	image := t.TempDir()
	if err := os.WriteFile(filepath.Join(image, "belay"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	spec := shell(t, "")
	spec.Files = DirectoryFiles(image)
	spec.Mounts = []Mount{{Source: t.TempDir(), Target: "/belay/ledger"}}
	_, err := Start(spec, nil, nil)
	if err == nil || !strings.Contains(err.Error(), "mount path /belay/ledger: /belay is a file in the image") {
		t.Errorf("got %v", err)
	}
}

func TestARootContainerCannotReachTheHost(t *testing.T) {
	spec := shell(t, `exec 2>/dev/null
mount -t tmpfs x /tmp && echo mounted
mknod /tmp/disk b 254 0 && echo device
echo x > /proc/sys/kernel/core_pattern && echo sysctl
test -e /proc/1/root/work && echo host
cat /etc/shadow && echo shadow
ls -A /dev | tr '\n' ' '`)
	spec.UID, spec.GID, spec.NoNewPrivileges, spec.Capabilities = 0, 0, false, DefaultCapabilities
	if _, out := run(t, spec); out != "fd full null random shm stderr stdin stdout tty urandom zero " {
		t.Errorf("got %q", out)
	}
}
