package agentrun

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"belay.dev/belay/api/v1alpha1"
)

// wantConditions asserts status and reason of the named conditions, as "True/Completed", and that all conditions of the API
// exist, have reasons from their closed lists, and are of the run's generation.
func (c *cluster) wantConditions(want map[string]string) {
	c.t.Helper()
	run := c.run()
	for _, kind := range []string{
		v1alpha1.ConditionSucceeded, v1alpha1.ConditionFinished, v1alpha1.ConditionAdmitted, v1alpha1.ConditionPodReady,
		v1alpha1.ConditionParked, v1alpha1.ConditionSuspended, v1alpha1.ConditionLedgerHealthy, v1alpha1.ConditionRouteAvailable,
		v1alpha1.ConditionStalled,
	} {
		got := meta.FindStatusCondition(run.Status.Conditions, kind)
		if got == nil {
			c.t.Errorf("condition %s is missing", kind)
			continue
		}
		if !slices.Contains(v1alpha1.AgentRunReasons(kind), got.Reason) {
			c.t.Errorf("condition %s has reason %s, which is not on its list", kind, got.Reason)
		}
		if got.ObservedGeneration != run.Generation {
			c.t.Errorf("condition %s is of generation %d, the run of %d", kind, got.ObservedGeneration, run.Generation)
		}
		if w, asked := want[kind]; asked && w != string(got.Status)+"/"+got.Reason {
			c.t.Errorf("condition %s is %s/%s (%s), want %s", kind, got.Status, got.Reason, got.Message, w)
		}
	}
	if run.Status.ObservedGeneration != run.Generation {
		c.t.Errorf("observedGeneration is %d, want %d", run.Status.ObservedGeneration, run.Generation)
	}
}

func (c *cluster) message(kind string) string {
	c.t.Helper()
	got := meta.FindStatusCondition(c.run().Status.Conditions, kind)
	if got == nil {
		c.t.Fatalf("condition %s is missing", kind)
	}
	return got.Message
}

func (c *cluster) wantMessage(kind, part string) {
	c.t.Helper()
	if got := c.message(kind); !strings.Contains(got, part) {
		c.t.Errorf("the message of %s is %q, want it to contain %q", kind, got, part)
	}
}

func (c *cluster) later(d time.Duration) { c.clock.SetTime(c.clock.Now().Add(d)) }

func (c *cluster) podNames() []string {
	names := []string{}
	for _, pod := range c.pods() {
		names = append(names, pod.Name)
	}
	return names
}

func (c *cluster) wantPods(names ...string) {
	c.t.Helper()
	if diff := cmp.Diff(append([]string{}, names...), c.podNames()); diff != "" {
		c.t.Errorf("pods (-want +got):\n%s", diff)
	}
}

// edit changes the run as its author would.
func (c *cluster) edit(change func(*v1alpha1.AgentRunSpec)) {
	run := c.run()
	change(&run.Spec)
	run.Generation++
	c.must(c.api.Update(c.t.Context(), run))
}

