package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"belay.dev/belay/api/v1alpha1"
	"belay.dev/belay/internal/runtime/budget"
	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/ledger/record"
)

// midCall waits until the command of gatedTurns has had its effect and is still running.
func (s *scene) midCall(name string) *v1alpha1.AgentRun {
	s.t.Helper()
	run := s.await(name, long, "has a pod", func(r *v1alpha1.AgentRun) bool { return r.Status.PodUID != "" })
	s.eventually(long, "run "+name+" is in the middle of its call", func() (bool, string) {
		got := s.lines(run, "effects.log")
		return len(got) > 0, fmt.Sprintf("effects.log: %q", got)
	})
	return run
}

// open lets the command end that waits for the gate.
func (s *scene) open(gate string, run *v1alpha1.AgentRun) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.volume(run), "workspace", gate), nil, 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// routeOf is the name of the health object of a leg's route.
func (s *scene) routeOf(leg string) string {
	s.t.Helper()
	ladder := get[v1alpha1.RouteLadder](s, ladderName)
	i := slices.IndexFunc(ladder.Status.Legs, func(l v1alpha1.LegStatus) bool { return l.Name == leg })
	if i < 0 || ladder.Status.Legs[i].Route == "" {
		s.t.Fatalf("the ladder's status names no route of leg %s: %+v", leg, ladder.Status.Legs)
	}
	return ladder.Status.Legs[i].Route
}

func (s *scene) awaitHealth(leg string, want v1alpha1.HealthState) *v1alpha1.ProviderHealth {
	s.t.Helper()
	var health *v1alpha1.ProviderHealth
	s.eventually(soon, fmt.Sprintf("the route of leg %s is %s", leg, want), func() (bool, string) {
		health = get[v1alpha1.ProviderHealth](s, s.routeOf(leg))
		return health.Status.State == want, string(health.Status.State)
	})
	return health
}

func TestRunSurvivesAnOutageAndTheDeathOfItsPod(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.provider("primary", outage)
	s.provider("backup", gatedTurns)
	ladder := s.ladder("primary", "backup")
	ladder.Spec.Breaker = &v1alpha1.BreakerPolicy{BaseCooldownSeconds: ptr.To[int32](900)}
	s.create(s.secret("primary", "backup"), ladder, s.run("mend"))

	s.midCall("mend")
	if got := s.kubectl("get", "arun", "mend", "-o", "jsonpath={.status.runner.legDisplay}"); got != "backup (from primary)" {
		t.Errorf("kubectl shows the leg as %q, want %q", got, "backup (from primary)")
	}
	s.wantAsked("primary", 3)
	health := s.awaitHealth("primary", v1alpha1.HealthOpen)
	if f := health.Status.LastFailure; f == nil || f.Kind != string(failure.ServerError) || f.HTTPStatus != 503 {
		t.Errorf("the open route says that it failed by %+v, want ServerError with status 503", f)
	}

	if err := shared.Node.KillPod(s.ns, "mend-1"); err != nil {
		t.Fatal(err)
	}
	run := s.completes("mend")
	status := run.Status
	if status.Epoch != 2 || ptr.Deref(status.Resumes, 0) != 1 || ptr.Deref(status.ReplayedTurns, 0) != 1 {
		t.Errorf("epoch %d, resumes %d, replayedTurns %d; want 2, 1 and 1", status.Epoch, ptr.Deref(status.Resumes, 0), ptr.Deref(status.ReplayedTurns, 0))
	}
	if status.Result == nil || status.Result.Text != "The change was announced once." {
		t.Errorf("result %+v, want the model's last answer", status.Result)
	}
	first := status.Epochs[0]
	if first.End != v1alpha1.EpochFailed || ptr.Deref(first.ExitCode, 0) != 137 || first.PodName != "mend-1" {
		t.Errorf("epoch 1 is on record as %+v, want pod mend-1, Failed, exit code 137", first)
	}
	if got := s.answeredTurns("backup"); !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("the backup gave answers after %v answers, want each of the three turns once", got)
	}
	s.wantAsked("primary", 3)
	s.wantOnce(run)
	s.wantIntact(run)
	s.wantFallback(run)
	s.wantUsage(run)
	if got := s.problems(); len(got) > 0 {
		t.Errorf("the providers refused requests: %q", got)
	}
}

// wantFallback fails the test unless the ledger says once, and why, that the run left the primary for the backup.
func (s *scene) wantFallback(run *v1alpha1.AgentRun) {
	s.t.Helper()
	var got []record.RouteFallback
	for _, f := range payloads[record.RouteFallback](s.ledger(run)) {
		got = append(got, *f)
	}
	if len(got) == 0 || got[0].Turn != 1 || got[0].From != "primary" || got[0].To != "backup" || got[0].Kind != failure.ServerError || got[0].Reason != "RouteOpen" {
		s.t.Errorf("the ledger's fallbacks are %+v; want the first in turn 1 from primary to backup after ServerError, because the route was open", got)
	}
}

