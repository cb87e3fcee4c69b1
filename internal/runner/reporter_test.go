package runner

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"belay.dev/belay/api/v1alpha1"
	"belay.dev/belay/internal/runtime/breaker"
	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/loop"
	"belay.dev/belay/internal/runtime/route"
)

// server takes what a runner applies, as the API server does.
type server struct {
	client.SubResourceWriter

	mu      sync.Mutex
	fail    error
	tries   int
	applied []v1alpha1.RunnerStatus
	objects []string
}

func (s *server) Status() client.SubResourceWriter { return s }

func (s *server) Apply(ctx context.Context, object runtime.ApplyConfiguration, _ ...client.SubResourceApplyOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tries++
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if s.fail != nil {
		return s.fail
	}
	data, err := json.Marshal(object)
	if err != nil {
		return err
	}
	var run v1alpha1.AgentRun
	if err := json.Unmarshal(data, &run); err != nil {
		return err
	}
	s.applied = append(s.applied, *run.Status.Runner)
	s.objects = append(s.objects, string(data))
	return nil
}

func (s *server) setFail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

// seen returns what was applied, and how often it was tried.
func (s *server) seen() ([]v1alpha1.RunnerStatus, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]v1alpha1.RunnerStatus(nil), s.applied...), s.tries
}

// reporting starts a reporter in a bubble whose time passes only when everybody waits.
func reporting(t *testing.T, s *server, threshold int) (r *reporter, stop func()) {
	cfg := Config{Namespace: "ns", Run: "r", RunUID: "u", Epoch: 2}
	r = newReporter(cfg, s, clock.RealClock{}, slog.New(slog.DiscardHandler), func() float64 { return 0 }, func() int { return threshold })
	ctx, cancel := context.WithCancel(t.Context())
	go r.run(ctx)
	return r, cancel
}

func progress(turn int, levels map[route.Name]breaker.Level) loop.Progress {
	return loop.Progress{State: &loop.State{Committed: turn, Asked: "a"}, Levels: levels}
}

func blind(n int) map[route.Name]breaker.Level {
	return map[route.Name]breaker.Level{"h-m-0123456789": {ConsecutiveBlind: n}}
}

// turns are those of the applied statuses.
func turns(statuses []v1alpha1.RunnerStatus) []int32 {
	out := []int32{}
	for _, s := range statuses {
		out = append(out, *s.Turn)
	}
	return out
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func expect(t *testing.T, s *server, when string, want ...int32) {
	t.Helper()
	synctest.Wait()
	applied, _ := s.seen()
	got := turns(applied)
	if len(got) != len(want) {
		t.Fatalf("%s: reports of turns %v, want %v", when, got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("%s: reports of turns %v, want %v", when, got, want)
		}
	}
}

func TestProgressIsReportedAtMostOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		r, stop := reporting(t, s, 3)
		defer stop()
		r.report(progress(0, nil))
		expect(t, s, "the first report", 0)
		for turn := 1; turn <= 5; turn++ {
			pass(10 * time.Second)
			r.report(progress(turn, nil))
		}
		expect(t, s, "50 s and five turns later", 0)
		pass(10*time.Second - time.Millisecond)
		expect(t, s, "just before the minute", 0)
		pass(time.Millisecond)
		expect(t, s, "after the minute", 0, 5)
		pass(time.Hour)
		expect(t, s, "an hour without news later", 0, 5)
		r.report(progress(6, nil))
		expect(t, s, "the next turn", 0, 5, 6)
	})
}

func TestWhatOthersActOnIsReportedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		r, stop := reporting(t, s, 5)
		defer stop()
		r.report(progress(0, nil))
		expect(t, s, "the first report", 0)
		r.report(progress(1, blind(1)))
		expect(t, s, "a level leaves zero", 0, 1)
		r.report(progress(2, blind(3)))
		expect(t, s, "a level grows", 0, 1)
		r.report(progress(3, blind(5)))
		expect(t, s, "a level reaches the ladder's threshold", 0, 1, 3)
		r.report(progress(4, blind(0)))
		expect(t, s, "a level returns to zero", 0, 1, 3, 4)
		p := progress(5, blind(0))
		p.State.Asked, p.State.AskedFor = "b", "a"
		r.report(p)
		expect(t, s, "another leg serves", 0, 1, 3, 4, 5)
		p = progress(6, blind(0))
		p.State.Asked, p.State.AskedFor = "b", "a"
		p.Waiting = &loop.Waiting{Until: time.Now().Add(time.Minute), Reason: "Routes"}
		r.report(p)
		expect(t, s, "a wait begins", 0, 1, 3, 4, 5, 6)
		p.Waiting = nil
		p.State = &loop.State{Committed: 7, Asked: "b", AskedFor: "a"}
		r.report(p)
		expect(t, s, "a wait ends", 0, 1, 3, 4, 5, 6, 7)
	})
}

