package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"belay.dev/belay/internal/runtime/budget"
	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/message"
)

// invoke runs the command in this process.
func invoke(args ...string) (code int, stdout, stderr string) {
	var out, errs strings.Builder
	code = Main(args, strings.NewReader(""), &out, &errs)
	return code, out.String(), errs.String()
}

// writeLedger makes a ledger of one turn, with a fallback, at a time that stands still.
func writeLedger(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "ledger")
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	book, _, err := ledger.Open(ledger.Options{Dir: dir, RunUID: "uid-1", Now: func() time.Time { return at }})
	if err != nil {
		t.Fatal(err)
	}
	charge := budget.Charge{Usage: budget.Usage{InputTokens: 1000, OutputTokens: 20}, CostMicroUSD: 1500}
	for _, payload := range []any{
		record.RunStart{RunUID: "uid-1", Namespace: "default", Name: "r", Contract: record.Contract{Task: "Say hello."}, Ladder: record.Ladder{Name: "demo", Generation: 3}},
		record.EpochStart{Version: "v1"},
		record.TurnPlan{Turn: 1, PlannerVersion: 1, Legs: []string{"a", "b"}},
		record.LLMRequest{Turn: 1, Attempt: 1, Leg: "a", Try: 1},
		record.LLMAttempt{Turn: 1, Attempt: 1, Leg: "a", CircuitState: "Closed", DurationMilliseconds: 12,
			Failure: &failure.Failure{Kind: failure.ServerError, HTTPStatus: 503, Message: "the provider failed (HTTP 503)"}},
		record.RouteFallback{Turn: 1, From: "a", To: "b", Kind: failure.ServerError, Reason: "TriesSpent"},
		record.LLMRequest{Turn: 1, Attempt: 2, Leg: "b", FailoverFrom: "a", Try: 1},
		record.LLMAttempt{Turn: 1, Attempt: 2, Leg: "b", FailoverFrom: "a", CircuitState: "Closed", DurationMilliseconds: 340, Charge: charge},
		record.LLMResponse{Turn: 1, Attempt: 2, Leg: "b", Message: message.Message{Role: message.RoleAssistant, Stop: message.StopEnd, Blocks: []message.Block{
			{Kind: message.BlockText, Text: "Hello.", Credentials: []message.Credential{{Kind: "signature", Data: []byte("opaque")}}}}}},
		record.RunEnd{Turn: 1, Reason: "Completed", Message: "Completed in 1 turn on leg b.", Text: "Hello."},
	} {
		data, err := record.Encode(payload, nil)
		if err != nil {
			t.Fatal(err)
		}
		typ := record.TypeOf(payload)
		if _, err := book.Append(string(typ), typ.Critical(), data); err != nil {
			t.Fatal(err)
		}
	}
	if err := book.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := book.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

const shown = `2026-03-01
12:00:00  run default/r, ladder demo (generation 3)
12:00:00    task: Say hello.
12:00:00  epoch 1 (belay v1)
12:00:00  turn 1
12:00:00    plan a, b
12:00:00    a failed in 12ms: ServerError: the provider failed (HTTP 503)
12:00:00    fallback a -> b (TriesSpent, ServerError)
12:00:00    b (from a) answered in 340ms, 1000 in + 20 out tokens, $0.0015
12:00:00    says: Hello.
12:00:00  ended: Completed: Completed in 1 turn on leg b.
12:00:00    answer: Hello.

Completed: 1 turn in 1 epoch; 2 requests, 1 failed; 1 fallback
cost $0.0015, 1020 tokens
a: $0.00, 0 in + 0 out tokens
b: $0.0015, 1000 in + 20 out tokens
`

func TestShowTellsARunWithinEightyColumns(t *testing.T) {
	code, stdout, stderr := invoke("ledger", "show", writeLedger(t))
	if code != int(CodeCompleted) || stderr != "" {
		t.Fatalf("exit code %d, stderr %q", code, stderr)
	}
	if diff := cmp.Diff(shown, stdout); diff != "" {
		t.Errorf("show (-want +got):\n%s", diff)
	}
	for line := range strings.Lines(stdout) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func TestShowAcceptsTheFileAndPrintsAnObjectForEachRecord(t *testing.T) {
	code, stdout, _ := invoke("ledger", "show", filepath.Join(writeLedger(t), "ledger.jsonl"), "-o", "json")
	if code != int(CodeCompleted) {
		t.Fatalf("exit code %d", code)
	}
	var types []string
	for line := range strings.Lines(stdout) {
		var event struct {
			Seq  int    `json:"seq"`
			Type string `json:"type"`
		}
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if event.Seq != len(types)+1 {
			t.Errorf("record %d stands at place %d", event.Seq, len(types)+1)
		}
		types = append(types, event.Type)
	}
	want := []string{"run.start", "epoch.start", "turn.plan", "llm.request", "llm.attempt", "route.fallback", "llm.request", "llm.attempt", "llm.response", "run.end"}
	if diff := cmp.Diff(want, types); diff != "" {
		t.Errorf("types (-want +got):\n%s", diff)
	}
	if strings.Contains(stdout, "credentials") {
		t.Error("credentials of a provider are shown")
	}
}

func TestExportPrintsTheConversationWithoutCredentials(t *testing.T) {
	code, stdout, _ := invoke("ledger", "export", writeLedger(t))
	if code != int(CodeCompleted) {
		t.Fatalf("exit code %d", code)
	}
	for _, want := range []string{"Say hello.", "Hello."} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the export lacks %q:\n%s", want, stdout)
		}
	}
	for line := range strings.Lines(stdout) {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %s", line)
		}
	}
	if strings.Contains(stdout, "credentials") || strings.Contains(stdout, "b3BhcXVl") { // "opaque" in base64
		t.Errorf("credentials of a provider are exported:\n%s", stdout)
	}
}

