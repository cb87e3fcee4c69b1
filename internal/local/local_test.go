package local

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"belay.dev/belay/api/v1alpha1"
	"belay.dev/belay/internal/runtime/budget"
	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/loop"
	"belay.dev/belay/internal/runtime/message"
	"belay.dev/belay/internal/runtime/redact"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestLedgersSetAsideInTheSameSecondAreAllKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	for _, content := range []string{"first", "second", "third"} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "ledger.jsonl"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := setAside(dir, noon); err != nil {
			t.Fatal(err)
		}
	}
	for suffix, want := range map[string]string{"": "first", "-2": "second", "-3": "third"} {
		got, err := os.ReadFile(filepath.Join(dir+".before-20260301T120000Z"+suffix, "ledger.jsonl"))
		if string(got) != want || err != nil {
			t.Errorf("%q holds %q, %v", suffix, got, err)
		}
	}
	if err := setAside(dir, noon); err != nil {
		t.Errorf("a ledger that does not exist: %v", err)
	}
}

func TestALedgerInUseIsNotSetAside(t *testing.T) {
	dir := t.TempDir()
	lock, err := ledger.Lock(nil, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := setAside(dir, noon); !errors.Is(err, ledger.ErrLocked) || !strings.Contains(err.Error(), "--fresh") {
		t.Errorf("the error is %v", err)
	}
}

func TestTheUsageTableIsAsWideAsItsLongestLeg(t *testing.T) {
	var out strings.Builder
	Usage(&out, &budget.Account{
		Total: budget.Charge{Usage: budget.Usage{InputTokens: 1100, OutputTokens: 30, Estimated: true}, CostMicroUSD: 1_500_000},
		Legs: []budget.LegCharge{
			{Leg: "a", Requests: 3, Failed: 3},
			{Leg: "a-leg-with-a-long-name", Requests: 2, Charge: budget.Charge{Usage: budget.Usage{InputTokens: 1100, OutputTokens: 30, Estimated: true}, CostMicroUSD: 1_500_000}},
		},
	})
	want := `LEG                    REQUESTS FAILED        INPUT       OUTPUT           COST
a                             3      3            0            0       0.00 USD
a-leg-with-a-long-name        2      0         1100           30       1.50 USD (estimated)
total                         5      3         1100           30       1.50 USD (estimated)
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

// narrated is what a narrator says to records and to the end of an invocation.
func narrated(end loop.End, records ...any) string {
	var out strings.Builder
	n := newNarrator(&out, &job{
		redactor: redact.New("canary-secret"),
		ladder: v1alpha1.RouteLadder{Spec: v1alpha1.RouteLadderSpec{
			Providers: []v1alpha1.Provider{{Name: "p", Credential: &v1alpha1.Credential{SecretRef: v1alpha1.SecretKeyReference{Name: "s", Key: "k"}}}},
			Legs:      []v1alpha1.Leg{{Name: "a", Provider: "p", Model: "m1"}, {Name: "b", Provider: "p", Model: "m2"}},
		}},
	})
	for _, r := range records {
		n.observe(noon, r)
	}
	n.closed(end)
	return out.String()
}

func TestProgressIsToldInPlainWords(t *testing.T) {
	until := noon.Add(30 * time.Second)
	for want, payload := range map[string]any{
		"resuming after 1 turn that the ledger already has; none of them is asked for again\n": &record.EpochStart{ReplayedTurns: 1},
		"": &record.EpochStart{},
		"turn 2: leg a (m1) failed: ServerError (HTTP 503): it failed\n": &record.LLMAttempt{Turn: 2, Leg: "a", Failure: &failure.Failure{Kind: failure.ServerError, HTTPStatus: 503, Message: "it failed"}},
		"turn 2: leg a (m1) failed: Timeout: no byte\n":                  &record.LLMAttempt{Turn: 2, Leg: "a", Failure: &failure.Failure{Kind: failure.Timeout, Message: "no byte"}},
		"turn 2: trying leg a again in 1.5s (Timeout)\n":                 &record.RetryScheduled{Turn: 2, Leg: "a", Kind: failure.Timeout, DelayMilliseconds: 1500, Reason: "Backoff"},
		"turn 2: fallback from leg a to leg b: TriesSpent (Timeout)\n":   &record.RouteFallback{Turn: 2, From: "a", To: "b", Kind: failure.Timeout, Reason: "TriesSpent"},
		"breaker of leg a: Closed -> Open until 12:00:30Z (Timeout)\n":   &record.BreakerChanged{Leg: "a", From: "Closed", To: "Open", Until: &until, Kind: failure.Timeout},
		"turn 2: leg b (m2) answered\n":                                  &record.LLMResponse{Turn: 2, Leg: "b"},
		"turn 2: leg b (m2) calls read, shell\n": &record.LLMResponse{Turn: 2, Leg: "b", Message: message.Message{Blocks: []message.Block{
			{Kind: message.BlockCall, Call: &message.Call{Name: "read"}}, {Kind: message.BlockCall, Call: &message.Call{Name: "shell"}}}}},
		"turn 2: shell: Error (ExecutionFailed) after 1.2s\n":                                      &record.ToolResult{Turn: 2, DurationMilliseconds: 1200, Result: message.Result{Name: "shell", Status: message.ResultError, ErrorKind: "ExecutionFailed"}},
		"turn 2: shell: OK, found in the workspace's record\n":                                     &record.ToolResult{Turn: 2, Recovered: true, Result: message.Result{Name: "shell", Status: message.ResultOK}},
		"turn 2: shell: the outcome was lost with the last process; the model is told the facts\n": &record.ToolResult{Turn: 2, Recovered: true, Result: message.Result{Name: "shell", Status: message.ResultInDoubt}},
		"parked: Routes: All legs are open.\n":                                                     &record.RunPark{Reason: "Routes", Message: "All legs are open."},
		"ended: Completed: Done.\n":                                                                &record.RunEnd{Reason: "Completed", Message: "Done."},
		"turn 2: LegRefused: knows [redacted]\n":                                                   &record.Diagnostic{Turn: 2, Reason: "LegRefused", Text: "knows canary-secret"},
		"turn 2: LegRefused: one line\ufffd[2J\n":                                                  &record.Diagnostic{Turn: 2, Reason: "LegRefused", Text: "one\nline\x1b[2J"},
	} {
		if diff := cmp.Diff(want, narrated(loop.End{}, payload)); diff != "" {
			t.Errorf("%T (-want +got):\n%s", payload, diff)
		}
	}
}

func TestALegThatIsLeftOutIsToldTogetherWithTheRemedy(t *testing.T) {
	until := noon.Add(time.Minute)
	for want, skipped := range map[string]record.Skipped{
		"":                                     {Leg: "a", Reason: "NotSelected"},
		"turn 1: leg a is left out: Drained\n": {Leg: "a", Reason: "Drained"},
		"turn 1: leg a is left out: RouteOpen until 12:01:00Z\n":                                                                                   {Leg: "a", Reason: "RouteOpen", Until: &until},
		"turn 1: leg a is left out: CredentialMissing: there is no key \"k\" of a Secret \"s\"; add it with -f, or with --credential s/k=ENVVAR\n": {Leg: "a", Reason: "CredentialMissing"},
		"turn 1: leg b is left out: CredentialInvalid: the provider rejected key \"k\" of Secret \"s\"\n":                                          {Leg: "b", Reason: "CredentialInvalid"},
		"turn 1: leg a is left out: MeteredDenied: it costs money; routing.metered: Allow lets the run use it\n":                                   {Leg: "a", Reason: "MeteredDenied"},
	} {
		if diff := cmp.Diff(want, narrated(loop.End{}, &record.TurnPlan{Turn: 1, Skipped: []record.Skipped{skipped}})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", skipped.Reason, diff)
		}
	}
}

func TestTheEndOfAnInvocationSaysWhatToDoNext(t *testing.T) {
	done := &record.RunEnd{Reason: "Completed", Message: "Done."}
	for name, test := range map[string]struct {
		end     loop.End
		records []any
		want    string
	}{
		"a run that ended now":    {loop.End{Finished: done}, []any{done}, "ended: Completed: Done.\n"},
		"a run that ended before": {loop.End{Finished: done}, nil, "ended before: Completed: Done. --fresh starts over\n"},
		"a parked run": {loop.End{Parked: &record.RunPark{Until: noon}}, nil,
			"the same command goes on with the run; before 2026-03-01T12:00:00Z it would find no leg either\n"},
		"a suspended run": {loop.End{Suspended: &record.RunSuspend{}}, nil, "stopped; the same command goes on with the run\n"},
	} {
		if diff := cmp.Diff(test.want, narrated(test.end, test.records...)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestOnlyWhatIsBelowTheWorkspaceIsInsideIt(t *testing.T) {
	for path, want := range map[string]bool{"/w": true, "/w/.belay/x": true, "/wide": false, "/": false, "/v/w": false, "/w/../x": false} {
		if got := inside("/w", path); got != want {
			t.Errorf("%s is inside /w: %v", path, got)
		}
	}
}
