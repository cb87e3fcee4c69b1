package lifecycle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Node is what a pod's status says about where it runs.
type Node struct {
	IP        string
	StartTime time.Time
}

// Status builds a pod's status from facts. The conditions that the node does not
// own, such as PodScheduled, are kept from pod; so are the transition times of
// the others where nothing changed.
func Status(pod *corev1.Pod, f Facts, node Node, now time.Time) corev1.PodStatus {
	spec := &pod.Spec
	decision := Decide(spec, f, now)
	s := *pod.Status.DeepCopy()
	s.ObservedGeneration = pod.Generation
	s.StartTime = &metav1.Time{Time: node.StartTime}
	s.HostIP, s.HostIPs = node.IP, []corev1.HostIP{{IP: node.IP}}
	if f.VolumesReady {
		s.PodIP, s.PodIPs = node.IP, []corev1.PodIP{{IP: node.IP}}
	}
	s.Phase = phase(spec, f, decision)
	s.Reason, s.Message = f.Reason, f.Message

	refused := f.Reason != "" && !f.VolumesReady
	s.InitContainerStatuses, s.ContainerStatuses = nil, nil
	if !refused {
		for i := range spec.InitContainers {
			s.InitContainerStatuses = append(s.InitContainerStatuses, containerStatus(spec, &spec.InitContainers[i], f, decision, now))
		}
		for i := range spec.Containers {
			s.ContainerStatuses = append(s.ContainerStatuses, containerStatus(spec, &spec.Containers[i], f, decision, now))
		}
	}
	for _, c := range conditions(pod, &s, f, decision) {
		setCondition(&s, c, now)
	}
	return s
}

// phase is terminal only when nothing of the pod runs any more.
func phase(spec *corev1.PodSpec, f Facts, d Decision) corev1.PodPhase {
	if d.Done {
		if f.Reason != "" || !succeeded(spec, f) {
			return corev1.PodFailed
		}
		return corev1.PodSucceeded
	}
	for i := range spec.Containers {
		if f.container(spec.Containers[i].Name).Attempted {
			return corev1.PodRunning
		}
	}
	return corev1.PodPending
}

func succeeded(spec *corev1.PodSpec, f Facts) bool {
	for i := range spec.Containers {
		c := f.container(spec.Containers[i].Name)
		if c.State != Exited || c.Last == nil || c.Last.ExitCode != 0 {
			return false
		}
	}
	return true
}

func containerStatus(spec *corev1.PodSpec, c *corev1.Container, f Facts, d Decision, now time.Time) corev1.ContainerStatus {
	facts := f.container(c.Name)
	init := slices.ContainsFunc(spec.InitContainers, func(i corev1.Container) bool { return i.Name == c.Name })
	running := facts.State == Running
	started := running && facts.Started
	out := corev1.ContainerStatus{
		Name: c.Name, Image: c.Image, ImageID: facts.ImageID, ContainerID: facts.ID,
		RestartCount: facts.Restarts, Started: &started, Ready: running && started && facts.Ready,
		State: state(spec, c, init, f, d, now),
	}
	if init && !IsSidecar(c) {
		// Of an init container Ready says that it is finished.
		out.Ready = facts.State == Exited && facts.Last.ExitCode == 0
	}
	switch {
	case facts.State == Exited && out.State.Terminated == nil:
		out.LastTerminationState.Terminated = facts.Last.api()
	case facts.State == Exited:
		out.LastTerminationState.Terminated = facts.Previous.api()
	default:
		out.LastTerminationState.Terminated = facts.Last.api()
	}
	return out
}

func state(spec *corev1.PodSpec, c *corev1.Container, init bool, f Facts, d Decision, now time.Time) corev1.ContainerState {
	facts := f.container(c.Name)
	waiting := func(reason, message string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	switch facts.State {
	case Running:
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(facts.StartedAt)}}
	case Exited:
		again := restarts(spec, c, facts)
		if init && !IsSidecar(c) {
			again = facts.Last.ExitCode != 0 && spec.RestartPolicy != corev1.RestartPolicyNever
		}
		if again && !d.Finishing && facts.WaitReason != "" {
			return waiting(facts.WaitReason, facts.WaitMessage)
		}
		if again && !d.Finishing && facts.RestartAt.After(now) {
			return waiting("CrashLoopBackOff", fmt.Sprintf("back-off restarting failed container=%s, next start at %s",
				c.Name, facts.RestartAt.UTC().Format(time.RFC3339)))
		}
		return corev1.ContainerState{Terminated: facts.Last.api()}
	case Waiting, Starting:
		if facts.WaitReason != "" {
			return waiting(facts.WaitReason, facts.WaitMessage)
		}
		// The kubelet's words: main containers of a pod with unfinished init
		// containers wait for the pod, all others for their own creation.
		if len(spec.InitContainers) > 0 && (!init || facts.State == Waiting) {
			return waiting("PodInitializing", "")
		}
	}
	return waiting("ContainerCreating", "")
}

