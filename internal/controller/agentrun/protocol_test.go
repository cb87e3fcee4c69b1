package agentrun

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"belay.dev/belay/api/v1alpha1"
)

// TestARunGetsOnePodAtATime plays random histories: the manager is killed before or after any write and restarted with a
// cache that lags behind, while pods start, work, crash, exit, park, are evicted, and lose their node. At no moment may two pods of the
// run be able to run, and in the end the run must finish with every pod let go.
func TestARunGetsOnePodAtATime(t *testing.T) {
	for seed := range uint64(histories) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			h := &history{cluster: newCluster(t, testObjects()...), rand: rand.New(rand.NewPCG(seed, 17))} //nolint:gosec // a test's dice
			h.disturbance, h.lag, h.murder = 10+h.rand.IntN(30), h.rand.IntN(60), h.rand.IntN(50)
			run := h.run()
			run.Spec.RestartLimit, run.Spec.DisruptionLimit = ptr.To[int32](100), ptr.To[int32](1000)
			h.must(h.api.Update(t.Context(), run))
			h.refresh()
			for range 120 {
				h.step()
				h.check()
			}
			h.finish()
		})
	}
}

type history struct {
	*cluster
	rand     *rand.Rand
	lastSeen v1alpha1.AgentRunStatus
	nodeDown bool
	// disturbance, lag and murder are how often things go wrong in this history, in percent.
	disturbance, lag, murder int
}

// step lets one thing happen.
func (h *history) step() {
	switch dice := h.rand.IntN(100); {
	case dice < h.disturbance:
		if pods := h.pods(); len(pods) > 0 {
			h.disturb(&pods[h.rand.IntN(len(pods))])
		}
	case dice < 80:
		h.refresh()
		if h.rand.IntN(100) < h.lag {
			h.regress(h.rand.IntN(8), h.rand.IntN(8))
			h.note("the cache lags")
		}
		h.reconcile()
	case dice < 98:
		d := time.Duration(h.rand.IntN(120)) * time.Second
		h.clock.SetTime(h.clock.Now().Add(d))
		h.note("%s later", d)
	default:
		state := []v1alpha1.DesiredState{v1alpha1.DesiredStateSuspended, v1alpha1.DesiredStateRunning}[h.rand.IntN(2)]
		h.desire(state)
		h.note("desired %s", state)
	}
}

// reconcile is a pass that may be killed before a write, or after a write whose answer is lost.
func (h *history) reconcile() {
	h.writes, h.lost = -1, false
	if h.rand.IntN(100) < h.murder {
		h.writes, h.lost = h.rand.IntN(6), h.rand.IntN(2) == 0
	}
	h.note("pass with %d writes, answer lost: %t", h.writes, h.lost)
	if _, err := h.pass(); err != nil && !errors.Is(err, errKilled) {
		h.note("  error: %v", err)
	}
	h.writes, h.lost = -1, false
}

// disturb lets something happen to a pod.
func (h *history) disturb(pod *corev1.Pod) {
	terminal := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	bound, alive := pod.Spec.NodeName != "", h.alive[pod.UID]
	run := h.run()
	current := run.Status.PodName == pod.Name && run.Status.PodUID == string(pod.UID)
	switch dice := h.rand.IntN(100); {
	case h.nodeDown && dice < 20:
		h.note("the node comes back without its pods")
		h.nodeDown = false
		changeNode(h.cluster, func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionTrue })
		for _, p := range h.pods() {
			if h.alive[p.UID] {
				h.exit(p.Name, 1)
			}
		}
		clear(h.alive)
	case !terminal && dice < 30:
		h.note("pod %s is evicted", pod.Name)
		h.evict(pod.Name)
	case !bound && pod.DeletionTimestamp == nil && !h.nodeDown:
		h.note("pod %s starts", pod.Name)
		h.bind(pod.Name)
	case !alive || h.nodeDown:
	case !current:
		if dice < 60 {
			h.note("pod %s finds itself fenced", pod.Name)
			h.exit(pod.Name, 14)
		}
	case dice < 40:
		h.note("the node of pod %s goes silent", pod.Name)
		h.nodeDown = true
		changeNode(h.cluster, func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })
	case pod.DeletionTimestamp != nil:
		if dice < 60 {
			h.note("pod %s ends after SIGTERM", pod.Name)
			h.exit(pod.Name, 0)
		}
	case dice < 60:
		h.note("pod %s commits a turn", pod.Name)
		h.report(func(r *v1alpha1.RunnerStatus) { r.Turn = ptr.To(ptr.Deref(r.Turn, 0) + 1) })
	case dice < 80:
		h.note("pod %s crashes", pod.Name)
		h.exit(pod.Name, 137)
	default:
		h.note("pod %s parks", pod.Name)
		until := metav1.NewMicroTime(h.clock.Now().Add(30 * time.Second))
		h.report(func(r *v1alpha1.RunnerStatus) {
			r.Wake = &v1alpha1.Wake{Reason: v1alpha1.ReasonAllRoutesTripped, Until: &until}
			r.Final = &v1alpha1.Final{Outcome: v1alpha1.FinalParked, Reason: v1alpha1.ReasonAllRoutesTripped}
		})
		h.exit(pod.Name, 0)
	}
}

