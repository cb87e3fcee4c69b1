package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestARunThatWasKilledInACallGoesOnWithoutRepeatingAnything(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{legs: {backup: {steps: [{answer: unused}]}, primary: {steps: [
	  {calls: [{name: write, arguments: {path: before, content: x}}]},
	  {calls: [{name: shell, arguments: {command: "echo effect >> effects; touch started; sleep 300 & sleep 300"}}]},
	  {answer: "I saw what is there."}]}}}`)
	temp := t.TempDir()
	p := w.command(append(append([]string(nil), runArgs...), "--allow-shell")...)
	p.cmd.Env = append(os.Environ(), "TMPDIR="+shortened(t, temp))
	p.start()
	eventually(t, "the command is at work", func() bool { return exists(w.path("ws/started")) })
	p.signal(syscall.SIGKILL)
	<-p.ended
	eventually(t, "nothing of the workspace is left over", func() bool { return len(processesOf(t, w.path("ws"))) == 0 })

	if left, err := os.ReadDir(temp); err != nil || len(left) != 0 {
		t.Errorf("left over in the temporary folder: %v, %v", left, err)
	}

	w.run("--allow-shell").must(CodeCompleted, "resuming after 2 turns", "turn 2: shell: ", "found in the workspace's record").answers("I saw what is there.\n")
	if got := w.read("ws/effects"); got != "effect\n" {
		t.Errorf("the effect happened more or less than once: %q", got)
	}
	if n := w.asked("primary"); n != 3 {
		t.Errorf("%d requests, want one for each of the three turns", n)
	}
	if got := w.belay("ledger", "verify", runLedger).must(CodeCompleted).stdout.String(); !strings.HasPrefix(got, "ok: ") {
		t.Errorf("verify says %s", got)
	}
	if left := processesOf(t, w.path("ws")); len(left) != 0 {
		t.Errorf("left over: %v", left)
	}
}

// shortened is a path to a folder that leaves room for a socket's name.
func shortened(t *testing.T, dir string) string {
	t.Helper()
	link := filepath.Join(filepath.Dir(program), strconv.Itoa(os.Getpid()))
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(link) })
	return link
}

func TestADamagedLedgerIsReportedAndNeverWrittenTo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, answersAtOnce)
	w.run().must(CodeCompleted)
	file := filepath.Join(runLedger, "ledger.jsonl")
	text := []byte(w.read(file))
	text[len(text)/2] ^= 0x01
	w.write(file, string(text))
	before := tree(t, w.path("data"))

	verified := w.belay("ledger", "verify", runLedger).must(CodeLedgerDamaged).stdout.String()
	if !strings.Contains(verified, "error: ") || !strings.Contains(verified, "damaged: ") {
		t.Errorf("verify says:\n%s", verified)
	}
	w.run().must(CodeLedgerDamaged, "ledger is damaged", "ledger.jsonl").answers("")
	w.belay("ledger", "show", runLedger).must(CodeLedgerDamaged, "ledger is damaged")
	w.belay("ledger", "export", runLedger).must(CodeLedgerDamaged, "ledger is damaged")
	if diff := cmp.Diff(before, tree(t, w.path("data"))); diff != "" {
		t.Errorf("files were changed (-before +after):\n%s", diff)
	}
	if n := w.asked("primary"); n != 1 {
		t.Errorf("%d requests, want none after the damage", n-1)
	}
}

func TestATornLastRecordIsRepairedAndTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, answersAtOnce)
	w.run().must(CodeCompleted)
	file := filepath.Join(runLedger, "ledger.jsonl")
	text := w.read(file)
	w.write(file, text[:len(text)-10])
	if got := w.belay("ledger", "verify", runLedger).must(CodeCompleted).stdout.String(); !strings.Contains(got, "warning: ") || !strings.Contains(got, "torn tail") {
		t.Errorf("verify says:\n%s", got)
	}
	w.run().must(CodeCompleted, "the last record was torn by a crash", "ended: Completed").answers("All done.\n")
	if n := w.asked("primary"); n != 1 {
		t.Errorf("%d requests: the committed answer was asked for again", n)
	}
	w.belay("ledger", "verify", runLedger).must(CodeCompleted)
	saved, err := os.ReadDir(w.path(runLedger + "/torn"))
	if err != nil || len(saved) != 1 {
		t.Errorf("the torn bytes are kept as %v, %v", saved, err)
	}
}

func TestALedgerThatNobodyCameToWriteIntoIsTakenOver(t *testing.T) {
	t.Parallel()
	// A process that is killed in a setup step leaves a ledger without a record behind.
	w := newWorld(t, answersAtOnce)
	w.edit("  routing: {metered: Allow}\n", `  routing: {metered: Allow}
  workspace: {setup: [{name: slow, command: [sh, -c, "touch started; test -e ../ready || exec sleep 3"]}]}
`)
	p := w.startRun()
	eventually(t, "the step is at work", func() bool { return exists(w.path("ws/started")) })
	p.signal(syscall.SIGKILL)
	<-p.ended
	w.write("ready", "")
	w.run().must(CodeCompleted).answers("All done.\n")
}

func TestASignalInASetupStepSuspends(t *testing.T) {
	t.Parallel()
	w := newWorld(t, answersAtOnce)
	w.edit("  routing: {metered: Allow}\n", `  routing: {metered: Allow}
  workspace: {setup: [{name: slow, command: [sh, -c, "touch started; test -e ../ready || exec sleep 300"]}]}
`)
	p := w.startRun()
	eventually(t, "the step is at work", func() bool { return exists(w.path("ws/started")) })
	p.signal(syscall.SIGTERM)
	p.must(CodeSuspended, "setup step slow was stopped")
	w.write("ready", "")
	w.run().must(CodeCompleted).answers("All done.\n")
}

func TestSecretsStayOutOfLedgerOutputAndTheToolsProcesses(t *testing.T) {
	t.Parallel()
	const file, env = "canary-from-the-file-4711", "canary-from-the-env-0815"
	w := newWorld(t, `{legs: {backup: {steps: [{answer: unused}]}, primary: {apiKey: `+env+`, steps: [
	  {text: "the key is `+env+`", calls: [{name: read, arguments: {path: leak.txt}}]},
	  {calls: [{name: shell, arguments: {command: "env > env.txt; touch started; while ! test -e go; do sleep 0.05; done; cat leak.txt"}}]},
	  {answer: "It is `+file+`, I think."}]}}}`)
	w.edit("key-of-the-backup", file)
	w.edit("task: do the work", "task: do the work with "+file)
	w.write("ws/leak.txt", "here: "+file+" and "+env+"\n")
	p := w.command(append(append([]string(nil), runArgs...), "--allow-shell", "--credential", "keys/primary=BELAY_TEST_KEY")...)
	p.cmd.Env = append(os.Environ(), "BELAY_TEST_KEY="+env)
	p.start()
	eventually(t, "the command is at work", func() bool { return exists(w.path("ws/started")) })
	servers := 0
	for _, found := range processesOf(t, w.path("ws")) {
		pid, command, _ := strings.Cut(found, ": ")
		environ, err := os.ReadFile("/proc/" + pid + "/environ")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(command, " toolbox ") {
			servers++
		}
		if strings.Contains(command+string(environ), "canary") {
			t.Errorf("process %s knows a secret", found)
		}
	}
	if servers != 1 {
		t.Errorf("%d tool servers were found", servers)
	}
	if cmdline, err := os.ReadFile("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/cmdline"); err != nil || bytes.Contains(cmdline, []byte("canary")) {
		t.Errorf("the command line is %q, %v", cmdline, err)
	}
	w.write("ws/go", "")
	p.must(CodeCompleted).answers("It is [redacted], I think.\n")
	again := w.run("--credential", "keys/primary=PATH").must(CodeCompleted).answers("It is [redacted], I think.\n")
	for place, text := range map[string]string{
		"stderr": p.stderr.String(), "stderr of the second invocation": again.stderr.String(), "the commands' environment": w.read("ws/env.txt"),
		"the timeline": w.belay("ledger", "show", runLedger).must(CodeCompleted).stdout.String(),
		"the export":   w.belay("ledger", "export", runLedger).must(CodeCompleted).stdout.String(),
	} {
		if strings.Contains(text, "canary") {
			t.Errorf("%s holds a secret:\n%s", place, text)
		}
	}
	for path := range tree(t, w.path("data")) {
		data, err := os.ReadFile(path)
		if err != nil || bytes.Contains(data, []byte("canary")) {
			t.Errorf("%s holds a secret, or cannot be read: %v", path, err)
		}
	}
	if !strings.Contains(w.read(runLedger+"/ledger.jsonl"), "here: [redacted] and [redacted]") {
		t.Error("the tool's output is not in the ledger")
	}
}

func TestNamesFromAModelCannotMoveTheTerminal(t *testing.T) {
	t.Parallel()
	name, err := json.Marshal("evil\x1b[2J\nended: Completed")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, `{"legs": {"backup": {"steps": [{"answer": "unused"}]}, "primary": {"steps": [
	  {"calls": [{"name": `+string(name)+`, "arguments": {}}]}, {"answer": "ok"}]}}}`)
	p := w.run().must(CodeOutcomeUnknown)
	if text := p.stderr.String(); strings.Contains(text, "\x1b") || strings.Contains(text, "\nended: Completed") {
		t.Errorf("stderr is %q", text)
	}
}