func (t *Termination) api() *corev1.ContainerStateTerminated {
	if t == nil {
		return nil
	}
	return &corev1.ContainerStateTerminated{
		ExitCode: t.ExitCode, Reason: t.Reason, Message: t.Message,
		StartedAt: metav1.NewTime(t.StartedAt), FinishedAt: metav1.NewTime(t.FinishedAt), ContainerID: t.ContainerID,
	}
}

// conditions are the ones the node owns.
func conditions(pod *corev1.Pod, s *corev1.PodStatus, f Facts, d Decision) []corev1.PodCondition {
	sandbox := condition(corev1.PodReadyToStartContainers, f.VolumesReady && !d.Done, "", "")
	containers := containersReady(&pod.Spec, s)
	ready := containers
	ready.Type = corev1.PodReady
	if ready.Status == corev1.ConditionTrue {
		for _, gate := range pod.Spec.ReadinessGates {
			met := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == gate.ConditionType && c.Status == corev1.ConditionTrue
			})
			if !met {
				ready = condition(corev1.PodReady, false, "ReadinessGatesNotReady", fmt.Sprintf("the status of pod readiness gate %q is not \"True\"", gate.ConditionType))
			}
		}
	}
	out := []corev1.PodCondition{sandbox, initialized(&pod.Spec, s, f), ready, containers}
	if f.Disrupted {
		out = append(out, condition(corev1.DisruptionTarget, true, corev1.PodReasonTerminationByKubelet, f.Message))
	}
	for i := range out {
		out[i].ObservedGeneration = pod.Generation
	}
	return out
}

func condition(kind corev1.PodConditionType, ok bool, reason, message string) corev1.PodCondition {
	status := corev1.ConditionFalse
	if ok {
		status = corev1.ConditionTrue
	}
	return corev1.PodCondition{Type: kind, Status: status, Reason: reason, Message: message}
}

func containersReady(spec *corev1.PodSpec, s *corev1.PodStatus) corev1.PodCondition {
	const kind = corev1.ContainersReady
	switch s.Phase {
	case corev1.PodSucceeded:
		return condition(kind, false, "PodCompleted", "")
	case corev1.PodFailed:
		return condition(kind, false, "PodFailed", "")
	case corev1.PodPending, corev1.PodRunning, corev1.PodUnknown:
	}
	var unready []string
	for i, status := range s.InitContainerStatuses {
		if IsSidecar(&spec.InitContainers[i]) && !status.Ready {
			unready = append(unready, status.Name)
		}
	}
	for _, status := range s.ContainerStatuses {
		if !status.Ready {
			unready = append(unready, status.Name)
		}
	}
	if len(unready) > 0 {
		return condition(kind, false, "ContainersNotReady", "containers with unready status: ["+strings.Join(unready, " ")+"]")
	}
	return condition(kind, true, "", "")
}

func initialized(spec *corev1.PodSpec, s *corev1.PodStatus, f Facts) corev1.PodCondition {
	const kind = corev1.PodInitialized
	if s.Phase == corev1.PodSucceeded {
		return condition(kind, true, "PodCompleted", "")
	}
	for i := range spec.Containers {
		if f.container(spec.Containers[i].Name).Attempted {
			return condition(kind, true, "", "")
		}
	}
	if len(spec.InitContainers) > 0 && len(s.InitContainerStatuses) == 0 {
		return condition(kind, false, "UnknownContainerStatuses", "")
	}
	var incomplete []string
	for i, status := range s.InitContainerStatuses {
		done := status.Ready
		if IsSidecar(&spec.InitContainers[i]) {
			done = status.Started != nil && *status.Started
		}
		if !done {
			incomplete = append(incomplete, status.Name)
		}
	}
	if len(incomplete) > 0 {
		return condition(kind, false, "ContainersNotInitialized", "containers with incomplete status: ["+strings.Join(incomplete, " ")+"]")
	}
	return condition(kind, true, "", "")
}

func setCondition(s *corev1.PodStatus, c corev1.PodCondition, now time.Time) {
	c.LastTransitionTime = metav1.NewTime(now)
	for i := range s.Conditions {
		old := &s.Conditions[i]
		if old.Type != c.Type {
			continue
		}
		if old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		c.LastProbeTime = old.LastProbeTime
		*old = c
		return
	}
	s.Conditions = append(s.Conditions, c)
}