// check is what must hold at every moment.
func (h *history) check() {
	h.t.Helper()
	able := len(h.alive) // whether or not the API still knows them
	for _, pod := range h.pods() {
		if pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil {
			able++ // it may start at any moment
		}
	}
	if able > 1 {
		h.fatalf("%d pods of the run can run", able)
	}
	status := h.run().Status
	if status.Epoch < h.lastSeen.Epoch {
		h.fatalf("the epoch went from %d to %d", h.lastSeen.Epoch, status.Epoch)
	}
	if status.PodName != h.lastSeen.PodName && status.Epoch == h.lastSeen.Epoch {
		h.fatalf("podName went from %s to %s in one epoch", h.lastSeen.PodName, status.PodName)
	}
	for i := 1; i < len(status.Epochs); i++ {
		if status.Epochs[i].Epoch <= status.Epochs[i-1].Epoch {
			h.fatalf("epoch %d was recorded after epoch %d", status.Epochs[i].Epoch, status.Epochs[i-1].Epoch)
		}
	}
	counted := int64(ptr.Deref(status.Restarts, 0)) + int64(ptr.Deref(status.Disruptions, 0))
	if counted > status.Epoch {
		h.fatalf("%d ends were counted in %d epochs", counted, status.Epoch)
	}
	h.lastSeen = status
}

// finish lets everything go well from here on: the run must succeed, and no pod may be held.
func (h *history) finish() {
	h.t.Helper()
	h.note("from here on all goes well")
	if h.nodeDown {
		h.nodeDown = false
		changeNode(h.cluster, func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionTrue })
	}
	h.desire(v1alpha1.DesiredStateRunning)
	for range 60 {
		h.settle()
		h.check()
		run := h.run()
		if finished(run) {
			break
		}
		h.clock.SetTime(h.clock.Now().Add(5 * time.Minute))
		for _, pod := range h.pods() {
			switch {
			case h.alive[pod.UID] && pod.DeletionTimestamp != nil:
				h.exit(pod.Name, 0)
			case h.alive[pod.UID] && run.Status.PodUID == string(pod.UID):
				h.report(func(r *v1alpha1.RunnerStatus) {
					r.Final = &v1alpha1.Final{Outcome: v1alpha1.FinalProduced, Reason: v1alpha1.ReasonCompleted}
				})
				h.exit(pod.Name, 0)
			case h.alive[pod.UID]:
				h.exit(pod.Name, 14)
			case pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil:
				h.bind(pod.Name)
			}
		}
	}
	h.settle()
	run := h.run()
	if !meta.IsStatusConditionTrue(run.Status.Conditions, v1alpha1.ConditionSucceeded) {
		h.fatalf("the run did not succeed: %+v", run.Status)
	}
	for _, pod := range h.pods() {
		if len(pod.Finalizers) > 0 {
			h.fatalf("pod %s is still held", pod.Name)
		}
	}
}
