package runner

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"belay.dev/belay/api/v1alpha1"
	"belay.dev/belay/internal/runtime/breaker"
	"belay.dev/belay/internal/runtime/budget"
	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/loop"
	"belay.dev/belay/internal/runtime/route"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)

func micro(t time.Time) *metav1.MicroTime { return &metav1.MicroTime{Time: t} }

func aState() *loop.State {
	return &loop.State{
		Committed: 4, Replayed: 3, Asked: "b", AskedFor: "a", Retries: 2,
		Account: budget.Account{
			Total: budget.Charge{Usage: budget.Usage{InputTokens: 1000, CachedInputTokens: 100, CacheWriteTokens: 50, OutputTokens: 20, ReasoningTokens: 5}, CostMicroUSD: 12_500},
			Legs: []budget.LegCharge{
				{Leg: "b", Requests: 4, Charge: budget.Charge{Usage: budget.Usage{InputTokens: 1000, OutputTokens: 20}, CostMicroUSD: 12_500}},
				{Leg: "a", Requests: 3, Failed: 3},
			},
		},
	}
}

func aUsage() *v1alpha1.Usage {
	return &v1alpha1.Usage{
		Requests: ptr.To[int64](7), Retries: ptr.To[int64](2),
		InputTokens: ptr.To[int64](1000), CachedInputTokens: ptr.To[int64](100), CacheWriteTokens: ptr.To[int64](50),
		OutputTokens: ptr.To[int64](20), ReasoningTokens: ptr.To[int64](5), TotalTokens: ptr.To[int64](1020),
		CostMicroUSD: ptr.To[int64](12_500), Cost: "0.0125",
	}
}

