package cli

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const answersAtOnce = `{legs: {primary: {steps: [{answer: "All done."}]}, backup: {steps: [{answer: "unused"}]}}}`

func TestACompletedRunPrintsItsAnswerOnStdoutAndTheRestOnStderr(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{legs: {backup: {steps: [{answer: unused}]}, primary: {steps: [
	  {calls: [{name: write, arguments: {path: "a/b.txt", content: "hello"}}]}, {answer: "All done."}]}}}`)
	w.run().must(CodeCompleted, "turn 1: leg a (m1) calls write", "ended: Completed", "ledger: "+w.path(runLedger)).answers("All done.\n")
	if got := w.read("ws/a/b.txt"); got != "hello" {
		t.Errorf("the file holds %q", got)
	}
	w.run().must(CodeCompleted, "ended before: Completed").answers("All done.\n")
	if n := w.asked("primary"); n != 2 {
		t.Errorf("%d requests, want one for each of the two turns", n)
	}
}

func TestTheUsageTableSaysWhatTheProviderBilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, answersAtOnce)
	p := w.run().must(CodeCompleted)
	billed := w.server.Bill()["primary"].Usage
	// 2 USD and 10 USD for a million tokens are 2 and 10 micro-USD for one.
	micro := 2*billed.Input + 10*billed.Output
	want := fmt.Sprintf(`(?m)^LEG   REQUESTS FAILED        INPUT       OUTPUT           COST
a            1      0 %12d %12d +0\.%s0* USD
total        1      0 %12d %12d +0\.%s0* USD$`, billed.Input, billed.Output, strings.TrimRight(fmt.Sprintf("%06d", micro), "0"),
		billed.Input, billed.Output, strings.TrimRight(fmt.Sprintf("%06d", micro), "0"))
	if !regexp.MustCompile(want).MatchString(p.stderr.String()) {
		t.Errorf("stderr has no table that matches\n%s\nbut\n%s", want, p.stderr.String())
	}
}

func TestAPrimaryThatIsDownGetsThreeRequestsAndTheNextLegOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{legs: {primary: {steps: [{status: 503, times: Forever}]}, backup: {steps: [{answer: "From the backup."}]}}}`)
	w.run().must(CodeCompleted, "leg a (m1) failed: ServerError (HTTP 503)", "breaker of leg a: Closed -> Open", "fallback from leg a to leg b").
		answers("From the backup.\n")
	got := map[string]int{"primary": w.asked("primary"), "backup": w.asked("backup")}
	if diff := cmp.Diff(map[string]int{"primary": 3, "backup": 1}, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestALegOfTheAnthropicDialectIsSpokenTo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{legs: {primary: {dialect: AnthropicMessages, steps: [{answer: "Bonjour."}]}, backup: {steps: [{answer: "unused"}]}}}`)
	w.edit(`dialect: OpenAIChat, baseURL: "`+w.url+`/primary/v1"`, `dialect: AnthropicMessages, baseURL: "`+w.url+`/primary"`)
	w.run().must(CodeCompleted).answers("Bonjour.\n")
}

func TestMistakesOfTheUserStartNothing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		prepare func(w *world)
		args    []string
		says    []string
		hides   string
	}{
		"an unknown flag":   {args: []string{"--what"}, says: []string{"unknown flag"}},
		"an extra argument": {args: []string{"what"}, says: []string{"what"}},
		"a missing file":    {args: []string{"-f", "nowhere.yaml"}, says: []string{"nowhere.yaml"}},
		"two objects of one name": {prepare: func(w *world) { w.write("again.yaml", w.read("m.yaml")) }, args: []string{"-f", "again.yaml"},
			says: []string{"again.yaml", "default/demo", "stands in m.yaml"}},
		"a run without its ladder": {prepare: func(w *world) { w.edit("ladderRef: {name: demo}", "ladderRef: {name: other}") },
			says: []string{"spec.ladderRef.name", "default/other", "-f"}},
		"a run of another name": {args: []string{"--run", "s"}, says: []string{`"s"`, "default/r"}},
		"a namespace that leaves the data directory": {prepare: func(w *world) { w.edit("metadata: {name: ", "metadata: {namespace: ../../x, name: ") },
			says: []string{"metadata.namespace"}},
		"two runs of one name in two namespaces": {
			prepare: func(w *world) {
				w.edit("  routing: {metered: Allow}\n", "  routing: {metered: Allow}\n---\napiVersion: agents.belay.dev/v1alpha1\n"+
					"kind: AgentRun\nmetadata: {name: r, namespace: other}\nspec: {ladderRef: {name: demo}, task: x}\n")
			},
			args: []string{"--run", "r"}, says: []string{"NAMESPACE/NAME", "default/r", "other/r"}},
		"a value as a credential": {args: []string{"--credential", "canary-4711"}, says: []string{"--credential", "name/key=ENVVAR"}, hides: "canary"},
		"a credential from an unset variable": {args: []string{"--credential", "keys/primary=BELAY_TEST_UNSET"},
			says: []string{"keys/primary", "not set"}},
		"a data directory below a file": {args: []string{"--data-dir", "m.yaml/data"}, says: []string{"--data-dir"}},
		"a ledger that is a file":       {prepare: func(w *world) { w.write(runLedger, "") }, says: []string{"--data-dir"}},
		"a workspace that is a file":    {args: []string{"--workspace", "m.yaml"}, says: []string{"--workspace"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, answersAtOnce)
			if test.prepare != nil {
				test.prepare(w)
			}
			p := w.run(test.args...).must(CodeUsage, test.says...).answers("")
			if test.hides != "" && strings.Contains(p.stderr.String(), test.hides) {
				t.Errorf("stderr holds %q:\n%s", test.hides, p.stderr.String())
			}
			if n := w.asked("primary") + w.asked("backup"); n != 0 {
				t.Errorf("%d requests were sent", n)
			}
		})
	}
}

func TestARunAmongSeveralIsChosenByNamespaceAndName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, answersAtOnce)
	w.edit("  routing: {metered: Allow}\n", "  routing: {metered: Allow}\n---\napiVersion: agents.belay.dev/v1alpha1\n"+
		"kind: AgentRun\nmetadata: {name: r, namespace: other}\nspec: {ladderRef: {name: demo}, task: x}\n")
	w.run("--run", "default/r").must(CodeCompleted).answers("All done.\n")
}

func TestAChangedFileNeedsFreshWhichKeepsTheOldLedger(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{legs: {primary: {steps: [{answer: "First."}, {answer: "Second."}]}, backup: {steps: [{answer: unused}]}}}`)
	w.run().must(CodeCompleted).answers("First.\n")
	w.edit("task: do the work", "task: do other work")
	before := tree(t, w.path("data"))
	w.run().must(CodeUsage, "--fresh", "task", "default/r").answers("")
	if diff := cmp.Diff(before, tree(t, w.path("data"))); diff != "" {
		t.Errorf("the refused run changed files (-before +after):\n%s", diff)
	}
	w.run("--fresh").must(CodeCompleted).answers("Second.\n")
	kept, err := filepath.Glob(w.path("data/default/r.before-*"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("kept ledgers: %v, %v", kept, err)
	}
	w.belay("ledger", "verify", kept[0]).must(CodeCompleted)
	if got := w.belay("ledger", "export", kept[0]).must(CodeCompleted).stdout.String(); !strings.Contains(got, "First.") {
		t.Errorf("the kept ledger has not the first answer: %s", got)
	}
}

