package loop_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/loop"
	"belay.dev/belay/internal/runtime/message"
	"belay.dev/belay/internal/runtime/tools"
)

// batchScript is a run of three turns whose first calls three tools, one of each effect class.
const batchScript = `legs: {a: {advance: PerConversation, steps: [
  {text: "three at once", calls: [{name: look, arguments: {count: 1}}, {name: act, arguments: {count: 2}}, {name: post, arguments: {count: 3}}]},
  {calls: [{name: look, arguments: {count: 4}}]},
  {answer: "all done"}]}}`

// lines are the records of a finished run's ledger.
func lines(t *testing.T, dir string) [][]byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "ledger.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.Collect(bytes.Lines(data))
}

// crashed is a scene whose ledger holds only the first n records of another's.
func crashed(t *testing.T, script string, records [][]byte) *scene {
	t.Helper()
	s := newScene(t, script, "a")
	s.plant(records)
	return s
}

// plant gives the run a ledger of these records.
func (s *scene) plant(records [][]byte) {
	s.t.Helper()
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "ledger.jsonl"), bytes.Join(records, nil), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// known is what a ledger says about its calls and turns.
type known struct {
	committed int
	started   map[string]record.ToolStart
	finished  map[string]bool
}

func read(t *testing.T, dir string) known {
	t.Helper()
	k := known{started: map[string]record.ToolStart{}, finished: map[string]bool{}}
	for e, err := range ledger.Replay(nil, dir) {
		if err != nil {
			t.Fatal(err)
		}
		payload, err := record.Decode(e.Type, e.Data, nil)
		if err != nil {
			t.Fatal(err)
		}
		switch p := payload.(type) {
		case *record.LLMResponse:
			k.committed = p.Turn
		case *record.ToolStart:
			k.started[p.Call] = *p
		case *record.ToolResult:
			k.finished[p.Result.CallID] = true
		}
	}
	return k
}

// TestAKillBetweenAnyTwoRecordsLosesAndRepeatsNothing resumes from every prefix of a run's ledger, once with a workspace
// that saw the open calls through, and once with one that died with the runner.
func TestAKillBetweenAnyTwoRecordsLosesAndRepeatsNothing(t *testing.T) {
	whole := newScene(t, batchScript, "a")
	if end := whole.finish(); end.Reason != "Completed" {
		t.Fatalf("the undisturbed run ended as %s: %s", end.Reason, end.Message)
	}
	records := lines(t, whole.dir)
	for n := 1; n < len(records); n++ {
		for _, survived := range []bool{true, false} {
			t.Run(fmt.Sprintf("after record %d of %d, workspace survived %t", n, len(records), survived), func(t *testing.T) {
				s := crashed(t, batchScript, records[:n])
				before := read(t, s.dir)
				s.workspace.boot = "boot-2"
				for id, start := range before.started {
					if before.finished[id] {
						continue
					}
					job := tools.JobState{State: tools.JobDead, BootID: start.BootID, SpoolIntact: true}
					if survived {
						out := tools.Outcome{Status: tools.OK, Text: "seen through"}
						job = tools.JobState{State: tools.JobFinished, Outcome: &out, BootID: start.BootID, SpoolIntact: true}
					}
					s.workspace.jobs[id] = job
				}
				end := s.finish()
				if end.Reason != "Completed" || end.Text != "all done" {
					t.Fatalf("ended as %s (%s) with %q", end.Reason, end.Message, end.Text)
				}
				if r := s.refusals(); len(r) > 0 {
					t.Errorf("the provider refused the conversation: %v", r)
				}
				if got, want := s.requests("a"), 3-before.committed; got != want {
					t.Errorf("%d requests, want %d: one for each turn that was not committed", got, want)
				}
				for _, d := range s.workspace.dispatched {
					tool, rest, _ := strings.Cut(d, ":")
					id, attempt, _ := strings.Cut(rest, ":")
					if before.finished[id] {
						t.Errorf("%s ran again although its result is on record", d)
					}
					if _, open := before.started[id]; open && tool != "look" {
						t.Errorf("%s (%s) ran again although it had been started", d, tool)
					}
					if _, open := before.started[id]; open && tool == "look" && attempt != "2" {
						t.Errorf("%s ran again as attempt %s, want 2", d, attempt)
					}
				}
				s.expectFacts(before, survived)
			})
		}
	}
}

