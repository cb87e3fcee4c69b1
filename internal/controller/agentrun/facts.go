package agentrun

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"belay.dev/belay/api/v1alpha1"
)

// facts are all that a decision is made from. observe fills them.
type facts struct {
	now time.Time
	run *v1alpha1.AgentRun
	// ladder is nil if it does not exist.
	ladder *v1alpha1.RouteLadder
	// pods are the pods that the run owns, whatever their epoch.
	pods []podFacts
	// foreignPod is set if a pod that the run does not own has the name of the epoch's pod.
	foreignPod bool
	// reopened is the name of a route that a parked run waits for and that works again; empty if there is none.
	reopened string
	// orphans are pods of earlier runs of the same name.
	orphans []podRef
}

// nodeState is what is known about the node of a pod that is being deleted.
type nodeState int

const (
	nodeUnknown      nodeState = iota // not looked up
	nodePresent                       // it exists and will report
	nodeNotReady                      // it exists but does not report
	nodeGone                          // it does not exist any more
	nodeOutOfService                  // it has the taint by which an operator vouches that nothing runs there
)

// podFacts are what matters of one pod.
type podFacts struct {
	name     string
	uid      types.UID
	epoch    int64
	nodeName string
	created  metav1.Time
	// deleted is set if someone asked for the pod's deletion.
	deleted bool
	// held is set while our finalizer keeps the object.
	held bool
	// terminal is set if the kubelet, or what stands in for it, said that all containers are done.
	terminal bool
	// started is set once the runner's container ran.
	started bool
	ready   bool
	// node is looked up only for pods that are deleted and not terminal.
	node nodeState
	// exitCode is the runner's, nil if it has none.
	exitCode *int32
	// disrupted is set if the pod's status says that the cluster took the pod away.
	disrupted bool
	// message says for people why the pod does not run yet, or why it ended.
	message string
}

// over says that no container of the pod runs or ever will. A deleted pod that was never bound has no node that could
// start it; a node that is gone or vouched for runs nothing.
func (p *podFacts) over() bool {
	switch {
	case p.terminal:
		return true
	case !p.deleted:
		return false
	default:
		return p.nodeName == "" || p.node == nodeGone || p.node == nodeOutOfService
	}
}

// podFactsOf reads a pod of a run.
func podFactsOf(pod *corev1.Pod) podFacts {
	p := podFacts{
		name:      pod.Name,
		uid:       pod.UID,
		nodeName:  pod.Spec.NodeName,
		created:   pod.CreationTimestamp,
		deleted:   pod.DeletionTimestamp != nil,
		terminal:  pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed,
		disrupted: wasDisrupted(pod),
	}
	p.epoch, _ = strconv.ParseInt(pod.Labels[v1alpha1.LabelEpoch], 10, 64)
	for _, f := range pod.Finalizers {
		p.held = p.held || f == v1alpha1.FinalizerEndRecorded
	}
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		if status.Name != containerRunner {
			continue
		}
		p.ready = status.Ready && status.State.Running != nil
		p.started = status.State.Running != nil || status.State.Terminated != nil
		if t := status.State.Terminated; t != nil {
			p.exitCode = &t.ExitCode
		}
	}
	if p.terminal {
		p.message = endMessage(pod)
	} else {
		p.message = startMessage(pod)
	}
	return p
}

// wasDisrupted tells the cluster's doing from the run's own. An eviction without the condition DisruptionTarget is the
// kubelet's answer to a pod that exceeded its own limits.
func wasDisrupted(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	switch reason := pod.Status.Reason; {
	case reason == "Evicted":
		return false
	case reason == "NodeLost", reason == "NodeShutdown", reason == "Shutdown", reason == "Terminated", reason == "Preempting",
		reason == "NodeAffinity", reason == "UnexpectedAdmissionError", strings.HasPrefix(reason, "OutOf"):
		return true
	default:
		return false
	}
}

// endMessage says why a terminal pod ended, in the kubelet's words where it has any. The runner's termination message is
// Belay's own text; other containers' messages are not shown, because they may hold anything.
func endMessage(pod *corev1.Pod) string {
	if pod.Status.Reason != "" {
		return strings.TrimSpace(pod.Status.Reason + ": " + pod.Status.Message)
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			status := &statuses[i]
			t := status.State.Terminated
			if t == nil || t.ExitCode == 0 || status.Name == containerWorkspace {
				continue
			}
			text := fmt.Sprintf("container %s ended with exit code %d", status.Name, t.ExitCode)
			if t.Reason != "" && t.Reason != "Error" {
				text += " (" + t.Reason + ")"
			}
			if status.Name == containerRunner && t.Message != "" {
				text += ": " + t.Message
			}
			return text
		}
	}
	return ""
}

// startMessage says why a pod's runner does not run yet.
func startMessage(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Message != "" {
			return "the pod is not scheduled: " + c.Message + claimHint(c.Message)
		}
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			status := &statuses[i]
			w := status.State.Waiting
			if w == nil || w.Reason == "" || w.Reason == "PodInitializing" || w.Reason == "ContainerCreating" {
				continue
			}
			return strings.TrimSuffix(fmt.Sprintf("container %s waits: %s: %s", status.Name, w.Reason, w.Message), ": ")
		}
	}
	for i := range pod.Status.InitContainerStatuses {
		if status := &pod.Status.InitContainerStatuses[i]; status.State.Running != nil && status.Name != containerWorkspace {
			return "container " + status.Name + " runs"
		}
	}
	return ""
}

// claimHint says which field to change when a pod waits for its claim.
func claimHint(schedulerMessage string) string {
	if !strings.Contains(strings.ToLower(schedulerMessage), "persistentvolumeclaim") {
		return ""
	}
	return "; if the claim's storage class does not support ReadWriteOncePod, which only CSI drivers do, set " +
		"workspace.volume.accessMode: ReadWriteOnce"
}

// current is the pod of the run's epoch, nil if it is not there.
func (f *facts) current() *podFacts {
	status := &f.run.Status
	for i := range f.pods {
		p := &f.pods[i]
		if status.PodUID != "" && p.uid == types.UID(status.PodUID) {
			return p
		}
		if status.PodUID == "" && status.PodName != "" && p.name == status.PodName {
			return p
		}
	}
	return nil
}

// recorded says whether the end of the run's epoch is recorded.
func (f *facts) recorded() bool { return lastRecord(f.run) != nil }

// lastRecord is the record of the run's epoch, nil if its pod has not ended or there is no epoch.
func lastRecord(run *v1alpha1.AgentRun) *v1alpha1.EpochRecord {
	epochs := run.Status.Epochs
	if n := len(epochs); n > 0 && epochs[n-1].Epoch == run.Status.Epoch {
		return &epochs[n-1]
	}
	return nil
}

// final is the last report of the epoch's pod, nil if there is none. Reports of other epochs do not count.
func final(run *v1alpha1.AgentRun) *v1alpha1.Final {
	runner := run.Status.Runner
	if runner == nil || runner.Epoch != run.Status.Epoch {
		return nil
	}
	return runner.Final
}

// doubtful says whether what a cache shows would lead to a decision that a stale cache could falsify.
func (f *facts) doubtful() bool {
	status := &f.run.Status
	switch {
	case status.Epoch == 0 || f.recorded():
		return false
	case status.PodUID == "":
		return true // a pod would be created
	}
	p := f.current()
	if p == nil {
		return true // the pod would be called gone
	}
	return p.over() && final(f.run) == nil // the pod would be said to have ended without a report
}