func TestARunThatSucceeds(t *testing.T) {
	c := newCluster(t, testObjects()...)
	c.settle()
	c.wantConditions(map[string]string{
		"Succeeded": "Unknown/Running", "Finished": "False/NotFinished", "Admitted": "True/Accepted", "PodReady": "False/PodStarting",
		"Parked": "False/NotParked", "Suspended": "False/NotSuspended", "LedgerHealthy": "Unknown/NotReported",
		"RouteAvailable": "Unknown/NotReported", "Stalled": "False/NotStalled",
	})
	c.wantPods("report-1")
	c.bind("report-1")
	c.report(func(r *v1alpha1.RunnerStatus) {
		r.Turn, r.Leg, r.Ledger = ptr.To[int32](3), "a", &v1alpha1.LedgerHead{Seq: 9, Hash: "0123456789abcdef"}
	})
	c.settle()
	c.wantConditions(map[string]string{"PodReady": "True/PodReady", "LedgerHealthy": "True/Healthy", "RouteAvailable": "True/Available"})
	usage := &v1alpha1.Usage{InputTokens: ptr.To[int64](100), CostMicroUSD: ptr.To[int64](12500), Cost: "0.0125"}
	c.report(func(r *v1alpha1.RunnerStatus) {
		r.Final = &v1alpha1.Final{
			Outcome: v1alpha1.FinalProduced, Reason: "Completed", Message: "done in 3 turns", Text: "The report.", Size: ptr.To[int64](11),
			Usage: usage, Legs: []v1alpha1.LegUsage{{Name: "a", Usage: usage}},
		}
	})
	c.settle()
	c.wantConditions(map[string]string{"Succeeded": "Unknown/Running"}) // the pod has not ended
	c.later(time.Minute)
	c.exit("report-1", 0)
	c.settle()
	c.wantConditions(map[string]string{
		"Succeeded": "True/Completed", "Finished": "True/Finished", "Stalled": "False/NotStalled", "PodReady": "False/PodNotNeeded",
	})
	status := c.run().Status
	if status.Outcome != v1alpha1.OutcomeProduced || status.Result == nil || status.Result.Text != "The report." {
		t.Errorf("outcome %s, result %+v; want Produced with the report's text", status.Outcome, status.Result)
	}
	if diff := cmp.Diff(usage, status.Usage); diff != "" {
		t.Errorf("usage (-want +got):\n%s", diff)
	}
	if len(status.Epochs) != 1 || status.Epochs[0].End != v1alpha1.EpochFinished || ptr.Deref(status.ActiveSeconds, 0) != 60 {
		t.Errorf("epochs %+v, active for %v s; want one finished epoch of 60 s", status.Epochs, ptr.Deref(status.ActiveSeconds, 0))
	}
	if pod := c.pod("report-1"); pod == nil || len(pod.Finalizers) > 0 {
		t.Errorf("the finished run's pod is %v; want it kept for its logs, without our finalizer", pod)
	}
	golden(t, "status-succeeded.yaml", status)
	c.edit(func(s *v1alpha1.AgentRunSpec) { s.RestartLimit = ptr.To[int32](1) }) // kubectl wait needs the new generation in every condition
	c.settle()
	c.wantConditions(map[string]string{"Succeeded": "True/Completed"})
}

func TestAFailedRunIsStalledWithItsReason(t *testing.T) {
	c := newCluster(t, testObjects()...)
	c.settle()
	c.bind("report-1")
	c.report(func(r *v1alpha1.RunnerStatus) {
		r.Final = &v1alpha1.Final{Outcome: v1alpha1.FinalFailed, Reason: v1alpha1.ReasonRetriesExhausted, Message: "a: Network 5 times; b: Timeout 3 times"}
	})
	c.exit("report-1", 0)
	c.settle()
	c.wantConditions(map[string]string{"Succeeded": "False/RetriesExhausted", "Finished": "True/Finished", "Stalled": "True/RetriesExhausted"})
	c.wantMessage("Succeeded", "b: Timeout 3 times")
}

func TestARunWaitsForItsLadder(t *testing.T) {
	objects := slices.DeleteFunc(testObjects(), isLadder)
	c := newCluster(t, objects...)
	c.settle()
	c.wantConditions(map[string]string{"Admitted": "False/LadderNotFound", "Succeeded": "Unknown/Pending", "PodReady": "False/PodNotNeeded"})
	c.wantPods()
	c.must(c.api.Create(t.Context(), testLadder()))
	c.settle()
	c.wantConditions(map[string]string{"Admitted": "True/Accepted"})
	c.wantPods("report-1")
}

func isLadder[T any](obj T) bool { _, is := any(obj).(*v1alpha1.RouteLadder); return is }

func TestARunWaitsForALadderThatIsNotAccepted(t *testing.T) {
	ladder := testLadder()
	meta.SetStatusCondition(&ladder.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNoUsableLeg, Message: "every leg is drained", ObservedGeneration: 1,
	})
	c := newCluster(t, append(slices.DeleteFunc(testObjects(), isLadder), ladder)...)
	c.settle()
	c.wantConditions(map[string]string{"Admitted": "False/LadderUnusable"})
	c.wantMessage("Admitted", "every leg is drained")
	c.wantPods()
}

