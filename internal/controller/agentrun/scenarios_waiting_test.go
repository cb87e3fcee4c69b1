package agentrun

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"belay.dev/belay/api/v1alpha1"
)

func TestAParkedRunHasNoPodUntilItsTime(t *testing.T) {
	c := parkedCluster(t)
	c.wantConditions(map[string]string{"Parked": "True/AllRoutesTripped", "Succeeded": "Unknown/Parked", "PodReady": "False/PodNotNeeded", "RouteAvailable": "False/AllRoutesTripped"})
	c.wantMessage("Parked", "until 2026-03-01T13:00:00Z at the latest")
	c.wantPods()
	c.later(59 * time.Minute)
	c.settle()
	c.wantPods()
	c.later(time.Minute)
	c.settle()
	c.wantPods("report-2")
	c.wantConditions(map[string]string{"Parked": "False/NotParked", "Succeeded": "Unknown/Running", "RouteAvailable": "Unknown/NotReported"})
	if got := c.run().Status; ptr.Deref(got.Disruptions, 0)+ptr.Deref(got.Restarts, 0) != 0 {
		t.Errorf("a park counted as %v disruptions and %v restarts", got.Disruptions, got.Restarts)
	}
}

// parkedCluster has a run that parked at 12:00 until 13:00 because of route "r", which it saw in generation 4.
func parkedCluster(t *testing.T) *cluster {
	t.Helper()
	c := newCluster(t, testObjects()...)
	c.settle()
	c.bind("report-1")
	until := metav1.NewMicroTime(start.Add(time.Hour))
	c.report(func(r *v1alpha1.RunnerStatus) {
		r.Routes = []v1alpha1.RouteLevel{{Route: "r", Generation: ptr.To[int64](4)}}
		r.Wake = &v1alpha1.Wake{Reason: v1alpha1.ReasonAllRoutesTripped, Until: &until, Routes: []string{"r"}}
		r.Final = &v1alpha1.Final{Outcome: v1alpha1.FinalParked, Reason: v1alpha1.ReasonAllRoutesTripped, Message: "a is open"}
	})
	c.exit("report-1", 0)
	c.settle()
	return c
}

func TestTheStatusOfAParkedRun(t *testing.T) {
	golden(t, "status-parked.yaml", parkedCluster(t).run().Status)
}

func TestAParkedRunWakesWhenARouteReopens(t *testing.T) {
	tests := []struct {
		name       string
		state      v1alpha1.HealthState
		generation int64
		probe      *v1alpha1.Probe
		wakes      bool
	}{
		{"closed in a new generation", v1alpha1.HealthClosed, 5, nil, true},
		{"closed, but in the generation in which the run parked", v1alpha1.HealthClosed, 4, nil, false},
		{"open", v1alpha1.HealthOpen, 5, nil, false},
		{"half-open for another run", v1alpha1.HealthHalfOpen, 5, &v1alpha1.Probe{RunUID: "other"}, false},
		{"half-open for this run", v1alpha1.HealthHalfOpen, 5, &v1alpha1.Probe{RunUID: "run-uid"}, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := parkedCluster(t)
			health := &v1alpha1.ProviderHealth{ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: "r"}}
			c.must(c.api.Create(t.Context(), health))
			health.Status = v1alpha1.ProviderHealthStatus{State: test.state, Generation: &test.generation, Probe: test.probe}
			c.must(c.api.Status().Update(t.Context(), health))
			c.later(parkedWait)
			c.settle()
			if got := len(c.pods()) > 0; got != test.wakes {
				t.Errorf("the run has a pod: %t, want %t", got, test.wakes)
			}
		})
	}
}

func TestAParkThatLastsTooLongEndsTheRun(t *testing.T) {
	c := parkedCluster(t)
	run := c.run()
	run.Status.Runner.Wake.Until = ptr.To(metav1.NewMicroTime(start.Add(30 * 24 * time.Hour)))
	c.must(c.api.Status().Update(t.Context(), run))
	c.later(7 * 24 * time.Hour)
	c.settle()
	c.wantConditions(map[string]string{"Succeeded": "False/AllRoutesTripped", "Parked": "False/NotParked", "Finished": "True/Finished"})
	c.wantMessage("Succeeded", "limits.maxParkedSeconds (604800)")
	c.wantMessage("Succeeded", "a is open")
}

func TestAChangedLadderWakesAParkedRun(t *testing.T) {
	c := parkedCluster(t)
	ladder := testLadder()
	c.must(c.api.Get(t.Context(), clientKey(ladder), ladder))
	ladder.Generation++
	c.must(c.api.Update(t.Context(), ladder))
	c.later(parkedWait)
	c.settle()
	c.wantPods("report-2")
}

func TestSuspendingGivesThePodBackAndResumingContinues(t *testing.T) {
	c := newCluster(t, testObjects()...)
	c.settle()
	c.bind("report-1")
	c.desire(v1alpha1.DesiredStateSuspended)
	c.settle()
	c.wantConditions(map[string]string{"Suspended": "False/Suspending", "PodReady": "False/PodEnding"})
	c.exit("report-1", 0)
	c.settle()
	c.wantConditions(map[string]string{"Suspended": "True/Suspended", "Succeeded": "Unknown/Suspended"})
	c.wantPods()
	c.later(240 * time.Hour)
	c.settle()
	c.wantPods()
	c.desire(v1alpha1.DesiredStateRunning)
	c.settle()
	c.wantPods("report-2")
	c.wantConditions(map[string]string{"Suspended": "False/NotSuspended"})
	if got := c.run().Status; ptr.Deref(got.Disruptions, 0)+ptr.Deref(got.Restarts, 0) != 0 {
		t.Errorf("a suspension counted as %v disruptions and %v restarts", got.Disruptions, got.Restarts)
	}
}

func TestARunThatIsCreatedSuspendedHasNoPod(t *testing.T) {
	c := newCluster(t, testObjects()...)
	c.desire(v1alpha1.DesiredStateSuspended)
	c.settle()
	c.wantConditions(map[string]string{"Suspended": "True/Suspended"})
	c.wantPods()
}

func TestCancellingEndsTheRunOnceItsPodHasEnded(t *testing.T) {
	c := newCluster(t, testObjects()...)
	c.settle()
	c.bind("report-1")
	c.desire(v1alpha1.DesiredStateCancelled)
	c.settle()
	c.wantConditions(map[string]string{"Finished": "False/NotFinished"})
	c.exit("report-1", 0)
	c.settle()
	c.wantConditions(map[string]string{"Succeeded": "False/Cancelled", "Finished": "True/Finished"})
}

func TestARunThatFinishedWhileItWasCancelledKeepsItsResult(t *testing.T) {
	c := newCluster(t, testObjects()...)
	c.settle()
	c.bind("report-1")
	c.report(func(r *v1alpha1.RunnerStatus) {
		r.Final = &v1alpha1.Final{Outcome: v1alpha1.FinalProduced, Reason: "Completed", Text: "done"}
	})
	c.desire(v1alpha1.DesiredStateCancelled)
	c.exit("report-1", 0)
	c.settle()
	c.wantConditions(map[string]string{"Succeeded": "True/Completed"})
}
