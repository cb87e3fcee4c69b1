package integration

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"belay.dev/belay/api/v1alpha1"
	"belay.dev/belay/internal/chaos"
	"belay.dev/belay/internal/runtime/ledger/record"
)

// stopWithin is far below the grace period of a run's pod, 60 s, and leaves the node and a busy machine their time.
const stopWithin = 10 * time.Second

// TestDeletedPodSuspendsItsRunWithinTheGracePeriod deletes the pod as a drain of its node does.
func TestDeletedPodSuspendsItsRunWithinTheGracePeriod(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		steps string
		// ready returns when the run is where it is to be stopped.
		ready func(*scene)
		// stopped tells what has to come true soon after.
		stopped func(*scene) (bool, string)
		turns   []int
		calls   bool
	}{
		{
			name: "in a model call", steps: `
- {answer: "never the end", cutAfterEvents: 2, cut: Silence}`,
			ready: func(s *scene) {
				s.eventually(long, "the provider is in the middle of its answer", func() (bool, string) {
					asked := s.asked("only")
					return len(asked) == 1 && asked[0].Status == 200, fmt.Sprintf("%+v", asked)
				})
				s.provider("only", oneAnswer)
			},
			stopped: func(s *scene) (bool, string) {
				r := s.asked("only")[0]
				return r.Outcome != chaos.OutcomeOpen, fmt.Sprintf("%+v", r)
			},
			turns: []int{0},
		},
		{
			name: "in a tool call", steps: gatedTurns, ready: func(s *scene) { s.midCall("drained") },
			stopped: func(*scene) (bool, string) { return true, "" }, turns: []int{0, 1, 2}, calls: true,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			s.provider("only", c.steps)
			s.create(s.secret("only"), s.ladder("only"), s.run("drained"))
			c.ready(s)
			run := get[v1alpha1.AgentRun](s, "drained")
			asked := time.Now()
			if err := shared.api.Delete(s.ctx, get[corev1.Pod](s, "drained-1")); err != nil {
				t.Fatal(err)
			}
			s.eventually(stopWithin, "the answer is no longer waited for", func() (bool, string) { return c.stopped(s) })
			s.eventually(stopWithin, "the runner of epoch 1 has ended", func() (bool, string) {
				n := runners(t, run)
				return n == 0 || get[v1alpha1.AgentRun](s, "drained").Status.Epoch > 1, fmt.Sprintf("%d runners", n)
			})

			run = s.completes("drained")
			if n := ptr.Deref(run.Status.Resumes, 0); n != 1 {
				t.Errorf("%d resumes, want 1", n)
			}
			entries := s.ledger(run)
			first := slices.IndexFunc(entries, func(e entry) bool { return e.Epoch == 2 })
			if first < 1 {
				t.Fatalf("the ledger has no epoch 2 after one of epoch 1")
			}
			last := entries[first-1]
			if _, ok := last.payload.(*record.RunSuspend); !ok || last.At.Sub(asked) > stopWithin {
				t.Errorf("the last record of epoch 1 is a %s, %s after the deletion; want run.suspend within %s", last.Type, last.At.Sub(asked), stopWithin)
			}
			if _, ok := entries[first].payload.(*record.EpochStart); !ok {
				t.Errorf("the first record of epoch 2 is a %s", entries[first].Type)
			}
			if got := s.answeredTurns("only"); !slices.Equal(got, c.turns) {
				t.Errorf("the provider gave answers after %v answers, want %v: each turn once", got, c.turns)
			}
			if c.calls {
				s.wantOnce(run)
			}
			s.wantIntact(run)
		})
	}
}