func TestARunWhosePolicyForbidsALegEndsWithoutAPod(t *testing.T) {
	tests := []struct {
		name    string
		routing *v1alpha1.Routing
		message string
	}{
		{"metered legs are denied by default", nil, "set routing.metered: Allow"},
		{"a class above the legs'", &v1alpha1.Routing{Metered: v1alpha1.MeteredAllow, SecurityClass: v1alpha1.SecurityClassInternal}, "the run needs at least Internal"},
		{"a leg that does not exist", &v1alpha1.Routing{Metered: v1alpha1.MeteredAllow, Legs: []string{"c"}}, "routing.legs names leg c"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := newCluster(t, testObjects()...)
			run := c.run()
			run.Spec.Routing = test.routing
			c.must(c.api.Update(t.Context(), run))
			c.settle()
			c.wantConditions(map[string]string{"Admitted": "False/PolicyConflict", "Succeeded": "False/PolicyConflict", "Finished": "True/Finished"})
			c.wantMessage("Succeeded", test.message)
			c.wantPods()
		})
	}
}

func TestACrashedPodIsReplacedAfterABackoffUntilTheLimit(t *testing.T) {
	c := newCluster(t, testObjects()...)
	c.edit(func(s *v1alpha1.AgentRunSpec) { s.RestartLimit = ptr.To[int32](2) })
	c.settle()
	c.bind("report-1")
	c.exit("report-1", 137)
	c.settle()
	c.wantConditions(map[string]string{"PodReady": "False/Backoff", "Succeeded": "Unknown/Running"})
	c.wantPods("report-1")
	c.later(time.Second)
	c.settle()
	c.wantPods("report-2")
	c.bind("report-2")
	c.exit("report-2", 137)
	c.settle()
	c.later(9 * time.Second)
	c.settle()
	c.wantPods("report-2") // the second fruitless pod waits 10 s
	c.later(time.Second)
	c.settle()
	c.wantPods("report-3")
	c.bind("report-3")
	c.exit("report-3", 137)
	c.settle()
	c.wantConditions(map[string]string{"Succeeded": "False/RestartLimit", "Stalled": "True/RestartLimit"})
	c.wantMessage("Succeeded", "container runner ended with exit code 137")
	if got := ptr.Deref(c.run().Status.Restarts, 0); got != 3 {
		t.Errorf("%d restarts were counted, want 3", got)
	}
}

func TestAnEvictedPodCountsAsADisruptionAndResumes(t *testing.T) {
	c := newCluster(t, testObjects()...)
	c.settle()
	c.bind("report-1")
	c.report(func(r *v1alpha1.RunnerStatus) { r.Turn = ptr.To[int32](2) })
	c.evict("report-1")
	c.settle()
	c.wantConditions(map[string]string{"PodReady": "False/PodEnding"})
	c.exit("report-1", 0)
	c.settle()
	c.later(time.Second)
	c.settle()
	c.wantPods("report-2")
	status := c.run().Status
	if ptr.Deref(status.Disruptions, 0) != 1 || ptr.Deref(status.Restarts, 0) != 0 || ptr.Deref(status.Resumes, 0) != 1 {
		t.Errorf("disruptions %v, restarts %v, resumes %v; want 1, 0, 1", status.Disruptions, status.Restarts, status.Resumes)
	}
	if got := status.Epochs[0]; got.End != v1alpha1.EpochDisrupted || got.NodeName != "node-1" || ptr.Deref(got.Turn, 0) != 2 {
		t.Errorf("epoch 1 is recorded as %+v; want Disrupted on node-1 at turn 2", got)
	}
}

func TestAPodOnASilentNodeHoldsBackTheNext(t *testing.T) {
	tests := []struct {
		name   string
		free   func(c *cluster)
		reason string
	}{
		{"until the node is gone", func(c *cluster) {
			c.must(c.api.Delete(c.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}))
		}, "node node-1 is gone"},
		{"until the node is out of service", func(c *cluster) {
			changeNode(c, func(n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{{Key: "node.kubernetes.io/out-of-service", Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}}
			})
		}, "node node-1 is out of service"},
		{"until the node reports", func(c *cluster) { c.exit("report-1", 137) }, "the pod was deleted"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := newCluster(t, testObjects()...)
			c.settle()
			c.bind("report-1")
			changeNode(c, func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })
			c.evict("report-1")
			c.settle()
			c.later(24 * time.Hour / 2)
			c.settle()
			c.wantConditions(map[string]string{"PodReady": "False/NodeUnreachable"})
			c.wantMessage("PodReady", "node.kubernetes.io/out-of-service")
			c.wantPods("report-1")
			test.free(c)
			c.settle()
			c.later(time.Second)
			c.settle()
			c.wantPods("report-2")
			if got := c.run().Status.Epochs[0]; got.End != v1alpha1.EpochDisrupted || (got.Message != test.reason && !strings.Contains(got.Message, "exit code 137")) {
				t.Errorf("epoch 1 is recorded as %s, %q; want Disrupted, %q", got.End, got.Message, test.reason)
			}
		})
	}
}

