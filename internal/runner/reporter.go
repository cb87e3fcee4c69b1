package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"belay.dev/belay/api/v1alpha1"
	"belay.dev/belay/internal/runtime/breaker"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/loop"
	"belay.dev/belay/internal/runtime/report"
	"belay.dev/belay/internal/runtime/route"
)

const (
	// progressEvery is the least time between two reports of mere progress; a thousand runs then write 17 times a second.
	progressEvery = 60 * time.Second
	// applyTimeout bounds one write, and retryEvery is the pause after one that failed.
	applyTimeout = 10 * time.Second
	retryEvery   = 2 * time.Second
	// finalWithin bounds the last report. If it is lost, the next epoch finds the end in the ledger and reports it.
	finalWithin = 60 * time.Second
)

// reporter applies the runner's block of the AgentRun's status. It is the only writer of the block, writes what changed
// the run's routes at once, mere progress seldom, and never blocks the loop.
type reporter struct {
	cfg    Config
	client client.StatusClient
	clock  clock.Clock
	log    *slog.Logger
	// jitter returns a number in [0, 1).
	jitter func() float64
	// threshold is the number of blind failures that opens a route now.
	threshold func() int

	mu     sync.Mutex
	latest *v1alpha1.RunnerStatus
	levels map[route.Name]breaker.Level
	wake   chan struct{}
	done   chan struct{}

	// Only the goroutine uses these.
	published *v1alpha1.RunnerStatus
	told      map[route.Name]breaker.Level
}

func newReporter(cfg Config, c client.StatusClient, clk clock.Clock, log *slog.Logger, jitter func() float64, threshold func() int) *reporter {
	return &reporter{
		cfg: cfg, client: c, clock: clk, log: log, jitter: jitter, threshold: threshold,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

// report takes a copy of the progress.
func (r *reporter) report(p loop.Progress) {
	status := statusOf(r.cfg.Epoch, p)
	r.mu.Lock()
	r.latest, r.levels = &status, p.Levels
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run publishes until ctx ends.
func (r *reporter) run(ctx context.Context) {
	defer close(r.done)
	next := r.clock.Now()
	for {
		status, levels := r.snapshot()
		wait := time.Duration(-1)
		if status != nil && !reflect.DeepEqual(status, r.published) {
			now := r.clock.Now()
			switch {
			case !r.urgent(status, levels) && now.Before(next):
				wait = next.Sub(now)
			case r.publish(ctx, status, levels):
				next = now.Add(progressEvery + time.Duration(r.jitter()*float64(progressEvery)/4))
			default:
				wait = retryEvery
			}
		}
		if !r.pause(ctx, wait) {
			return
		}
	}
}

// pause waits for a new report, for the time to pass if it is not negative, or for the end.
func (r *reporter) pause(ctx context.Context, d time.Duration) bool {
	var after <-chan time.Time
	if d >= 0 {
		timer := r.clock.NewTimer(d)
		defer timer.Stop()
		after = timer.C()
	}
	select {
	case <-ctx.Done():
		return false
	case <-r.wake:
	case <-after:
	}
	return true
}

func (r *reporter) snapshot() (*v1alpha1.RunnerStatus, map[route.Name]breaker.Level) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.latest, r.levels
}

// urgent tells that others act on what changed: the health of a route, the leg that serves, a wait.
func (r *reporter) urgent(s *v1alpha1.RunnerStatus, levels map[route.Name]breaker.Level) bool {
	p := r.published
	if p == nil || p.LegDisplay != s.LegDisplay || !reflect.DeepEqual(p.Wake, s.Wake) || !reflect.DeepEqual(p.UnusableLegs, s.UnusableLegs) {
		return true
	}
	for name, level := range levels {
		var told *report.Report
		if l, ok := r.told[name]; ok {
			told = &report.Report{Route: name, Level: l}
		}
		if report.Due(told, report.Report{Route: name, Level: level}, r.threshold()) {
			return true
		}
	}
	return false
}

func (r *reporter) publish(ctx context.Context, s *v1alpha1.RunnerStatus, levels map[route.Name]breaker.Level) bool {
	if err := r.apply(ctx, *s); err != nil {
		if ctx.Err() == nil {
			r.log.Warn("the run's status could not be written; it is tried again", "error", err)
		}
		return false
	}
	r.published, r.told = s, levels
	return true
}

// finish stops the goroutine and applies the last report. The caller has cancelled the context of run.
func (r *reporter) finish(ctx context.Context, final v1alpha1.Final) error {
	<-r.done
	status, _ := r.snapshot()
	if status == nil {
		status = &v1alpha1.RunnerStatus{Epoch: r.cfg.Epoch}
	}
	last := *status
	last.Final = &final
	if final.Head != nil {
		last.Ledger = final.Head
	}
	if final.Usage != nil {
		last.Usage = final.Usage
	}
	ctx, cancel := context.WithTimeout(ctx, finalWithin)
	defer cancel()
	var failed error // the newest answer, rather than our own giving up
	for {
		err := r.apply(ctx, last)
		if failed == nil || ctx.Err() == nil {
			failed = err
		}
		switch {
		case err == nil:
			return nil
		case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
			// A forced apply conflicts only when another run has the name now.
			r.log.Warn("the run was deleted; its last report is in the ledger alone", "error", err)
			return nil
		case apierrors.IsInvalid(err): // no later try would fare better
			return fmt.Errorf("write the last report to AgentRun %s/%s: %w", r.cfg.Namespace, r.cfg.Run, err)
		}
		r.log.Warn("the last report could not be written; it is tried again", "error", err)
		timer := r.clock.NewTimer(retryEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("write the last report to AgentRun %s/%s: %w", r.cfg.Namespace, r.cfg.Run, failed)
		case <-timer.C():
		}
	}
}

// apply writes the whole block by server-side apply. The UID makes a run of the same name that came later refuse it.
func (r *reporter) apply(ctx context.Context, s v1alpha1.RunnerStatus) error {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode the status: %w", err)
	}
	block := map[string]any{}
	if err := json.Unmarshal(data, &block); err != nil {
		return fmt.Errorf("encode the status: %w", err)
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(),
		"kind":       "AgentRun",
		"metadata":   map[string]any{"name": r.cfg.Run, "namespace": r.cfg.Namespace, "uid": r.cfg.RunUID},
		"status":     map[string]any{"runner": block},
	}}
	return r.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(v1alpha1.FieldManagerRunner), client.ForceOwnership)
}

// waiting notes what a parked run waits for.
func (r *reporter) waiting(p *record.RunPark) {
	r.waitingFor(v1alpha1.Wake{Reason: wakeReason(p.Reason), Until: microTime(p.Until), Routes: names(p.Routes)})
}

func (r *reporter) waitingFor(w v1alpha1.Wake) {
	r.mu.Lock()
	defer r.mu.Unlock()
	status := v1alpha1.RunnerStatus{Epoch: r.cfg.Epoch}
	if r.latest != nil {
		status = *r.latest
	}
	status.Wake = &w
	r.latest = &status
}
