package integration

import (
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"belay.dev/belay/api/v1alpha1"
	"belay.dev/belay/internal/runtime/ledger/record"
)

func TestRunParksWithoutAPodAndWakesWhenAProviderRecovers(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.provider("primary", outage)
	s.provider("backup", outage)
	ladder := s.ladder("primary", "backup")
	ladder.Spec.Waits = &v1alpha1.WaitPolicy{ParkAfterSeconds: ptr.To[int32](1)}
	ladder.Spec.Breaker = &v1alpha1.BreakerPolicy{BaseCooldownSeconds: ptr.To[int32](15)}
	s.create(s.secret("primary", "backup"), ladder, s.run("patient"))

	run := s.await("patient", long, "is parked", func(r *v1alpha1.AgentRun) bool { return isTrue(r, v1alpha1.ConditionParked) })
	seen := time.Now()
	wake := run.Status.Runner.Wake
	if wake == nil || wake.Until == nil || wake.Until.Sub(seen) > 15*time.Second || !wake.Until.After(run.CreationTimestamp.Time) {
		t.Errorf("the run waits for %+v, want a time within the cooldown of 15 s", wake)
	}
	if reason(run, v1alpha1.ConditionParked) != v1alpha1.ReasonAllRoutesTripped || reason(run, v1alpha1.ConditionRouteAvailable) != v1alpha1.ReasonAllRoutesTripped ||
		reason(run, v1alpha1.ConditionSucceeded) != v1alpha1.ReasonParked {
		t.Errorf("Parked is %s, RouteAvailable %s, Succeeded %s", condition(run, v1alpha1.ConditionParked), condition(run, v1alpha1.ConditionRouteAvailable), condition(run, v1alpha1.ConditionSucceeded))
	}
	for _, part := range []string{"until 20", `leg "primary" is open`, `leg "backup" is open`, "ServerError"} {
		if !strings.Contains(message(run, v1alpha1.ConditionParked), part) {
			t.Errorf("the message of Parked does not say %q: %s", part, message(run, v1alpha1.ConditionParked))
		}
	}
	s.eventually(soon, "the run has no pod", func() (bool, string) {
		var names []string
		for _, pod := range s.pods("patient") {
			names = append(names, pod.Name+" "+string(pod.Status.Phase))
		}
		return len(names) == 0, strings.Join(names, ", ")
	})
	if n := runners(t, run); n != 0 {
		t.Errorf("%d runner processes of the parked run live, want none", n)
	}
	s.wantAsked("primary", 3)
	s.wantAsked("backup", 3)

	s.provider("primary", oneAnswer)
	run = s.completes("patient")
	if isTrue(run, v1alpha1.ConditionParked) {
		t.Errorf("Parked is %s for a run that completed", condition(run, v1alpha1.ConditionParked))
	}
	if end := run.Status.Epochs[0].End; end != v1alpha1.EpochParked {
		t.Errorf("epoch 1 ended as %s, want Parked", end)
	}
	entries := s.ledger(run)
	if parks := payloads[record.RunPark](entries); len(parks) == 0 {
		t.Error("the ledger has no record of the park")
	}
	for _, r := range payloads[record.LLMRequest](entries)[6:] {
		if !r.Probe {
			t.Errorf("request %d to leg %s was sent to a route that was open, and is no probe", r.Attempt, r.Leg)
		}
	}
	if restarts := ptr.Deref(run.Status.Restarts, 0) + ptr.Deref(run.Status.Disruptions, 0); restarts != 0 {
		t.Errorf("a park counted as %d restarts or disruptions", restarts)
	}
	s.wantIntact(run)
}

func TestRunThatMayNotParkFailsWithoutAnotherRequest(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.provider("only", outage)
	ladder := s.ladder("only")
	ladder.Spec.Waits = &v1alpha1.WaitPolicy{ParkAfterSeconds: ptr.To[int32](1), OnAllTripped: v1alpha1.OnAllTrippedFail}
	ladder.Spec.Breaker = &v1alpha1.BreakerPolicy{BaseCooldownSeconds: ptr.To[int32](900)}
	s.create(s.secret("only"), ladder, s.run("hasty"))

	run := s.fails("hasty", v1alpha1.ReasonAllRoutesTripped)
	for _, part := range []string{`leg "only" is open for another`, "ServerError", "onAllTripped"} {
		if !strings.Contains(message(run, v1alpha1.ConditionSucceeded), part) {
			t.Errorf("the message does not say %q: %s", part, message(run, v1alpha1.ConditionSucceeded))
		}
	}
	s.wantAsked("only", 3)
	// Another run finds the route open and sends nothing at all.
	s.awaitHealth("only", v1alpha1.HealthOpen)
	s.create(s.run("late"))
	s.fails("late", v1alpha1.ReasonAllRoutesTripped)
	s.wantAsked("only", 3)
}