func TestNoPodIsCreatedWhileAnotherOfTheRunLives(t *testing.T) {
	c := newCluster(t, testObjects()...)
	c.settle()
	c.bind("report-1")
	run := c.run()
	run.Status.Epoch, run.Status.PodName, run.Status.PodUID = 2, "report-2", "" // as if another manager had gone on
	c.must(c.api.Status().Update(t.Context(), run))
	c.settle()
	c.wantConditions(map[string]string{"PodReady": "False/MultiplePods"})
	c.wantPods("report-1")
	if c.pod("report-1").DeletionTimestamp == nil {
		t.Error("the pod of epoch 1 is not deleted although the run is in epoch 2")
	}
	c.exit("report-1", 14)
	c.settle()
	c.wantPods("report-2")
}

func changeNode(c *cluster, change func(*corev1.Node)) {
	c.t.Helper()
	read := func() *corev1.Node {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
		c.must(c.api.Get(c.t.Context(), clientKey(node), node))
		change(node)
		return node
	}
	c.must(c.api.Update(c.t.Context(), read()))
	c.must(c.api.Status().Update(c.t.Context(), read()))
}

func TestAPodThatNeverHadANodeHoldsBackNothing(t *testing.T) {
	c := newCluster(t, testObjects()...)
	c.settle()
	c.evict("report-1")
	c.settle()
	c.later(time.Second)
	c.settle()
	c.wantPods("report-2")
}

func TestAPodThatDoesNotStartInTimeEndsTheRun(t *testing.T) {
	c := newCluster(t, testObjects()...)
	c.settle()
	c.podStatus("report-1", func(s *corev1.PodStatus) {
		s.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "pod has unbound immediate PersistentVolumeClaims"}}
	})
	c.settle()
	c.wantMessage("PodReady", "set workspace.volume.accessMode: ReadWriteOnce")
	c.later(600 * time.Second)
	c.settle()
	c.wantConditions(map[string]string{"Succeeded": "False/StartupDeadline"})
	c.wantMessage("Succeeded", "startupDeadlineSeconds (600)")
	c.wantMessage("Succeeded", "unbound immediate PersistentVolumeClaims")
}

func TestARunThatHadAPodForTooLongEnds(t *testing.T) {
	c := newCluster(t, testObjects()...)
	c.edit(func(s *v1alpha1.AgentRunSpec) { s.Limits = &v1alpha1.Limits{ActiveDeadlineSeconds: 100} })
	c.settle()
	c.bind("report-1")
	c.later(100 * time.Second)
	c.settle()
	c.wantPods("report-1")
	if c.pod("report-1").DeletionTimestamp != nil {
		t.Error("the pod was taken away at the deadline; the runner has 30 s to end by itself")
	}
	c.later(30 * time.Second)
	c.settle()
	c.exit("report-1", 0)
	c.settle()
	c.wantConditions(map[string]string{"Succeeded": "False/DeadlineExceeded"})
}

func TestAForeignPodOfTheNameIsLeftAlone(t *testing.T) {
	foreign := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: "report-1", UID: "foreign"}}
	c := newCluster(t, append(testObjects(), foreign)...)
	c.settle()
	c.wantConditions(map[string]string{"PodReady": "False/PodNameTaken"})
	if got := c.pod("report-1"); got.UID != "foreign" || got.DeletionTimestamp != nil {
		t.Errorf("the foreign pod became %+v", got.ObjectMeta)
	}
	c.must(c.api.Delete(t.Context(), foreign))
	c.settle()
	c.wantConditions(map[string]string{"PodReady": "False/PodStarting"})
}

