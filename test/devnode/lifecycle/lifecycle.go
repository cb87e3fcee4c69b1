// Package lifecycle decides what a node does with a pod's containers and what
// it says about them, as the kubelet does: which to start or stop next, the
// pod's phase, its conditions and the status of each container.
//
// It is pure: no clock, no files, no processes. It imports core/v1 and
// apimachinery only.
package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// State is what a container is doing.
type State int

const (
	// Waiting is a container that was never started, or waits to start again.
	Waiting State = iota
	// Starting is a container whose start is under way.
	Starting
	// Running is a container whose command runs.
	Running
	// Exited is a container whose command ended.
	Exited
)

// Termination is how a container's command ended.
type Termination struct {
	ExitCode              int32
	Reason, Message       string
	StartedAt, FinishedAt time.Time
	ContainerID           string
}

// Container is what a node knows about one container of a pod.
type Container struct {
	State State
	// WaitReason and WaitMessage say why a container is not started. Empty is
	// the kubelet's default for the situation.
	WaitReason, WaitMessage string
	ID                      string
	ImageID                 string
	StartedAt               time.Time
	// Started says that the startup probe succeeded, or that there is none and
	// the command runs.
	Started bool
	// Ready says that the readiness probe succeeds, or that there is none.
	Ready bool
	// Last is the newest end, Previous the one before it.
	Last, Previous *Termination
	Restarts       int32
	// Attempted says that the container was started at least once.
	Attempted bool
	// RestartAt is the earliest time for the next start.
	RestartAt time.Time
}

// Facts is what a node knows about a pod.
type Facts struct {
	// Containers by name, init containers included.
	Containers map[string]*Container
	// VolumesReady says that volumes are mounted and containers may start.
	VolumesReady bool
	// Stopping says that the pod has to end: it was deleted, or failed for a
	// reason outside its containers.
	Stopping bool
	// Reason and Message explain a failure outside the containers. With Reason
	// set the pod ends as Failed.
	Reason, Message string
	// Disrupted says that the failure was none of the pod's making.
	Disrupted bool
}

func (f Facts) container(name string) *Container {
	if c := f.Containers[name]; c != nil {
		return c
	}
	return &Container{}
}

// IsSidecar says that an init container keeps running beside the pod's main
// containers: a native sidecar.
func IsSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// Names returns the names of a pod's containers, init containers first.
func Names(spec *corev1.PodSpec) []string {
	var names []string
	for i := range spec.InitContainers {
		names = append(names, spec.InitContainers[i].Name)
	}
	for i := range spec.Containers {
		names = append(names, spec.Containers[i].Name)
	}
	return names
}
