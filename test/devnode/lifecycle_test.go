package devnode_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
)

func conditionOf(p *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PodCondition{}
}

// running waits until a container runs.
func running(t *testing.T, p *corev1.Pod, container string) *corev1.Pod {
	t.Helper()
	var last *corev1.Pod
	eventually(t, container+" runs", func() error {
		last = get(t, p.Namespace, p.Name)
		for _, s := range slices.Concat(last.Status.InitContainerStatuses, last.Status.ContainerStatuses) {
			if s.Name == container && s.State.Running != nil {
				return nil
			}
		}
		return fmt.Errorf("%s", describe(last))
	})
	return last
}

func logged(t *testing.T, p *corev1.Pod, container, text string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s wrote %q", container, text), func() error {
		out, err := readLogs(t, p, corev1.PodLogOptions{Container: container})
		if !strings.Contains(out, text) {
			return fmt.Errorf("it wrote %q (%w)", out, err)
		}
		return nil
	})
}

func TestInitContainersSidecarsAndMainsStartInOrder(t *testing.T) {
	ns := namespace(t)
	shared := []corev1.VolumeMount{{Name: "shared", MountPath: "/shared"}}
	with := func(c corev1.Container) corev1.Container {
		c.VolumeMounts = shared
		return c
	}
	gate := with(sidecar(sh("gate", "while ! test -e /shared/open; do sleep 0.02; done; echo gate >> /shared/order; touch /shared/up; exec sleep 600")))
	gate.StartupProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"test", "-e", "/shared/up"}}}, PeriodSeconds: 1, FailureThreshold: 600}
	p := create(t, pod(ns, "ordered", corev1.PodSpec{
		TerminationGracePeriodSeconds: ptr.To[int64](1),
		InitContainers: []corev1.Container{
			with(sh("first", "echo first >> /shared/order")),
			gate,
			with(sh("second", "echo second >> /shared/order; while ! test -e /shared/go; do sleep 0.02; done")),
		},
		Containers: []corev1.Container{
			with(sh("a", "touch /shared/a; while ! test -e /shared/b; do sleep 0.02; done; cat /shared/order; exec sleep 600")),
			with(sh("b", "touch /shared/b; while ! test -e /shared/a; do sleep 0.02; done; exec sleep 600")),
		},
		Volumes: []corev1.Volume{{Name: "shared", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
	}))

	got := running(t, p, "gate")
	first, second := got.Status.InitContainerStatuses[0], got.Status.InitContainerStatuses[2]
	if first.State.Terminated == nil || first.State.Terminated.ExitCode != 0 || !first.Ready {
		t.Errorf("while the sidecar starts, the first init container is %+v", first)
	}
	if second.State.Waiting == nil || second.State.Waiting.Reason != "PodInitializing" {
		t.Errorf("while the sidecar starts, the second init container is %+v", second.State)
	}
	if main := got.Status.ContainerStatuses[0]; got.Status.Phase != corev1.PodPending || main.State.Waiting == nil || main.State.Waiting.Reason != "PodInitializing" {
		t.Errorf("while the sidecar starts, the pod is %s", describe(got))
	}
	if c := conditionOf(got, corev1.PodInitialized); c.Status != corev1.ConditionFalse || c.Message != "containers with incomplete status: [gate second]" {
		t.Errorf("Initialized is %+v", c)
	}
	if code, err := execIn(p, "gate", "touch", "/shared/open"); code != 0 || err != nil {
		t.Fatalf("open the gate: %d, %v", code, err)
	}
	running(t, p, "second")
	// The container ends as soon as the file is there, which may overtake the answer about touch: what follows proves it.
	if code, err := execIn(p, "second", "touch", "/shared/go"); code != 0 {
		t.Fatalf("let the second init container go: %d, %v", code, err)
	}
	logged(t, p, "a", "first\ngate\nsecond\n")
	eventually(t, "the pod is ready", func() error {
		got = get(t, ns, p.Name)
		if conditionOf(got, corev1.PodReady).Status != corev1.ConditionTrue {
			return fmt.Errorf("%s", describe(got))
		}
		return nil
	})
	if got.Status.Phase != corev1.PodRunning || got.Status.PodIP != "127.0.0.1" || got.Status.StartTime == nil {
		t.Errorf("the ready pod is %+v", got.Status)
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady} {
		if c := conditionOf(got, kind); c.Status != corev1.ConditionTrue {
			t.Errorf("%s is %+v", kind, c)
		}
	}
	if err := client.CoreV1().Pods(ns).Delete(t.Context(), p.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, p)
}

func TestExitCodesReachTheStatus(t *testing.T) {
	ns := namespace(t)
	failing := sh("main", "echo why it failed; exit 3")
	failing.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	got := await(t, create(t, pod(ns, "fails", corev1.PodSpec{Containers: []corev1.Container{failing, sh("fine", "exit 0")}})), corev1.PodFailed)
	s := got.Status.ContainerStatuses[0].State.Terminated
	if s == nil || s.ExitCode != 3 || s.Reason != "Error" || s.Message != "why it failed\n" || s.StartedAt.IsZero() || s.FinishedAt.IsZero() {
		t.Errorf("the failed container is %+v", s)
	}
	if s := got.Status.ContainerStatuses[1].State.Terminated; s == nil || s.ExitCode != 0 || s.Reason != "Completed" {
		t.Errorf("the other container is %+v", s)
	}
	if c := conditionOf(got, corev1.PodReady); c.Status != corev1.ConditionFalse || c.Reason != "PodFailed" {
		t.Errorf("Ready is %+v", c)
	}

	got = await(t, create(t, pod(ns, "init-fails", corev1.PodSpec{
		InitContainers: []corev1.Container{sh("init", "exit 4")}, Containers: []corev1.Container{sh("main", "true")},
	})), corev1.PodFailed)
	if s := got.Status.InitContainerStatuses[0].State.Terminated; s == nil || s.ExitCode != 4 {
		t.Errorf("the init container is %+v", s)
	}
	if got.Status.ContainerStatuses[0].State.Waiting == nil {
		t.Errorf("the main container started after a failed init container: %s", describe(got))
	}

	missing := sh("main", "")
	missing.Command = []string{"/no/such/program"}
	got = await(t, create(t, pod(ns, "cannot-start", corev1.PodSpec{Containers: []corev1.Container{missing}})), corev1.PodFailed)
	if s := got.Status.ContainerStatuses[0].State.Terminated; s == nil || s.ExitCode != 128 || s.Reason != "StartError" || !strings.Contains(s.Message, "/no/such/program") {
		t.Errorf("the container that cannot start is %+v", s)
	}
}

func TestOnFailureRestartsUntilSuccess(t *testing.T) {
	ns := namespace(t)
	again := sh("main", "test -e /data/tried && exit 0; touch /data/tried; exit 1")
	again.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	p := pod(ns, "again", corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyOnFailure, Containers: []corev1.Container{again},
		Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
	})
	got := await(t, create(t, p), corev1.PodSucceeded)
	s := got.Status.ContainerStatuses[0]
	if s.RestartCount != 1 || s.LastTerminationState.Terminated == nil || s.LastTerminationState.Terminated.ExitCode != 1 {
		t.Errorf("after one restart the container is %+v", s)
	}
}

