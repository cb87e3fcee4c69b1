package lifecycle

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func always() *corev1.ContainerRestartPolicy {
	p := corev1.ContainerRestartPolicyAlways
	return &p
}

// agentSpec is an init container, a sidecar, another init container and two main
// containers.
func agentSpec(policy corev1.RestartPolicy) *corev1.PodSpec {
	return &corev1.PodSpec{
		RestartPolicy: policy,
		InitContainers: []corev1.Container{
			{Name: "install"}, {Name: "side", RestartPolicy: always()}, {Name: "setup"}, {Name: "late", RestartPolicy: always()},
		},
		Containers: []corev1.Container{{Name: "a"}, {Name: "b"}},
	}
}

func exited(code int32) *Container {
	return &Container{State: Exited, Attempted: true, Last: &Termination{ExitCode: code}}
}

func up() *Container { return &Container{State: Running, Attempted: true, Started: true, Ready: true} }

func TestDecide(t *testing.T) {
	type containers = map[string]*Container
	coming := &Container{State: Starting}
	unready := &Container{State: Running, Attempted: true}
	backedOff := exited(1)
	backedOff.RestartAt = noon.Add(10 * time.Second)

	for name, c := range map[string]struct {
		policy corev1.RestartPolicy
		facts  Facts
		want   Decision
	}{
		"nothing starts before the volumes are there": {facts: Facts{}},
		"the first init container starts first": {
			facts: Facts{VolumesReady: true}, want: Decision{Start: []string{"install"}},
		},
		"the next waits while one starts": {
			facts: Facts{VolumesReady: true, Containers: containers{"install": coming}},
		},
		"the sidecar follows a success": {
			facts: Facts{VolumesReady: true, Containers: containers{"install": exited(0)}}, want: Decision{Start: []string{"side"}},
		},
		"the next waits for the sidecar to have started": {
			facts: Facts{VolumesReady: true, Containers: containers{"install": exited(0), "side": unready}},
		},
		"a started sidecar lets the next go": {
			facts: Facts{VolumesReady: true, Containers: containers{"install": exited(0), "side": up()}}, want: Decision{Start: []string{"setup"}},
		},
		"a sidecar that ends during the next is started again": {
			facts: Facts{VolumesReady: true, Containers: containers{"install": exited(0), "side": exited(0), "setup": up()}},
			want:  Decision{Start: []string{"side"}},
		},
		"main containers start together": {
			facts: Facts{VolumesReady: true, Containers: containers{"install": exited(0), "side": up(), "setup": exited(0), "late": up()}},
			want:  Decision{Start: []string{"a", "b"}},
		},
		"a failed init container stops the pod in reverse order": {
			facts: Facts{VolumesReady: true, Containers: containers{"install": exited(0), "side": up(), "setup": exited(1)}},
			want:  Decision{Finishing: true, Stop: []string{"side"}},
		},
		"a failed init container is repeated where the policy says so": {
			policy: corev1.RestartPolicyOnFailure,
			facts:  Facts{VolumesReady: true, Containers: containers{"install": backedOff}},
			want:   Decision{At: noon.Add(10 * time.Second)},
		},
		"running main containers are left alone, a lost sidecar is not": {
			facts: Facts{VolumesReady: true, Containers: containers{"install": exited(0), "side": exited(137), "setup": exited(0), "late": up(), "a": up(), "b": up()}},
			want:  Decision{Start: []string{"side"}},
		},
		"a failed main container stays down while the other runs": {
			facts: Facts{VolumesReady: true, Containers: containers{"install": exited(0), "side": up(), "setup": exited(0), "late": up(), "a": exited(1), "b": up()}},
		},
		"on failure, only the failed one starts again": {
			policy: corev1.RestartPolicyOnFailure,
			facts:  Facts{VolumesReady: true, Containers: containers{"install": exited(0), "side": up(), "setup": exited(0), "late": up(), "a": exited(1), "b": exited(0)}},
			want:   Decision{Start: []string{"a"}},
		},
		"always means after a success too": {
			policy: corev1.RestartPolicyAlways,
			facts:  Facts{VolumesReady: true, Containers: containers{"install": exited(0), "side": up(), "setup": exited(0), "late": up(), "a": exited(0), "b": up()}},
			want:   Decision{Start: []string{"a"}},
		},
		"after the last main container the last sidecar stops first": {
			facts: Facts{VolumesReady: true, Containers: containers{"install": exited(0), "side": up(), "setup": exited(0), "late": up(), "a": exited(1), "b": exited(0)}},
			want:  Decision{Finishing: true, Stop: []string{"late"}},
		},
		"then the one before it": {
			facts: Facts{VolumesReady: true, Containers: containers{"install": exited(0), "side": up(), "setup": exited(0), "late": exited(0), "a": exited(1), "b": exited(0)}},
			want:  Decision{Finishing: true, Stop: []string{"side"}},
		},
		"and a sidecar that ended is not started for an ended pod": {
			facts: Facts{VolumesReady: true, Containers: containers{"install": exited(0), "side": exited(0), "setup": exited(0), "late": exited(0), "a": exited(1), "b": exited(0)}},
			want:  Decision{Finishing: true, Done: true},
		},
		"a deleted pod stops its main containers first, with an init container that runs": {
			facts: Facts{Stopping: true, VolumesReady: true, Containers: containers{"side": up(), "setup": up(), "a": up(), "b": exited(0)}},
			want:  Decision{Finishing: true, Stop: []string{"a", "setup"}},
		},
		"a deleted pod that starts a container stops that too": {
			facts: Facts{Stopping: true, VolumesReady: true, Containers: containers{"install": coming}},
			want:  Decision{Finishing: true, Stop: []string{"install"}},
		},
		"a deleted pod without volumes is done": {
			facts: Facts{Stopping: true}, want: Decision{Finishing: true, Done: true},
		},
		"a refused pod is done": {
			facts: Facts{Reason: "DevnodeUnsupported"}, want: Decision{Finishing: true, Done: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			policy := c.policy
			if policy == "" {
				policy = corev1.RestartPolicyNever
			}
			if diff := cmp.Diff(c.want, Decide(agentSpec(policy), c.facts, noon)); diff != "" {
				t.Errorf("decided otherwise (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBackOffDoublesFromTenSecondsToFiveMinutes(t *testing.T) {
	want := []time.Duration{0, 10, 20, 40, 80, 160, 300, 300}
	var wait time.Duration
	for i, w := range want {
		wait = BackOff(int32(i+1), wait, time.Second)
		if wait != w*time.Second {
			t.Errorf("end %d waits %v, want %v", i+1, wait, w*time.Second)
		}
	}
	if got := BackOff(9, 300*time.Second, 10*time.Minute); got != 0 {
		t.Errorf("after ten minutes of running the wait is %v, want none", got)
	}
}