func TestTheStatusOfARunThatWaitsSaysWhereItIsAndForWhat(t *testing.T) {
	got := statusOf(5, loop.Progress{
		State: aState(),
		Head:  ledger.Head{Seq: 42, Hash: "0123456789abcdef"},
		Levels: map[route.Name]breaker.Level{
			"well": {Generation: 9},
			"sick": {Generation: 9, ConsecutiveBlind: 3, LastFailure: breaker.LastFailure{Kind: failure.ServerError, HTTPStatus: 503, Code: "overloaded", Time: noon},
				LastSuccessTime: noon.Add(-time.Hour), ProbeToken: "t", ProbeResult: breaker.ProbeFailed},
			"cool": {CoolUntil: noon.Add(time.Minute)},
		},
		Waiting: &loop.Waiting{Until: noon.Add(time.Second), Reason: "Routes", Routes: []route.Name{"sick", "cool"}},
	})
	cut := noon.Truncate(time.Microsecond)
	want := v1alpha1.RunnerStatus{
		Epoch: 5, Turn: ptr.To[int32](4), ReplayedTurns: ptr.To[int32](3),
		Leg: "b", FailoverFrom: "a", LegDisplay: "b (from a)", Usage: aUsage(),
		Ledger: &v1alpha1.LedgerHead{Seq: 42, Hash: "0123456789abcdef"},
		Routes: []v1alpha1.RouteLevel{
			{Route: "cool", Generation: ptr.To[int64](0), ConsecutiveBlind: ptr.To[int32](0), CoolUntil: micro(cut.Add(time.Minute))},
			{Route: "sick", Generation: ptr.To[int64](9), ConsecutiveBlind: ptr.To[int32](3), LastKind: "ServerError", LastHTTPStatus: 503, LastCode: "overloaded",
				LastFailureTime: micro(cut), LastSuccessTime: micro(cut.Add(-time.Hour)), ProbeToken: "t", ProbeResult: "Failed"},
		},
		Wake: &v1alpha1.Wake{Reason: "AllRoutesTripped", Until: micro(cut.Add(time.Second)), Routes: []string{"sick", "cool"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestTheStatusOfARunThatHasDoneNothingClaimsNothing(t *testing.T) {
	got := statusOf(1, loop.Progress{State: &loop.State{Asked: "a"}})
	if got.Ledger != nil || got.Routes != nil || got.Wake != nil || got.FailoverFrom != "" || got.LegDisplay != "a" {
		t.Errorf("status is %+v", got)
	}
}

func TestFinalSaysHowTheEpochEnded(t *testing.T) {
	state := aState()
	usage := aUsage()
	legs := []v1alpha1.LegUsage{ // by name
		{Name: "a", Usage: &v1alpha1.Usage{Requests: ptr.To[int64](3), Retries: ptr.To[int64](0), InputTokens: ptr.To[int64](0), CachedInputTokens: ptr.To[int64](0),
			CacheWriteTokens: ptr.To[int64](0), OutputTokens: ptr.To[int64](0), ReasoningTokens: ptr.To[int64](0), TotalTokens: ptr.To[int64](0), CostMicroUSD: ptr.To[int64](0), Cost: "0.00"}},
		{Name: "b", Usage: &v1alpha1.Usage{Requests: ptr.To[int64](4), Retries: ptr.To[int64](0), InputTokens: ptr.To[int64](1000), CachedInputTokens: ptr.To[int64](0),
			CacheWriteTokens: ptr.To[int64](0), OutputTokens: ptr.To[int64](20), ReasoningTokens: ptr.To[int64](0), TotalTokens: ptr.To[int64](1020), CostMicroUSD: ptr.To[int64](12_500), Cost: "0.0125"}},
	}
	head := ledger.Head{Seq: 9, Hash: "0123456789abcdef"}
	common := v1alpha1.Final{Usage: usage, Legs: legs, Head: &v1alpha1.LedgerHead{Seq: 9, Hash: "0123456789abcdef"}}
	for name, test := range map[string]struct {
		end  loop.End
		want func(*v1alpha1.Final)
	}{
		"completed": {loop.End{Finished: &record.RunEnd{Reason: "Completed", Message: "Done.", Text: "hello"}}, func(f *v1alpha1.Final) {
			f.Outcome, f.Reason, f.Message, f.Text = "Produced", "Completed", "Done.", "hello"
			// printf hello | sha256sum
			f.Size, f.SHA256, f.Path = ptr.To[int64](5), "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824", "result.txt"
		}},
		"without evidence": {loop.End{Finished: &record.RunEnd{Reason: "OutcomeUnknown", Message: "m"}}, func(f *v1alpha1.Final) {
			f.Outcome, f.Reason, f.Message = "Unknown", "OutcomeUnknown", "m"
		}},
		"failed": {loop.End{Finished: &record.RunEnd{Reason: "BudgetExceeded", Message: "m"}}, func(f *v1alpha1.Final) {
			f.Outcome, f.Reason, f.Message = "Failed", "BudgetExceeded", "m"
		}},
		"parked on routes": {loop.End{Parked: &record.RunPark{Reason: "Routes", Message: "m"}}, func(f *v1alpha1.Final) {
			f.Outcome, f.Reason, f.Message = "Parked", "AllRoutesTripped", "m"
		}},
		"interrupted": {loop.End{Suspended: &record.RunSuspend{}}, func(f *v1alpha1.Final) {
			f.Outcome, f.Reason, f.Message = "Interrupted", "Running", "The runner was asked to stop; what it did so far is in the ledger."
		}},
	} {
		t.Run(name, func(t *testing.T) {
			want := common
			test.want(&want)
			test.end.State, test.end.Head = state, head
			if diff := cmp.Diff(want, finalOf(test.end)); diff != "" {
				t.Errorf("final (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLongTextsAreCutForTheStatusAndMeasuredWhole(t *testing.T) {
	text := strings.Repeat("ä", 5000) // two bytes each
	got := finalOf(loop.End{State: &loop.State{}, Finished: &record.RunEnd{Reason: "Completed", Message: strings.Repeat("m", 3000), Text: text}})
	if got.Text != strings.Repeat("ä", 2048) || *got.Size != 10_000 {
		t.Errorf("an excerpt of %d bytes, size %d", len(got.Text), *got.Size)
	}
	if len(got.Message) != 2048 {
		t.Errorf("a message of %d bytes", len(got.Message))
	}
}

func TestASharedBreakerIsSeenByOneEpochOfOneRun(t *testing.T) {
	h := &v1alpha1.ProviderHealth{
		ObjectMeta: metav1.ObjectMeta{Name: "h", UID: "uid"},
		Status: v1alpha1.ProviderHealthStatus{
			State: v1alpha1.HealthHalfOpen, Generation: ptr.To[int64](8), Trips: ptr.To[int32](2), OpenUntil: micro(noon), CoolUntil: micro(noon.Add(1)),
			LastFailure: &v1alpha1.RouteFailure{Kind: "Timeout"},
			Probe:       &v1alpha1.Probe{RunUID: "run", Epoch: 3, Token: "token", ExpiresAt: *micro(noon.Add(2))},
		},
	}
	want := breaker.Shared{
		UID: "uid", Position: breaker.HalfOpen, Generation: 8, Trips: 2, OpenUntil: noon, CoolUntil: noon.Add(1), LastKind: failure.Timeout,
		ProbeExpires: noon.Add(2), ProbeToken: "token",
	}
	if diff := cmp.Diff(want, sharedOf(h, "run", 3)); diff != "" {
		t.Errorf("to whom the probe was given (-want +got):\n%s", diff)
	}
	want.ProbeToken = ""
	for name, got := range map[string]breaker.Shared{"another run": sharedOf(h, "other", 3), "another epoch": sharedOf(h, "run", 4)} {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for reason, want := range map[string]bool{v1alpha1.ReasonForcedOpen: true, v1alpha1.ReasonForcedClosed: true, "Closed": false} {
		h.Status.Conditions = []metav1.Condition{{Type: "Available", Reason: reason}}
		if got := sharedOf(h, "run", 3).Forced; got != want {
			t.Errorf("%s: forced is %v", reason, got)
		}
	}
	if diff := cmp.Diff(breaker.Shared{Position: breaker.Closed}, sharedOf(&v1alpha1.ProviderHealth{}, "", 0)); diff != "" {
		t.Errorf("an empty object (-want +got):\n%s", diff)
	}
}

func TestEveryHealthStateIsAPosition(t *testing.T) {
	for state, want := range map[v1alpha1.HealthState]breaker.Position{
		"Closed": breaker.Closed, "Cooling": breaker.Cooling, "Open": breaker.Open, "HalfOpen": breaker.HalfOpen,
	} {
		if got := positionOf(state); got != want {
			t.Errorf("%s is %s", state, got)
		}
	}
}

func TestOnlyLegsThatSomebodyHasToDoSomethingAboutAreReportedAsUnusable(t *testing.T) {
	got := unusable([]record.Skipped{
		{Leg: "a", Reason: "CredentialMissing"}, {Leg: "b", Reason: "RouteOpen"}, {Leg: "c", Reason: "NotSelected"},
		{Leg: "d", Reason: "Drained"}, {Leg: "e", Reason: "CredentialNotForHost"}, {Leg: "f", Reason: "WindowTooSmall"},
	})
	want := []v1alpha1.UnusableLeg{
		{Name: "a", Reason: "CredentialMissing"}, {Name: "e", Reason: "CredentialNotForHost"}, {Name: "f", Reason: "WindowTooSmall"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("unusable legs (-want +got):\n%s", diff)
	}
}