func TestACrashingContainerBacksOff(t *testing.T) {
	ns := namespace(t)
	p := create(t, pod(ns, "crash", corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways, Containers: []corev1.Container{sh("main", "exit 1")}}))
	eventually(t, "the container backs off", func() error {
		got := get(t, ns, p.Name)
		if len(got.Status.ContainerStatuses) == 1 {
			s := got.Status.ContainerStatuses[0]
			if s.State.Waiting != nil && s.State.Waiting.Reason == "CrashLoopBackOff" && s.RestartCount == 1 && got.Status.Phase == corev1.PodRunning {
				return nil
			}
		}
		return fmt.Errorf("%s", describe(got))
	})
	if _, err := readLogs(t, p, corev1.PodLogOptions{Previous: true}); err != nil {
		t.Errorf("logs of the previous run: %v", err)
	}
}

func TestDeletionAsksThenKillsAndReportsBeforeThePodIsGone(t *testing.T) {
	ns := namespace(t)
	for _, c := range []struct {
		name, script string
		grace        int64
		code         int32
		phase        corev1.PodPhase
	}{
		{"polite", "trap 'exit 0' TERM; echo ready; while :; do sleep 0.02; done", 60, 0, corev1.PodSucceeded},
		{"stubborn", "trap '' TERM; echo ready; while :; do sleep 0.02; done", 2, 137, corev1.PodFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := create(t, pod(ns, c.name, corev1.PodSpec{TerminationGracePeriodSeconds: &c.grace, Containers: []corev1.Container{sh("main", c.script)}}))
			logged(t, p, "main", "ready")
			w, err := client.CoreV1().Pods(ns).Watch(t.Context(), metav1.SingleObject(p.ObjectMeta))
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			begin := time.Now()
			if err := client.CoreV1().Pods(ns).Delete(t.Context(), p.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			last := lastStatus(t, w)
			if last.Status.Phase != c.phase {
				t.Errorf("the pod went as %s, want %s", describe(last), c.phase)
			}
			if s := last.Status.ContainerStatuses[0].State.Terminated; s == nil || s.ExitCode != c.code {
				t.Errorf("the container ended as %+v, want code %d", s, c.code)
			}
			took := time.Since(begin)
			if c.code == 137 && took < 1900*time.Millisecond {
				t.Errorf("killed after %v, within the grace period of 2 s", took)
			}
			if c.code == 0 && took > 30*time.Second {
				t.Errorf("a pod that ended at once took %v to go, its whole grace period is 60 s", took)
			}
		})
	}
}