func TestAReportThatFailedIsTriedAgainWithTheNewestWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{fail: errors.New("connection refused")}
		r, stop := reporting(t, s, 3)
		defer stop()
		synctest.Wait()
		r.report(progress(0, nil))
		pass(5 * time.Second)
		if _, tries := s.seen(); tries != 3 { // at 0, 2 and 4 s
			t.Errorf("%d tries in 5 s, want 3", tries)
		}
		r.report(progress(1, nil))
		s.setFail(nil)
		pass(2 * time.Second)
		expect(t, s, "the server is back", 1)
	})
}

func TestTheLastReportIsTriedUntilItIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		r, stop := reporting(t, s, 3)
		r.report(progress(3, blind(2)))
		expect(t, s, "the first report", 3)
		stop()
		s.setFail(errors.New("connection refused"))
		done := make(chan error)
		go func() {
			done <- r.finish(t.Context(), v1alpha1.Final{Outcome: "Produced", Reason: "Completed", Head: headOf(ledger.Head{Seq: 9, Hash: "0123456789abcdef"}), Usage: aUsage()})
		}()
		pass(11 * time.Second)
		s.setFail(nil)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		applied, tries := s.seen()
		last := applied[len(applied)-1]
		if last.Final == nil || last.Final.Outcome != "Produced" || last.Ledger.Seq != 9 || *last.Usage.Requests != 7 || *last.Turn != 3 || len(last.Routes) != 1 {
			t.Errorf("the last report is %+v", last)
		}
		if tries != 1+6+1 { // the first report; at 0, 2 … 10 s; at 12 s
			t.Errorf("%d tries", tries)
		}
		object := s.objects[len(s.objects)-1]
		for _, want := range []string{`"uid":"u"`, `"name":"r"`, `"namespace":"ns"`, `"kind":"AgentRun"`, `"epoch":2`} {
			if !strings.Contains(object, want) {
				t.Errorf("the object lacks %s: %s", want, object)
			}
		}
		if strings.Contains(object, `"spec"`) || strings.Contains(object, `"conditions"`) {
			t.Errorf("more than the runner's block was applied: %s", object)
		}
	})
}

func TestTheLastReportIsGivenUpAfterAMinuteOrWhenNoTryCanFareBetter(t *testing.T) {
	resource := schema.GroupResource{Group: "agents.belay.dev", Resource: "agentruns"}
	down := errors.New("connection refused")
	refused := apierrors.NewInvalid(schema.GroupKind{Group: "agents.belay.dev", Kind: "AgentRun"}, "r", nil)
	for name, test := range map[string]struct {
		fail, want error
		after      time.Duration
	}{
		"a server that is down":             {down, down, time.Minute},
		"a block that is refused":           {refused, refused, 0},
		"a run that is deleted":             {apierrors.NewNotFound(resource, "r"), nil, 0},
		"a run of the same name came later": {apierrors.NewConflict(resource, "r", errors.New("the UID differs")), nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{fail: test.fail}
				r, stop := reporting(t, s, 3)
				stop()
				begun := time.Now()
				err := r.finish(context.Background(), v1alpha1.Final{Outcome: "Produced", Reason: "Completed"})
				if !errors.Is(err, test.want) || err != nil && !strings.Contains(err.Error(), "ns/r") {
					t.Errorf("the error is %v", err)
				}
				if took := time.Since(begun); took != test.after {
					t.Errorf("it took %s, want %s", took, test.after)
				}
			})
		})
	}
}

func TestAParkedRunSaysWhatItWaitsForAlsoBeforeItsFirstReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		r, stop := reporting(t, s, 3)
		stop()
		r.waitingFor(v1alpha1.Wake{Reason: "LadderUnusable"})
		if err := r.finish(t.Context(), v1alpha1.Final{Outcome: "Parked", Reason: "LadderUnusable"}); err != nil {
			t.Fatal(err)
		}
		applied, _ := s.seen()
		if len(applied) != 1 || applied[0].Epoch != 2 || applied[0].Wake.Reason != "LadderUnusable" || applied[0].Final.Outcome != "Parked" {
			t.Errorf("applied %+v", applied)
		}
	})
}
