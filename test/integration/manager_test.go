package integration

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"belay.dev/belay/api/v1alpha1"
)

// podHistory collects every pod of a run that ever existed.
type podHistory struct {
	watch watch.Interface
	done  chan struct{}
	// uids are the pods' UIDs by their epoch.
	uids map[string]map[types.UID]bool
	// together is the first moment at which the runners of two pods ran at once, empty if there was none.
	together string
}

func (s *scene) watchPods(run string) *podHistory {
	s.t.Helper()
	w, err := shared.api.Watch(s.ctx, &corev1.PodList{}, client.InNamespace(s.ns), client.MatchingLabels{v1alpha1.LabelRun: run})
	if err != nil {
		s.t.Fatal(err)
	}
	h := &podHistory{watch: w, done: make(chan struct{}), uids: map[string]map[types.UID]bool{}}
	go h.collect()
	s.t.Cleanup(h.stop)
	return h
}

func (h *podHistory) collect() {
	defer close(h.done)
	running := map[types.UID]string{}
	for event := range h.watch.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			continue
		}
		epoch := pod.Labels[v1alpha1.LabelEpoch]
		if h.uids[epoch] == nil {
			h.uids[epoch] = map[types.UID]bool{}
		}
		h.uids[epoch][pod.UID] = true
		delete(running, pod.UID)
		for _, c := range pod.Status.ContainerStatuses {
			if event.Type != watch.Deleted && c.Name == "runner" && c.State.Running != nil {
				running[pod.UID] = pod.Name
			}
		}
		if len(running) > 1 && h.together == "" {
			h.together = fmt.Sprint(running)
		}
	}
}

// stop ends the collection; the fields may be read afterwards.
func (h *podHistory) stop() {
	h.watch.Stop()
	<-h.done
}

// The manager is everybody's, so this test runs while no other does.
func TestManagerMayDieAtAnyMoment(t *testing.T) {
	s := newScene(t)
	const turns, kills = 8, 6
	// Each turn does something else: a run that repeats itself would be stopped.
	var script strings.Builder
	for turn := range turns {
		fmt.Fprintf(&script, `
- calls: [{name: shell, arguments: {command: "echo turn %d >> turns.log; sleep 0.5"}}]`, turn)
	}
	s.provider("only", script.String()+oneAnswer)
	s.create(s.secret("only"), s.ladder("only"))
	history := s.watchPods("orphan")

	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	moment := time.NewTimer(0)
	defer moment.Stop()
	s.create(s.run("orphan"))
	for kill := range kills {
		moment.Reset(time.Duration(random.Int64N(int64(time.Second))))
		<-moment.C
		if err := shared.KillManager(); err != nil {
			t.Fatal(err)
		}
		if kill == kills/2 {
			// A pod that dies while nobody looks has its end recorded by the next manager.
			for _, pod := range s.pods("orphan") {
				if err := shared.Node.KillPod(s.ns, pod.Name); err != nil {
					t.Logf("pod %s could not be killed: %v", pod.Name, err)
				}
			}
		}
		if err := shared.StartManager(s.ctx); err != nil {
			t.Fatal(err)
		}
	}
	run := s.completes("orphan")
	history.stop()

	if len(history.uids) != int(run.Status.Epoch) {
		t.Errorf("pods of the epochs %v existed, want one for each epoch up to %d", history.uids, run.Status.Epoch)
	}
	for epoch, uids := range history.uids {
		if len(uids) != 1 {
			t.Errorf("epoch %s had the pods %v, want exactly one", epoch, uids)
		}
	}
	if history.together != "" {
		t.Errorf("runners of two pods ran at once: %s", history.together)
	}
	var want []int
	for turn := range turns + 1 {
		want = append(want, turn)
	}
	if got := s.answeredTurns("only"); !slices.Equal(got, want) {
		t.Errorf("the provider gave answers after %v answers, want each turn once", got)
	}
	// A command that was killed is in doubt and is not repeated, so it may have written its line or not.
	if got := len(s.lines(run, "turns.log")); got > turns || got < turns-int(run.Status.Epoch)+1 {
		t.Errorf("the %d commands had %d effects in %d epochs", turns, got, run.Status.Epoch)
	}
	s.wantIntact(run)
}

// The node and the manager are everybody's, so this test runs while no other does.
func TestRunSurvivesAPowerCut(t *testing.T) {
	s := newScene(t)
	s.provider("only", gatedTurns)
	s.create(s.secret("only"), s.ladder("only"), s.run("tough"))

	s.midCall("tough")
	if err := shared.KillManager(); err != nil {
		t.Fatal(err)
	}
	if err := shared.RestartNode(s.ctx); err != nil {
		t.Fatal(err)
	}
	if err := shared.StartManager(s.ctx); err != nil {
		t.Fatal(err)
	}
	run := s.completes("tough")
	if ptr.Deref(run.Status.Resumes, 0) != 1 || len(run.Status.Epochs) != 2 || run.Status.Epochs[0].Message == "" {
		t.Errorf("%d resumes and the epochs %+v, want 1, and two with what happened to the first", ptr.Deref(run.Status.Resumes, 0), run.Status.Epochs)
	}
	if got := s.answeredTurns("only"); !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("the provider gave answers after %v answers, want each of the three turns once", got)
	}
	s.wantOnce(run)
	s.wantIntact(run)
}