// lastStatus returns the pod as it was deleted.
func lastStatus(t *testing.T, w watch.Interface) *corev1.Pod {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				t.Fatal("the watch ended")
			}
			if p, isPod := e.Object.(*corev1.Pod); isPod && e.Type == watch.Deleted {
				return p
			}
		case <-timeout:
			t.Fatal("the pod was not deleted within 20 s")
		}
	}
}

func TestADeletedPodWithAFinalizerStaysWithItsEnd(t *testing.T) {
	ns := namespace(t)
	p := pod(ns, "held", corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](1), Containers: []corev1.Container{sh("main", "exec sleep 600")}})
	p.Finalizers = []string{"agents.belay.dev/end-recorded"}
	p = create(t, p)
	running(t, p, "main")
	if err := client.CoreV1().Pods(ns).Delete(t.Context(), p.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	got := await(t, p, corev1.PodFailed)
	if s := got.Status.ContainerStatuses[0].State.Terminated; s == nil || got.DeletionTimestamp == nil {
		t.Errorf("the held pod is %s", describe(got))
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": nil}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Pods(ns).Patch(t.Context(), p.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, p)
}

func TestAPodIsDeletedDuringItsInitContainers(t *testing.T) {
	ns := namespace(t)
	p := create(t, pod(ns, "early", corev1.PodSpec{
		TerminationGracePeriodSeconds: ptr.To[int64](1),
		InitContainers:                []corev1.Container{sidecar(sh("side", "exec sleep 600")), sh("init", "trap 'exit 0' TERM; echo ready; while :; do sleep 0.02; done")},
		Containers:                    []corev1.Container{sh("main", "exec sleep 600")},
	}))
	logged(t, p, "init", "ready")
	if err := client.CoreV1().Pods(ns).Delete(t.Context(), p.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, p)
	eventually(t, "the node has forgotten the pod", func() error {
		if err := node.KillPod(ns, p.Name); err == nil {
			return fmt.Errorf("its processes are still there")
		}
		return nil
	})
}

func TestKillPodEndsEverythingAtOnce(t *testing.T) {
	ns := namespace(t)
	p := create(t, pod(ns, "killed", corev1.PodSpec{
		InitContainers: []corev1.Container{sidecar(sh("side", "exec sleep 600"))},
		Containers:     []corev1.Container{sh("main", "exec sleep 600")},
	}))
	running(t, p, "main")
	if err := node.KillPod(ns, p.Name); err != nil {
		t.Fatal(err)
	}
	got := await(t, p, corev1.PodFailed)
	for _, s := range slices.Concat(got.Status.InitContainerStatuses, got.Status.ContainerStatuses) {
		if s.State.Terminated == nil || s.State.Terminated.ExitCode != 137 || s.RestartCount != 0 {
			t.Errorf("%s is %+v, want ended with 137", s.Name, s)
		}
	}
}

func TestAKilledSidecarStartsAgain(t *testing.T) {
	ns := namespace(t)
	p := create(t, pod(ns, "side", corev1.PodSpec{
		TerminationGracePeriodSeconds: ptr.To[int64](1),
		InitContainers:                []corev1.Container{sidecar(sh("side", "exec sleep 600"))},
		Containers:                    []corev1.Container{sh("main", "exec sleep 600")},
	}))
	running(t, p, "main")
	if err := node.KillContainer(ns, p.Name, "side"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the sidecar runs again", func() error {
		got := get(t, ns, p.Name)
		s := got.Status.InitContainerStatuses[0]
		if s.State.Running == nil || s.RestartCount != 1 || s.LastTerminationState.Terminated == nil || s.LastTerminationState.Terminated.ExitCode != 137 {
			return fmt.Errorf("it is %+v", s)
		}
		if got.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("the pod is %s", describe(got))
		}
		return nil
	})
}