func TestAPolicyThatForbidsALegEndsTheRunBeforeAnyRequest(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		routing string
		says    []string
	}{
		"metered is denied by default": {"{}", []string{"PolicyConflict", "routing.metered: Allow", "routing.legs"}},
		"a class above the leg's":      {"{metered: Allow, securityClass: Restricted}", []string{"PolicyConflict", "securityClass is Public", "Restricted"}},
		"a leg that does not exist":    {"{metered: Allow, legs: [a, z]}", []string{"PolicyConflict", `"z"`, "a, b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, answersAtOnce)
			w.edit("routing: {metered: Allow}", "routing: "+test.routing)
			w.run().must(CodeEnded, test.says...).answers("")
			if n := w.asked("primary") + w.asked("backup"); n != 0 {
				t.Errorf("%d requests were sent", n)
			}
			w.run().must(CodeEnded, append(test.says, "ended before")...)
		})
	}
}

func TestAMissingKeySkipsItsLegAndSaysWhatToAdd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{legs: {primary: {steps: [{answer: unused}]}, backup: {steps: [{answer: "From the backup."}]}}}`)
	w.edit("primary: key-of-the-primary, ", "")
	w.run().must(CodeCompleted, "leg a is left out: CredentialMissing", `"primary"`, "--credential keys/primary=ENVVAR").answers("From the backup.\n")
	if n := w.asked("primary"); n != 0 {
		t.Errorf("%d requests without a key", n)
	}
}

func TestARunWithoutAnyKeyEndsAndNamesThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t, answersAtOnce)
	w.edit("primary: key-of-the-primary, backup: key-of-the-backup", "other: x")
	w.run().must(CodeEnded, "leg a is left out: CredentialMissing", "leg b is left out: CredentialMissing", "CredentialInvalid").answers("")
}

func TestARunThatMustWaitLongIsParked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{legs: {primary: {steps: [{status: 429, headers: {retry-after: "7200"}}]}, backup: {steps: [{answer: unused}]}}}`)
	w.edit("routing: {metered: Allow}", "routing: {metered: Allow, legs: [a]}")
	w.run().must(CodeParked, "parked: ", "the same command goes on with the run").answers("")
	w.belay("ledger", "verify", runLedger).must(CodeCompleted)
}

