package integration

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"belay.dev/belay/api/v1alpha1"
)

func TestRunResumesAfterEachWayToLoseItsPod(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		lose func(*scene, context.Context, *corev1.Pod) error
		end  v1alpha1.EpochEnd
		// told is part of the message on record.
		told string
	}{
		{
			name: "runner killed alone", end: v1alpha1.EpochFailed, told: "container runner ended with exit code 137",
			lose: func(s *scene, _ context.Context, pod *corev1.Pod) error {
				return shared.Node.KillContainer(s.ns, pod.Name, "runner")
			},
		},
		{
			name: "pod deleted", end: v1alpha1.EpochDisrupted, told: "the pod was deleted",
			lose: func(_ *scene, ctx context.Context, pod *corev1.Pod) error { return shared.api.Delete(ctx, pod) },
		},
		{
			name: "pod deleted by force", end: v1alpha1.EpochDisrupted, told: "the pod was deleted",
			lose: func(_ *scene, ctx context.Context, pod *corev1.Pod) error {
				return shared.api.Delete(ctx, pod, client.GracePeriodSeconds(0))
			},
		},
		{
			name: "pod evicted", end: v1alpha1.EpochDisrupted, told: "Evicted: the node was low on memory",
			lose: func(s *scene, _ context.Context, pod *corev1.Pod) error {
				return shared.Node.Evict(s.ns, pod.Name, "the node was low on memory")
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			s.provider("only", gatedTurns)
			s.create(s.secret("only"), s.ladder("only"), s.run("tough"))

			run := s.midCall("tough")
			if n := runners(t, run); n != 1 {
				t.Fatalf("%d runner processes of the run live, want 1", n)
			}
			if err := c.lose(s, s.ctx, get[corev1.Pod](s, "tough-1")); err != nil {
				t.Fatal(err)
			}
			run = s.await("tough", long, "is finished", func(r *v1alpha1.AgentRun) bool {
				if n := runners(t, r); n > 1 {
					t.Fatalf("%d runner processes of the run live at once", n)
				}
				return isTrue(r, v1alpha1.ConditionFinished)
			})
			run = s.completes(run.Name)
			if ptr.Deref(run.Status.Resumes, 0) != 1 || len(run.Status.Epochs) != 2 {
				t.Fatalf("%d resumes and the epochs %+v, want 1 and two", ptr.Deref(run.Status.Resumes, 0), run.Status.Epochs)
			}
			first, second := run.Status.Epochs[0], run.Status.Epochs[1]
			if first.End != c.end || !strings.Contains(first.Message, c.told) || first.PodName != "tough-1" {
				t.Errorf("epoch 1 is on record as %s of %s: %q; want %s of tough-1 with %q", first.End, first.PodName, first.Message, c.end, c.told)
			}
			if second.End != v1alpha1.EpochFinished || second.PodName != "tough-2" {
				t.Errorf("epoch 2 is on record as %s of %s, want Finished of tough-2", second.End, second.PodName)
			}
			if got := s.answeredTurns("only"); !slices.Equal(got, []int{0, 1, 2}) {
				t.Errorf("the provider gave answers after %v answers, want each of the three turns once", got)
			}
			s.wantOnce(run)
			s.wantIntact(run)
		})
	}
}

// runners counts the living runner processes of a run, whatever the API server knows.
func runners(t *testing.T, run *v1alpha1.AgentRun) int {
	t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, dir := range processes {
		// A process may end while it is looked at.
		command, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if program, _, _ := bytes.Cut(command, []byte{0}); err != nil || filepath.Base(string(program)) != "runner" {
			continue
		}
		environment, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err == nil && bytes.Contains(environment, []byte("BELAY_RUN_UID="+string(run.UID)+"\x00")) {
			n++
		}
	}
	return n
}

func TestRunnerThatIsKilledAgainAndAgainEndsAtItsLimit(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.provider("only", `
- {silence: {}, times: Forever}`)
	run := s.run("fragile")
	run.Spec.RestartLimit = ptr.To[int32](1)
	s.create(s.secret("only"), s.ladder("only"), run)

	for epoch := 1; epoch <= 2; epoch++ {
		s.eventually(long, fmt.Sprintf("the runner of epoch %d works", epoch), func() (bool, string) {
			n := len(s.asked("only"))
			return n == epoch, fmt.Sprintf("%d requests", n)
		})
		if err := shared.Node.KillContainer(s.ns, fmt.Sprintf("fragile-%d", epoch), "runner"); err != nil {
			t.Fatal(err)
		}
	}
	run = s.fails("fragile", v1alpha1.ReasonRestartLimit)
	for _, part := range []string{"restartLimit (1)", "fragile-2", "exit code 137"} {
		if !strings.Contains(message(run, v1alpha1.ConditionSucceeded), part) {
			t.Errorf("the message does not name %q: %s", part, message(run, v1alpha1.ConditionSucceeded))
		}
	}
	s.wantIntact(run)
}