func TestEvictionAndDeadlineFailThePodWithTheirReasons(t *testing.T) {
	ns := namespace(t)
	p := create(t, pod(ns, "evicted", corev1.PodSpec{Containers: []corev1.Container{sh("main", "exec sleep 600")}}))
	running(t, p, "main")
	if err := node.Evict(ns, p.Name, "The node was low on resource: memory."); err != nil {
		t.Fatal(err)
	}
	got := await(t, p, corev1.PodFailed)
	if c := conditionOf(got, corev1.DisruptionTarget); got.Status.Reason != "Evicted" || c.Status != corev1.ConditionTrue || c.Reason != "TerminationByKubelet" {
		t.Errorf("the evicted pod is %s with %+v", describe(got), c)
	}

	p = create(t, pod(ns, "late", corev1.PodSpec{ActiveDeadlineSeconds: ptr.To[int64](1), TerminationGracePeriodSeconds: ptr.To[int64](1),
		Containers: []corev1.Container{sh("main", "exec sleep 600")}}))
	if got := await(t, p, corev1.PodFailed); got.Status.Reason != "DeadlineExceeded" {
		t.Errorf("the late pod is %s", describe(got))
	}
}

func TestProbesDecideReadinessAndRestarts(t *testing.T) {
	ns := namespace(t)
	c := sh("main", "exec sleep 600")
	probe := func(test ...string) *corev1.Probe {
		return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: append([]string{"test"}, test...)}}, PeriodSeconds: 1, FailureThreshold: 1}
	}
	c.ReadinessProbe, c.LivenessProbe = probe("-e", "/tmp/ready"), probe("!", "-e", "/tmp/dead")
	p := create(t, pod(ns, "probed", corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways, TerminationGracePeriodSeconds: ptr.To[int64](1), Containers: []corev1.Container{c}}))
	got := running(t, p, "main")
	if conditionOf(got, corev1.PodReady).Status == corev1.ConditionTrue {
		t.Error("the pod is ready before its probe succeeds")
	}
	if _, err := execIn(p, "main", "touch", "/tmp/ready"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod is ready", func() error {
		if got := get(t, ns, p.Name); conditionOf(got, corev1.PodReady).Status != corev1.ConditionTrue {
			return fmt.Errorf("%s", describe(got))
		}
		return nil
	})
	if _, err := execIn(p, "main", "touch", "/tmp/dead"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the container is restarted", func() error {
		if got := get(t, ns, p.Name); got.Status.ContainerStatuses[0].RestartCount != 1 {
			return fmt.Errorf("%s", describe(got))
		}
		return nil
	})
}

// execIn runs a command in a container through the node.
func execIn(p *corev1.Pod, container string, args ...string) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	code, _, err := node.Exec(ctx, p.Namespace, p.Name, container, args...)
	return code, err
}

func TestManyPodsAtOnceAllRunToTheirEnds(t *testing.T) {
	ns := namespace(t)
	const n = 40
	for i := range n {
		create(t, pod(ns, fmt.Sprintf("many-%d", i), corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To[int64](1),
			InitContainers:                []corev1.Container{sh("init", "true"), sidecar(sh("side", "trap 'exit 0' TERM; sleep 600 & wait"))},
			Containers:                    []corev1.Container{sh("main", fmt.Sprintf("exit %d", i%3))},
		}))
	}
	eventually(t, "all pods have ended", func() error {
		list, err := client.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		left := 0
		for _, p := range list.Items {
			if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
				left++
			}
		}
		if left > 0 {
			return fmt.Errorf("%d have not", left)
		}
		return nil
	})
	for i := range n {
		got := get(t, ns, fmt.Sprintf("many-%d", i))
		if s := got.Status.ContainerStatuses[0].State.Terminated; s == nil || s.ExitCode != int32(i%3) {
			t.Errorf("%s is %s, want the exit code %d", got.Name, describe(got), i%3)
		}
	}
}
