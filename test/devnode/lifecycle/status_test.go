package lifecycle

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func statusOf(policy corev1.RestartPolicy, f Facts) corev1.PodStatus {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "run-1", Generation: 2}, Spec: *agentSpec(policy)}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
	return Status(p, f, Node{IP: "127.0.0.1", StartTime: noon.Add(-time.Minute)}, noon)
}

func TestPhaseAndConditions(t *testing.T) {
	type containers = map[string]*Container
	ready := containers{"install": exited(0), "side": up(), "setup": exited(0), "late": up(), "a": up(), "b": up()}
	with := func(changes containers) containers {
		out := containers{}
		for k, v := range ready {
			out[k] = v
		}
		for k, v := range changes {
			out[k] = v
		}
		return out
	}
	unready := &Container{State: Running, Attempted: true, Started: true}

	type summary struct {
		Phase                                   corev1.PodPhase
		Sandbox, Initialized, Containers, Ready string
	}
	for name, c := range map[string]struct {
		policy corev1.RestartPolicy
		facts  Facts
		want   summary
	}{
		"new": {
			facts: Facts{},
			want: summary{corev1.PodPending, "False", "False ContainersNotInitialized containers with incomplete status: [install side setup late]",
				"False ContainersNotReady containers with unready status: [side late a b]", "False ContainersNotReady containers with unready status: [side late a b]"},
		},
		"initialising": {
			facts: Facts{VolumesReady: true, Containers: containers{"install": exited(0), "side": up(), "setup": up()}},
			want: summary{corev1.PodPending, "True", "False ContainersNotInitialized containers with incomplete status: [setup late]",
				"False ContainersNotReady containers with unready status: [late a b]", "False ContainersNotReady containers with unready status: [late a b]"},
		},
		"ready": {
			facts: Facts{VolumesReady: true, Containers: ready},
			want:  summary{corev1.PodRunning, "True", "True", "True", "True"},
		},
		"one not ready": {
			facts: Facts{VolumesReady: true, Containers: with(containers{"b": unready})},
			want: summary{corev1.PodRunning, "True", "True",
				"False ContainersNotReady containers with unready status: [b]", "False ContainersNotReady containers with unready status: [b]"},
		},
		"main containers over, sidecars not": {
			facts: Facts{VolumesReady: true, Containers: with(containers{"a": exited(0), "b": exited(0)})},
			want: summary{corev1.PodRunning, "True", "True",
				"False ContainersNotReady containers with unready status: [a b]", "False ContainersNotReady containers with unready status: [a b]"},
		},
		"succeeded": {
			facts: Facts{VolumesReady: true, Containers: with(containers{"a": exited(0), "b": exited(0), "side": exited(137), "late": exited(0)})},
			want:  summary{corev1.PodSucceeded, "False", "True PodCompleted", "False PodCompleted", "False PodCompleted"},
		},
		"failed": {
			facts: Facts{VolumesReady: true, Containers: with(containers{"a": exited(0), "b": exited(137), "side": exited(0), "late": exited(0)})},
			want:  summary{corev1.PodFailed, "False", "True", "False PodFailed", "False PodFailed"},
		},
		"failed in an init container": {
			facts: Facts{VolumesReady: true, Containers: containers{"install": exited(2)}},
			want: summary{corev1.PodFailed, "False", "False ContainersNotInitialized containers with incomplete status: [install side setup late]",
				"False PodFailed", "False PodFailed"},
		},
		"deleted before it began": {
			facts: Facts{Stopping: true},
			want: summary{corev1.PodFailed, "False", "False ContainersNotInitialized containers with incomplete status: [install side setup late]",
				"False PodFailed", "False PodFailed"},
		},
		"evicted after a success": {
			facts: Facts{VolumesReady: true, Reason: "Evicted", Containers: with(containers{"a": exited(0), "b": exited(0), "side": exited(0), "late": exited(0)})},
			want:  summary{corev1.PodFailed, "False", "True", "False PodFailed", "False PodFailed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			policy := c.policy
			if policy == "" {
				policy = corev1.RestartPolicyNever
			}
			s := statusOf(policy, c.facts)
			text := func(kind corev1.PodConditionType) string {
				for _, c := range s.Conditions {
					if c.Type == kind {
						out := string(c.Status)
						for _, more := range []string{c.Reason, c.Message} {
							if more != "" {
								out += " " + more
							}
						}
						return out
					}
				}
				return "absent"
			}
			got := summary{s.Phase, text(corev1.PodReadyToStartContainers), text(corev1.PodInitialized), text(corev1.ContainersReady), text(corev1.PodReady)}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("the status is otherwise (-want +got):\n%s", diff)
			}
			if text(corev1.PodScheduled) != "True" {
				t.Error("the scheduler's condition is lost")
			}
			if s.ObservedGeneration != 2 {
				t.Errorf("observedGeneration is %d, want 2", s.ObservedGeneration)
			}
		})
	}
}