func TestAnEndWithoutEvidenceIsNoSuccess(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{legs: {backup: {steps: [{answer: unused}]}, primary: {steps: [
	  {calls: [{name: read, arguments: {path: missing.txt}}]}, {answer: "It is all fine."}]}}}`)
	w.run().must(CodeOutcomeUnknown, "ended: OutcomeUnknown").answers("It is all fine.\n")
}

func TestASignalSuspendsTheRunAndTheNextInvocationGoesOn(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGINT": syscall.SIGINT} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, `{legs: {backup: {steps: [{answer: unused}]}, primary: {steps: [
			  {calls: [{name: write, arguments: {path: a, content: b}}]}, {silence: {}}, {answer: "Back again."}]}}}`)
			p := w.startRun()
			eventually(t, "the second request is under way", func() bool { return w.asked("primary") == 2 })
			p.signal(signal)
			p.must(CodeSuspended, "the same command goes on").answers("")
			w.run().must(CodeCompleted, "resuming after 1 turn").answers("Back again.\n")
			if n := w.asked("primary"); n != 3 {
				t.Errorf("%d requests, want 3: the committed turn is not asked for again", n)
			}
			w.belay("ledger", "verify", runLedger).must(CodeCompleted)
		})
	}
}

func TestASecondProcessIsKeptOffALedgerInUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{legs: {primary: {steps: [{silence: {}}]}, backup: {steps: [{answer: unused}]}}}`)
	p := w.startRun()
	eventually(t, "the first process asks", func() bool { return w.asked("primary") == 1 })
	w.run().must(CodeFenced, "locked", "wait until it has ended").answers("")
	w.run("--fresh").must(CodeFenced, "--fresh", "locked").answers("")
	p.signal(syscall.SIGTERM)
	p.must(CodeSuspended)
}

func TestAFailedSetupStepIsToldAndRunAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{legs: {primary: {steps: [{answer: "All done.", times: 2}]}, backup: {steps: [{answer: unused}]}}}`)
	w.edit("  routing: {metered: Allow}\n", `  routing: {metered: Allow}
  workspace:
    setup:
    - {name: first, command: [sh, -c, "echo ran >> first.txt"]}
    - name: second
      command: [sh, -c]
      args: ["echo key is $KEY, home is $HOME; test -e ../ready || exit 3; echo $TOKEN_word > second.txt"]
      env: [{name: KEY, valueFrom: {secretKeyRef: {name: keys, key: primary}}}]
      envFrom: [{prefix: TOKEN_, configMapRef: {name: words}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: words}
data: {word: melon}
`)
	w.run().must(CodeRetryable, "setup step first is done", "setup step second ended with exit code 3", "key is [redacted], home is "+w.path("ws/.home")).answers("")
	if n := w.asked("primary"); n != 0 {
		t.Errorf("%d requests before the workspace was ready", n)
	}
	w.write("ready", "")
	w.run().must(CodeCompleted).answers("All done.\n")
	if got := w.read("ws/first.txt"); got != "ran\n" {
		t.Errorf("the first step ran again: %q", got)
	}
	if got := w.read("ws/second.txt"); got != "melon\n" {
		t.Errorf("the second step saw the ConfigMap's word as %q", got)
	}
	w.run("--fresh").must(CodeCompleted)
	if got := w.read("ws/first.txt"); got != "ran\nran\n" {
		t.Errorf("a new run did not prepare its workspace: %q", got)
	}
}

func TestASetupStepWithoutItsSecretIsAMistakeOfTheUser(t *testing.T) {
	t.Parallel()
	w := newWorld(t, answersAtOnce)
	w.edit("  routing: {metered: Allow}\n", `  routing: {metered: Allow}
  workspace: {setup: [{name: clone, command: ["true"], env: [{name: KEY, valueFrom: {secretKeyRef: {name: git, key: token}}}]}]}
`)
	w.run().must(CodeUsage, "spec.workspace.setup[clone]", "env[KEY]", "--credential git/token=ENVVAR")
	p := w.command(append(append([]string(nil), runArgs...), "--credential", "git/token=GIT_TOKEN")...)
	p.cmd.Env = append(os.Environ(), "GIT_TOKEN=value-of-the-token")
	p.start().must(CodeCompleted)
}

func TestPathsMayBeRelativeAndHoldSpaces(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{legs: {backup: {steps: [{answer: unused}]}, primary: {steps: [
	  {calls: [{name: shell, arguments: {command: "pwd > where; echo $HOME > home"}}]}, {answer: "ok"}]}}}`)
	w.belay("run", "-f", "m.yaml", "--data-dir", "my data", "--workspace", "./my work/here", "--allow-shell", "--ballast-bytes", "0").must(CodeCompleted)
	if got, want := w.read("my work/here/where"), w.path("my work/here")+"\n"; got != want {
		t.Errorf("the shell works in %q, want %q", got, want)
	}
	if got, want := w.read("my work/here/home"), w.path("my work/here/.home")+"\n"; got != want {
		t.Errorf("HOME is %q, want %q", got, want)
	}
}

func TestTheShellIsOfferedOnlyWhenAllowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{legs: {backup: {steps: [{answer: unused}]}, primary: {steps: [
	  {calls: [{name: shell, arguments: {command: "touch evil"}}]}, {answer: "tried"}]}}}`)
	w.edit("  routing: {metered: Allow}\n", "  routing: {metered: Allow}\n  tools: {workspace: [{name: shell}, {name: read}]}\n")
	w.run().must(CodeOutcomeUnknown, "only with --allow-shell", "shell: NotRun (UnknownTool)")
	if exists(w.path("ws/evil")) {
		t.Error("the command was executed")
	}
}

func TestAnAnswerThatCannotBePrintedIsNoSuccess(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	w := newWorld(t, answersAtOnce)
	p := w.command(runArgs...)
	p.cmd.Stdout = full
	p.start().must(CodeRetryable, "print the answer", "prints it again")
	w.run().must(CodeCompleted).answers("All done.\n")
}

// tree is the content of every file below a directory, as hashes.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		out[path] = fmt.Sprintf("%x", sha256.Sum256(data))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