func TestAFencedPodIsFollowedByANewerEpochThanTheLedgers(t *testing.T) {
	c := newCluster(t, testObjects()...)
	c.settle()
	c.bind("report-1")
	c.report(func(r *v1alpha1.RunnerStatus) {
		r.Final = &v1alpha1.Final{Outcome: v1alpha1.FinalFenced, Reason: "Fenced", LedgerEpoch: 7}
	})
	c.exit("report-1", 14)
	c.settle()
	c.later(time.Second)
	c.settle()
	c.wantPods("report-8")
}

func TestAReportOfAnEarlierEpochIsNotTheEndOfALaterOne(t *testing.T) {
	c := parkedCluster(t)
	c.later(time.Hour)
	c.settle()
	c.bind("report-2")
	c.exit("report-2", 137) // it crashed before its first report; the block still holds the park of epoch 1
	c.settle()
	c.wantConditions(map[string]string{"Parked": "False/NotParked"})
	if got := c.run().Status.Epochs[1].End; got != v1alpha1.EpochFailed {
		t.Errorf("epoch 2 is recorded as %s, want Failed", got)
	}
}

func TestAFinishedRunIsDeletedAfterItsTimeToLive(t *testing.T) {
	c := newCluster(t, testObjects()...)
	c.edit(func(s *v1alpha1.AgentRunSpec) { s.TTLSecondsAfterFinished = ptr.To[int32](60) })
	c.settle()
	c.later(30 * time.Minute) // running time does not count
	c.bind("report-1")
	c.report(func(r *v1alpha1.RunnerStatus) {
		r.Final = &v1alpha1.Final{Outcome: v1alpha1.FinalProduced, Reason: "Completed"}
	})
	c.exit("report-1", 0)
	if result := c.settle(); result.RequeueAfter != time.Minute {
		t.Errorf("the next look is in %s, want in one minute", result.RequeueAfter)
	}
	c.later(time.Minute)
	c.settle()
	if run := c.maybeRun(); run != nil {
		t.Error("the run still exists after its time to live")
	}
}

func TestThePodsOfADeletedRunAreLetGo(t *testing.T) {
	c := newCluster(t, testObjects()...)
	c.settle()
	c.bind("report-1")
	c.must(c.api.Delete(t.Context(), c.run()))
	c.evict("report-1") // the garbage collector's doing
	c.settle()
	if pod := c.pod("report-1"); pod != nil {
		t.Errorf("pod %s is still held by %v", pod.Name, pod.Finalizers)
	}
}

func TestAQuotaHoldsThePodBackAndIsTriedAgain(t *testing.T) {
	c := newCluster(t, testObjects()...)
	c.forbid = "Pod"
	result := c.settle()
	c.wantConditions(map[string]string{"PodReady": "False/PodCreateFailed", "Succeeded": "Unknown/Pending"})
	c.wantMessage("PodReady", "exceeded quota")
	if result.RequeueAfter != createRetry {
		t.Errorf("the next try is in %s, want %s", result.RequeueAfter, createRetry)
	}
	c.forbid = ""
	c.settle()
	c.wantPods("report-1")
	c.wantConditions(map[string]string{"PodReady": "False/PodStarting"})
}

func TestAnUndisturbedRunCostsFourWrites(t *testing.T) {
	c := newCluster(t, testObjects()...)
	c.settle()
	c.must(c.api.Delete(t.Context(), c.pod("report-1")))
	writes := []string{}
	for _, line := range c.log {
		if strings.HasPrefix(line, "  manager: ") && !strings.Contains(line, "belay-runner") { // the namespace's own, once for all runs
			writes = append(writes, strings.TrimSuffix(strings.TrimPrefix(line, "  manager: "), ": <nil>"))
		}
	}
	want := []string{"apply the run's status", "create *v1.PersistentVolumeClaim belay-run-uid", "create *v1.Pod report-1", "apply the run's status"}
	if diff := cmp.Diff(want, writes); diff != "" {
		t.Errorf("writes until the pod exists (-want +got):\n%s", diff)
	}
}

var errQuota = apierrors.NewForbidden(corev1.Resource("pods"), "report-1", errQuotaCause{})

type errQuotaCause struct{}

func (errQuotaCause) Error() string { return "exceeded quota: pods" }