func TestVerifyCountsWhatIsIntact(t *testing.T) {
	dir := writeLedger(t)
	info, err := os.Stat(filepath.Join(dir, "ledger.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	code, stdout, _ := invoke("ledger", "verify", dir, "-o", "json")
	var got struct {
		Segments, Records, Blobs int
		Bytes                    int64
		Epoch                    int
		Findings                 []any
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != int(CodeCompleted) {
		t.Fatalf("exit code %d, %v: %s", code, err, stdout)
	}
	if got.Segments != 1 || got.Records != 10 || got.Blobs != 0 || got.Bytes != info.Size() || got.Epoch != 1 || len(got.Findings) != 0 {
		t.Errorf("verify counts %+v", got)
	}
	code, stdout, _ = invoke("ledger", "verify", dir)
	if want := "ok: 10 records in 1 segment, "; code != int(CodeCompleted) || !strings.HasPrefix(stdout, want) || strings.Count(stdout, "\n") != 1 {
		t.Errorf("exit code %d, stdout %q, want one line that begins with %q", code, stdout, want)
	}
}

func TestMistakesOfWhoReadsALedgerAreTold(t *testing.T) {
	dir := writeLedger(t)
	for name, test := range map[string]struct {
		args []string
		says string
	}{
		"a path that does not exist":    {[]string{"ledger", "show", filepath.Join(dir, "nowhere", "x")}, "nowhere"},
		"a folder without a ledger":     {[]string{"ledger", "verify", t.TempDir()}, "there is no ledger"},
		"no path":                       {[]string{"ledger", "export"}, "arg"},
		"an unknown format of show":     {[]string{"ledger", "show", dir, "-o", "xml"}, `"xml": want text or json`},
		"an unknown format of verify":   {[]string{"ledger", "verify", dir, "-o", "xml"}, `"xml": want text or json`},
		"an unknown command":            {[]string{"legder"}, "legder"},
		"a chaos script that is none":   {[]string{"chaos", "--script", filepath.Join(dir, "ledger.jsonl")}, "ledger.jsonl"},
		"a chaos script that is absent": {[]string{"chaos", "--script", "nowhere.yaml"}, "nowhere.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := invoke(test.args...)
			if code != int(CodeUsage) || stdout != "" || !strings.Contains(stderr, test.says) {
				t.Errorf("exit code %d, stdout %q, stderr %q, want code 1 and %q", code, stdout, stderr, test.says)
			}
		})
	}
}

func TestVersionIsOneLine(t *testing.T) {
	code, stdout, stderr := invoke("version")
	if code != 0 || stderr != "" || strings.Count(stdout, "\n") != 1 || strings.TrimSpace(stdout) == "" {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

func TestShowFollowsARunUntilItIsInterrupted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, answersAtOnce)
	w.run().must(CodeCompleted)
	p := w.command("ledger", "show", "-f", runLedger).start()
	eventually(t, "the end is shown", func() bool { return strings.Contains(p.stdout.String(), "ended: Completed") })
	p.signal(syscall.SIGINT)
	p.must(CodeCompleted)
}

func TestShowFollowsALiveWriter(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{legs: {backup: {steps: [{answer: unused}]}, primary: {steps: [
	  {calls: [{name: shell, arguments: {command: "touch started; until test -e go; do sleep 0.05; done"}}]}, {answer: "All done."}]}}}`)
	writer := w.startRun("--allow-shell")
	eventually(t, "the command is at work", func() bool { return exists(w.path("ws/started")) })
	reader := w.command("ledger", "show", "-f", runLedger).start()
	eventually(t, "the call in progress is shown", func() bool { return strings.Contains(reader.stdout.String(), " shell (Supervised)\n") })
	if text := reader.stdout.String(); strings.Contains(text, "All done.") || strings.Contains(text, "ended") {
		t.Errorf("shown before it happened:\n%s", text)
	}
	w.write("ws/go", "")
	writer.must(CodeCompleted).answers("All done.\n")
	eventually(t, "the end is shown", func() bool { return strings.Contains(reader.stdout.String(), "answer: All done.\n") })
	reader.signal(syscall.SIGINT)
	reader.must(CodeCompleted)
	if text := reader.stdout.String(); !strings.Contains(text, "\nCompleted: 2 turns in 1 epoch;") || strings.Count(text, "turn 1\n") != 1 {
		t.Errorf("the timeline that was followed:\n%s", text)
	}
}