func TestContainerStates(t *testing.T) {
	waiting := func(reason, message string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	crashed := exited(1)
	crashed.RestartAt = noon.Add(10 * time.Second)
	noImage := &Container{State: Waiting, WaitReason: "ErrImagePull", WaitMessage: "no such image"}
	for name, c := range map[string]struct {
		policy    corev1.RestartPolicy
		container string
		facts     map[string]*Container
		want      corev1.ContainerState
	}{
		"an init container being created":     {container: "install", facts: map[string]*Container{"install": {State: Starting}}, want: waiting("ContainerCreating", "")},
		"an init container before its turn":   {container: "setup", want: waiting("PodInitializing", "")},
		"a main container before its turn":    {container: "a", want: waiting("PodInitializing", "")},
		"a container without its image":       {container: "a", facts: map[string]*Container{"a": noImage}, want: waiting("ErrImagePull", "no such image")},
		"a running container":                 {container: "a", facts: map[string]*Container{"a": up()}, want: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Time{})}}},
		"a failed container that stays down":  {container: "a", facts: map[string]*Container{"a": crashed}, want: corev1.ContainerState{Terminated: crashed.Last.api()}},
		"a failed container that backs off":   {policy: corev1.RestartPolicyAlways, container: "a", facts: map[string]*Container{"a": crashed, "install": exited(0), "side": up(), "setup": exited(0), "late": up()}, want: waiting("CrashLoopBackOff", "back-off restarting failed container=a, next start at 2026-03-01T12:00:10Z")},
		"a sidecar that backs off":            {container: "side", facts: map[string]*Container{"side": crashed, "install": exited(0), "setup": exited(0), "late": up(), "a": up()}, want: waiting("CrashLoopBackOff", "back-off restarting failed container=side, next start at 2026-03-01T12:00:10Z")},
		"a sidecar that ended with its pod":   {container: "side", facts: map[string]*Container{"side": crashed, "install": exited(0), "setup": exited(0), "late": exited(0), "a": exited(0), "b": exited(0)}, want: corev1.ContainerState{Terminated: crashed.Last.api()}},
		"an init container that has finished": {container: "install", facts: map[string]*Container{"install": exited(0)}, want: corev1.ContainerState{Terminated: exited(0).Last.api()}},
	} {
		t.Run(name, func(t *testing.T) {
			policy := c.policy
			if policy == "" {
				policy = corev1.RestartPolicyNever
			}
			s := statusOf(policy, Facts{VolumesReady: true, Containers: c.facts})
			for _, got := range append(s.InitContainerStatuses, s.ContainerStatuses...) {
				if got.Name == c.container {
					if diff := cmp.Diff(c.want, got.State); diff != "" {
						t.Errorf("its state is otherwise (-want +got):\n%s", diff)
					}
				}
			}
		})
	}
}

func TestTransitionTimesMoveOnlyWithTheStatus(t *testing.T) {
	facts := Facts{VolumesReady: true, Containers: map[string]*Container{
		"install": exited(0), "side": up(), "setup": exited(0), "late": up(), "a": up(), "b": up()}}
	p := &corev1.Pod{Spec: *agentSpec(corev1.RestartPolicyNever)}
	node := Node{IP: "127.0.0.1", StartTime: noon}
	p.Status = Status(p, facts, node, noon)
	facts.Containers["b"] = &Container{State: Running, Attempted: true, Started: true}
	s := Status(p, facts, node, noon.Add(time.Minute))
	want := map[corev1.PodConditionType]time.Time{
		corev1.PodReadyToStartContainers: noon, corev1.PodInitialized: noon,
		corev1.PodReady: noon.Add(time.Minute), corev1.ContainersReady: noon.Add(time.Minute),
	}
	for _, c := range s.Conditions {
		if !c.LastTransitionTime.Time.Equal(want[c.Type]) {
			t.Errorf("%s moved at %v, want %v", c.Type, c.LastTransitionTime, want[c.Type])
		}
	}
	if len(s.Conditions) != len(want) {
		t.Errorf("%d conditions, want %d", len(s.Conditions), len(want))
	}
}