// wantUsage fails the test unless the status, the ledger and the providers agree on three answers of 1000 and 100 tokens after
// three refused requests. Each request after the first of its turn is a retry. The price is 3 *
// (1000 * 0.15 + 100 * 0.60) micro-USD.
func (s *scene) wantUsage(run *v1alpha1.AgentRun) {
	s.t.Helper()
	const input, output, cost, requests = 3000, 300, 630, 6
	var charged budget.Charge
	receipts := payloads[record.LLMAttempt](s.ledger(run))
	for _, r := range receipts {
		charged.Usage = charged.Usage.Add(r.Charge.Usage)
		charged.CostMicroUSD += r.Charge.CostMicroUSD
	}
	if charged.Usage.InputTokens != input || charged.Usage.OutputTokens != output || charged.CostMicroUSD != cost || len(receipts) != requests {
		s.t.Errorf("the ledger has %d receipts of %+v, want %d of %d and %d tokens for %d micro-USD", len(receipts), charged, requests, input, output, cost)
	}
	want := &v1alpha1.Usage{
		Requests: ptr.To[int64](requests), Retries: ptr.To[int64](3),
		InputTokens: ptr.To[int64](input), CachedInputTokens: ptr.To[int64](0), CacheWriteTokens: ptr.To[int64](0),
		OutputTokens: ptr.To[int64](output), ReasoningTokens: ptr.To[int64](0), TotalTokens: ptr.To[int64](input + output),
		CostMicroUSD: ptr.To[int64](cost), Cost: "0.00063",
	}
	if diff := cmp.Diff(want, run.Status.Usage); diff != "" {
		s.t.Errorf("usage in the status (-want +got):\n%s", diff)
	}
	if billed := shared.Providers.Bill()[s.endpoint("backup")].Usage; billed.Input != input || billed.Output != output {
		s.t.Errorf("the backup billed %+v, want %d and %d tokens", billed, input, output)
	}
}

func TestOpenRouteIsPaidForOnce(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.provider("primary", outage)
	s.provider("backup", oneAnswer)
	ladder := s.ladder("primary", "backup")
	// Longer than the test, so that no probe is due.
	ladder.Spec.Breaker = &v1alpha1.BreakerPolicy{BaseCooldownSeconds: ptr.To[int32](900)}
	s.create(s.secret("primary", "backup"), ladder, s.run("first"))

	s.completes("first")
	s.wantAsked("primary", 3)
	s.wantAsked("backup", 1)
	s.awaitHealth("primary", v1alpha1.HealthOpen)

	var later []string
	for i := range 4 {
		name := fmt.Sprintf("later-%d", i)
		later = append(later, name)
		s.create(s.run(name))
	}
	for _, name := range later {
		run := s.completes(name)
		plans := payloads[record.TurnPlan](s.ledger(run))
		if len(plans) != 1 || !slices.Equal(plans[0].Legs, []string{"backup"}) || len(plans[0].Skipped) != 1 ||
			plans[0].Skipped[0].Leg != "primary" || !strings.Contains(plans[0].Skipped[0].Reason, "Open") {
			t.Errorf("the plan of run %s is %+v, want backup alone, and primary skipped because its route is open", name, plans)
		}
	}
	s.wantAsked("primary", 3)
	s.wantAsked("backup", 5)
}

func TestRunReturnsToARecoveredPrimary(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.provider("primary", outage)
	s.provider("backup", gatedTurns)
	ladder := s.ladder("primary", "backup")
	ladder.Spec.Breaker = &v1alpha1.BreakerPolicy{BaseCooldownSeconds: ptr.To[int32](5)}
	s.create(s.secret("primary", "backup"), ladder, s.run("back"))

	run := s.midCall("back")
	s.provider("primary", strings.Replace(gatedTurns, "cat effects.log", "until [ -e second ]; do sleep 0.1; done; cat effects.log", 1))
	s.eventually(soon, "the run is asked to find out how primary is", func() (bool, string) {
		status := get[v1alpha1.ProviderHealth](s, s.routeOf("primary")).Status
		return status.State == v1alpha1.HealthHalfOpen && status.Probe != nil && status.Probe.RunUID == string(run.UID), fmt.Sprintf("%s, probe %+v", status.State, status.Probe)
	})
	s.open(gate, run)
	health := s.awaitHealth("primary", v1alpha1.HealthClosed)
	if trips := ptr.Deref(health.Status.Trips, 0); trips != 0 {
		t.Errorf("the route has %d trips on record after its recovery, want 0", trips)
	}
	s.open("second", run)
	run = s.completes("back")

	var got []string
	for _, r := range payloads[record.LLMRequest](s.ledger(run)) {
		got = append(got, fmt.Sprintf("turn %d %s probe=%t", r.Turn, r.Leg, r.Probe))
	}
	want := []string{
		"turn 1 primary probe=false", "turn 1 primary probe=false", "turn 1 primary probe=false", "turn 1 backup probe=false",
		"turn 2 primary probe=true", "turn 3 primary probe=false",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	s.wantOnce(run)
}
