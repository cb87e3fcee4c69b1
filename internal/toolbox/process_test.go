package toolbox_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"belay.dev/belay/internal/runtime/tools"
)

func TestATimeLimitKillsATreeThatIgnoresSIGTERM(t *testing.T) {
	w := newWorkspace(t)
	w.start()
	client := w.dial()
	call := shell(`trap '' TERM
		for i in 1 2 3; do
			sh -c 'trap "" TERM; echo $$ >> pids; sh -c "trap \"\" TERM; echo \$\$ >> pids; sleep 1000" & sleep 1000' &
		done
		echo before; wait`)
	call.Timeout = time.Second
	began := time.Now()
	got := client.Call(t.Context(), call)
	if got.Status != tools.Timeout || got.ErrorKind != tools.KindTimeout || !strings.HasPrefix(got.Text, "before\n[stopped after its time limit of 1s") {
		t.Errorf("got %+v", got)
	}
	if took := time.Since(began); took < time.Second || took > 8*time.Second {
		t.Errorf("took %v", took)
	}
	pids := pidsIn(t, w.path("pids"))
	if len(pids) != 6 {
		t.Fatalf("%d processes reported, want 6", len(pids))
	}
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d is alive after its call", pid)
		}
	}
}

func TestTheModelsTimeLimitHoldsWithinTheRuns(t *testing.T) {
	w := newWorkspace(t)
	w.start()
	client := w.dial()
	for name, test := range map[string]struct {
		seconds int
		allowed time.Duration
		want    string
	}{
		"asked for less than allowed": {1, time.Minute, "time limit of 1s"},
		"asked for more than allowed": {600, 300 * time.Millisecond, "time limit of 300ms"},
	} {
		call := newCall("shell", map[string]any{"command": "sleep 1000", "timeoutSeconds": test.seconds})
		call.Timeout = test.allowed
		if got := client.Call(t.Context(), call); got.Status != tools.Timeout || !strings.Contains(got.Text, test.want) {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestNoProcessOutlivesItsCall(t *testing.T) {
	tests := map[string]string{
		"background child":                          "sleep 1000 & echo $! >> pids",
		"own session":                               "setsid sh -c 'echo $$ >> pids; exec sleep 1000' & until [ -s pids ]; do sleep 0.01; done",
		"double fork, orphaned":                     "(setsid sh -c 'echo $$ >> pids; exec sleep 1000' &) ; until [ -s pids ]; do sleep 0.01; done",
		"orphan without the tag":                    "(env -i PATH=$PATH sh -c 'echo $$ >> pids; exec sleep 1000' &) ; until [ -s pids ]; do sleep 0.01; done",
		"orphan without the tag in its own session": "(env -i PATH=$PATH setsid sh -c 'echo $$ >> pids; exec sleep 1000' &) ; until [ -s pids ]; do sleep 0.01; done",
		"holding the output open":                   "(setsid sh -c 'echo $$ >> pids; while :; do echo noise; sleep 0.01; done' &) ; until [ -s pids ]; do sleep 0.01; done",
	}
	w := newWorkspace(t)
	w.start()
	client := w.dial()
	for name, command := range tests {
		t.Run(name, func(t *testing.T) {
			_ = os.Remove(w.path("pids"))
			if got := client.Call(t.Context(), shell(command)); got.Status != tools.OK {
				t.Fatalf("got %+v", got)
			}
			pids := pidsIn(t, w.path("pids"))
			if len(pids) != 1 {
				t.Fatalf("%d processes reported, want 1", len(pids))
			}
			if alive(pids[0]) {
				t.Errorf("process %d is alive after its call", pids[0])
			}
		})
	}
	eventually(t, "no zombies are left", func() bool { return zombies(t, w.cmd.Process.Pid) == 0 })
}

func TestACallDoesNotEndTheProcessesOfAnother(t *testing.T) {
	for name, orphan := range map[string]string{
		"tagged":   "(setsid sh -c 'echo $$ > pids; exec sleep 1000' &)",
		"untagged": "(env -i PATH=$PATH setsid sh -c 'echo $$ > pids; exec sleep 1000' &)",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkspace(t)
			w.start()
			client := w.dial()
			long := shell(orphan + "; until [ -s pids ]; do sleep 0.01; done; echo x >> sign; until [ -e go ]; do sleep 0.01; done; kill -0 $(cat pids) && echo still there")
			answer := w.begin(client, long, "sign")
			client.Call(t.Context(), shell("true"))
			if err := os.WriteFile(w.path("go"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if got := <-answer; got.Text != "still there\n[exit code 0]" {
				t.Errorf("got %+v", got)
			}
			if pids := pidsIn(t, w.path("pids")); len(pids) != 1 || alive(pids[0]) {
				t.Errorf("processes left by the long call: %v", pids)
			}
		})
	}
}

// zombies counts the dead children that a process has not waited for.
func zombies(t *testing.T, parent int) int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, path := range stats {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
		if fields[0] == "Z" && fields[1] == strconv.Itoa(parent) {
			count++
		}
	}
	return count
}

// peakMemory is the most that a process has had in memory, in bytes.
func peakMemory(t *testing.T, pid int) int {
	t.Helper()
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(raw), "VmHWM:")
	if !ok {
		t.Fatal("no VmHWM")
	}
	kilobytes, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kilobytes << 10
}

func TestALargeOutputIsSpooledInBoundedMemory(t *testing.T) {
	w := newWorkspace(t)
	w.start()
	client := w.dial()
	client.Call(t.Context(), shell("true"))
	before := peakMemory(t, w.cmd.Process.Pid)
	call := shell("echo first; head -c 104857600 /dev/zero | tr '\\0' 'x'; echo; echo last")
	got := client.Call(t.Context(), call)
	if got.Status != tools.OK || len(got.Text) > tools.MaxTextBytes {
		t.Fatalf("status %s, %d bytes of text", got.Status, len(got.Text))
	}
	const total = 104857600 + len("first\n") + len("\nlast\n")
	path := ".belay/spool/" + call.ID + "/output"
	if !strings.HasPrefix(got.Text, "first\nxxx") || !strings.HasSuffix(got.Text, "xxx\nlast\n[exit code 0]") ||
		!strings.Contains(got.Text, " of "+strconv.Itoa(total)+" bytes left out; "+path+" has all of it ...]\n") {
		t.Errorf("text: %.200q ... %.200q", got.Text, got.Text[len(got.Text)-200:])
	}
	if got.Truncated == nil || got.Truncated.TotalBytes != int64(total) || got.Truncated.StoredBytes != int64(total) || got.Truncated.Path != path {
		t.Errorf("truncation: %+v", got.Truncated)
	}
	if info, err := os.Stat(w.path(path)); err != nil || info.Size() != int64(total) {
		t.Errorf("spooled: %v, %v", info, err)
	}
	if grown := peakMemory(t, w.cmd.Process.Pid) - before; grown > 16<<20 {
		t.Errorf("memory grew by %d bytes", grown)
	}
}

func TestOutputBeyondTheLimitIsCountedAndItsEndIsShown(t *testing.T) {
	w := newWorkspace(t)
	w.config.MaxOutputBytes = 100_000
	w.start()
	got := w.dial().Call(t.Context(), shell("head -c 1000000 /dev/zero | tr '\\0' 'x'; echo the end"))
	if got.Truncated == nil || got.Truncated.TotalBytes != 1_000_008 || got.Truncated.StoredBytes != 100_000 {
		t.Fatalf("got %+v", got.Truncated)
	}
	if !strings.Contains(got.Text, "has the first 100000 bytes") || !strings.HasSuffix(got.Text, "the end\n[exit code 0]") {
		t.Errorf("text ends with %.200q", got.Text[len(got.Text)-200:])
	}
	if info, err := os.Stat(w.path(got.Truncated.Path)); err != nil || info.Size() != 100_000 {
		t.Errorf("spooled: %v, %v", info, err)
	}
}

func TestTheOldestOutputGoesFirstAndOutcomesStay(t *testing.T) {
	w := newWorkspace(t)
	w.config.MaxSpoolBytes = 100_000
	w.start()
	client := w.dial()
	var calls []tools.Call
	for range 4 {
		call := shell("head -c 40000 /dev/zero | tr '\\0' 'x'")
		client.Call(t.Context(), call)
		calls = append(calls, call)
	}
	for i, call := range calls {
		_, err := os.Stat(w.path(".belay/spool/" + call.ID + "/output"))
		if kept := err == nil; kept != (i >= 2) { // 2 × 40,000 fit into 100,000
			t.Errorf("output %d is kept: %v", i, kept)
		}
		if state := w.inspect(client, call.ID); state.State != tools.JobFinished {
			t.Errorf("call %d: %+v", i, state)
		}
	}
}

func TestBinaryOutputBecomesValidText(t *testing.T) {
	w := newWorkspace(t)
	w.start()
	got := w.dial().Call(t.Context(), shell(`printf 'a\000b\377c\303'`))
	if got.Text != "a\uFFFDb\uFFFDc\uFFFD\n[exit code 0]" || !utf8.ValidString(got.Text) {
		t.Errorf("got %q", got.Text)
	}
}

func TestCommandsSeeADeclaredEnvironmentOnly(t *testing.T) {
	w := newWorkspace(t)
	w.config.Env = []string{"DECLARED=yes", "PASSED_ON", "NOT_THERE", "BELAY_CALL_ID=forged"}
	t.Setenv("PASSED_ON", "also")
	w.start()
	call := newCall("shell", map[string]any{"command": "env; readlink /proc/self/fd/0", "env": map[string]string{"ADDED": "too", "BELAY_SPOOL_ID": "forged"}})
	got := w.dial().Call(t.Context(), call)
	for _, want := range []string{"HOME=" + w.dir + "/.home\n", "LANG=C.UTF-8\n", "TERM=dumb\n", "DECLARED=yes\n", "PASSED_ON=also\n", "ADDED=too\n", "BELAY_CALL_ID=" + call.ID + "\n", "/dev/null\n"} {
		if !strings.Contains(got.Text, want) {
			t.Errorf("%q is missing in\n%s", want, got.Text)
		}
	}
	for _, unwanted := range []string{"SECRET_OF_TOOLBOX", "hunter2", serveEnv, "forged", "NOT_THERE"} {
		if strings.Contains(got.Text, unwanted) {
			t.Errorf("%q is in\n%s", unwanted, got.Text)
		}
	}
}

func TestTheProcessLimitHoldsForCommands(t *testing.T) {
	w := newWorkspace(t)
	w.config.MaxProcesses = 256
	w.start()
	got := w.dial().Call(t.Context(), shell("grep 'Max processes' /proc/self/limits"))
	fields := strings.Fields(got.Text)
	if len(fields) < 4 || fields[2] != "256" || fields[3] != "256" {
		t.Errorf("got %q", got.Text)
	}
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(w.cmd.Process.Pid) + "/limits")
	if err != nil {
		t.Fatal(err)
	}
	_, own, _ := strings.Cut(string(raw), "Max processes")
	if strings.HasPrefix(strings.TrimSpace(own), "256 ") {
		t.Error("the limit holds for the toolbox itself")
	}
}

func TestACommandRunsInItsDirectory(t *testing.T) {
	w := newWorkspace(t)
	w.start()
	client := w.dial()
	if err := os.Mkdir(w.path("sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	got := client.Call(t.Context(), newCall("shell", map[string]any{"command": "pwd", "cwd": "sub"}))
	if got.Text != w.dir+"/sub\n[exit code 0]" {
		t.Errorf("got %q", got.Text)
	}
	got = client.Call(t.Context(), newCall("shell", map[string]any{"command": "pwd", "cwd": "missing"}))
	if got.Status != tools.Error || got.ErrorKind != tools.KindNotFound {
		t.Errorf("got %+v", got)
	}
}