// expectFacts checks what the model was told of the calls that were open at the crash.
func (s *scene) expectFacts(before known, survived bool) {
	s.t.Helper()
	for _, r := range find[record.ToolResult](s) {
		start, open := before.started[r.Result.CallID]
		if !open {
			continue
		}
		want := message.ResultOK
		if start.Tool == "post" || start.Tool == "act" && !survived {
			want = message.ResultInDoubt
		}
		if r.Result.Status != want {
			s.t.Errorf("the model was told %s of the open call of %s, want %s", r.Result.Status, start.Tool, want)
		}
		if want == message.ResultInDoubt {
			for _, lie := range []string{"failed", "did not complete", "retry", "try again"} {
				if strings.Contains(r.Result.Text, lie) {
					s.t.Errorf("the model is told %q of a call whose outcome nobody knows: %s", lie, r.Result.Text)
				}
			}
			if !strings.Contains(r.Result.Text, "Check the current state") {
				s.t.Errorf("the model is not told to look first: %s", r.Result.Text)
			}
		}
	}
}

func TestACrashInTheMiddleOfARequestIsPaidForInTheBooks(t *testing.T) {
	whole := newScene(t, batchScript, "a")
	whole.finish()
	records := lines(t, whole.dir)
	n := slices.IndexFunc(records, func(l []byte) bool { return bytes.Contains(l, []byte(`"type":"llm.request"`)) })
	s := crashed(t, batchScript, records[:n+1])
	s.finish()
	end, err := s.run()
	if err != nil {
		t.Fatal(err)
	}
	if leg := end.State.Account.Legs[0]; leg.Requests != 4 || leg.Failed != 1 || !leg.Charge.Usage.Estimated {
		t.Errorf("books = %+v, want 4 requests, the lost one charged as an estimate", leg)
	}
}

func TestAnEndedRunIsReportedAgainAndAsksNobody(t *testing.T) {
	s := newScene(t, batchScript, "a")
	first := s.finish()
	before := lines(t, s.dir)
	again := s.finish()
	if again != first {
		t.Errorf("reported %+v, then %+v", first, again)
	}
	if s.requests("a") != 3 || len(s.workspace.dispatched) != 4 {
		t.Errorf("%d requests and %d calls, want 3 and 4 as before", s.requests("a"), len(s.workspace.dispatched))
	}
	if after := lines(t, s.dir); len(after) != len(before) {
		t.Errorf("the ledger grew from %d to %d records", len(before), len(after))
	}
}

func TestAnotherContractIsRefused(t *testing.T) {
	s := newScene(t, batchScript, "a")
	s.finish()
	s = crashed(t, batchScript, lines(t, s.dir)[:8])
	s.contract.Task = "do something else"
	_, err := s.run()
	if refused := (*loop.ContractError)(nil); !errors.As(err, &refused) {
		t.Fatalf("err = %v, want a ContractError", err)
	}
	if s.requests("a") != 0 {
		t.Errorf("%d requests under another contract", s.requests("a"))
	}
}

func TestLimitsMayBeRaisedBetweenEpochs(t *testing.T) {
	s := newScene(t, batchScript, "a")
	s.finish()
	s = crashed(t, batchScript, lines(t, s.dir)[:8])
	s.contract.Limits.MaxTurns = 1000
	if end := s.finish(); end.Reason != "Completed" {
		t.Errorf("ended as %s: %s", end.Reason, end.Message)
	}
}

func TestARunnerThatIsAskedToStopSuspendsAndGoesOnLater(t *testing.T) {
	s := newScene(t, batchScript, "a")
	ctx, cancel := context.WithCancelCause(t.Context())
	s.workspace.answer = func(c tools.Call) tools.Outcome {
		if c.Tool == "act" {
			cancel(loop.ErrShutdown)
		}
		return tools.Outcome{Status: tools.OK, Text: "done"}
	}
	end, err := s.runContext(ctx)
	if err != nil || end.Suspended == nil {
		t.Fatalf("end = %+v, %v; want suspended", end, err)
	}
	if n := len(find[record.RunSuspend](s)); n != 1 {
		t.Errorf("%d run.suspend records, want 1", n)
	}
	s.workspace.answer = nil
	if end := s.finish(); end.Reason != "Completed" {
		t.Errorf("ended as %s: %s", end.Reason, end.Message)
	}
	if got := s.workspace.counts(); got["act"] != 1 || got["post"] != 1 || got["look"] != 2 {
		t.Errorf("calls = %v, want act and post once and look twice", got)
	}
	if s.requests("a") != 3 {
		t.Errorf("%d requests, want 3", s.requests("a"))
	}
}

func TestATaskTooLargeForOneRecordIsKeptWhole(t *testing.T) {
	s := newScene(t, batchScript, "a")
	s.ladder.Legs[0].ContextWindow = 1_000_000
	s.contract.Task = strings.Repeat("a long task ", 25_000)
	if end := s.finish(); end.Reason != "Completed" {
		t.Errorf("ended as %s: %s", end.Reason, end.Message)
	}
	end, err := s.run()
	if err != nil || end.State.Contract.Task != s.contract.Task {
		t.Errorf("the resumed run has a task of %d bytes (%v), want %d", len(end.State.Contract.Task), err, len(s.contract.Task))
	}
}
