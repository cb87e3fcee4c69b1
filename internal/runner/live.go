package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"belay.dev/belay/api/v1alpha1"
	"belay.dev/belay/internal/contract"
	"belay.dev/belay/internal/runtime/breaker"
	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/loop"
	"belay.dev/belay/internal/runtime/route"
)

// errLadderUnusable is a ladder of which no generation was ever accepted, or that does not exist.
var errLadderUnusable = errors.New("the ladder is not usable")

// live is what the runner watches: its ladder and the health of the routes.
type live struct {
	cache       cache.Cache
	namespace   string
	ladderName  string
	runUID      string
	epoch       int64
	credentials *credentials

	mu       sync.Mutex
	accepted *v1alpha1.RouteLadder
	changed  chan struct{}
}

// watch starts the informers. They end with ctx; wait for stopped afterwards.
func watch(ctx context.Context, cfg Config, ladderName string, scheme *runtime.Scheme, secrets *credentials) (l *live, stopped <-chan error, err error) {
	l = &live{
		namespace: cfg.Namespace, ladderName: ladderName, runUID: cfg.RunUID, epoch: cfg.Epoch,
		credentials: secrets, changed: make(chan struct{}),
	}
	l.cache, err = cache.New(cfg.API, cache.Options{
		Scheme:            scheme,
		DefaultNamespaces: map[string]cache.Config{cfg.Namespace: {}},
		ByObject: map[client.Object]cache.ByObject{
			&v1alpha1.RouteLadder{}: {Field: fields.OneTermEqualSelector("metadata.name", ladderName)},
		},
		DefaultTransform: cache.TransformStripManagedFields(),
	})
	if err != nil {
		return nil, nil, fmt.Errorf("watch ladder and health: %w", err)
	}
	for _, object := range []client.Object{&v1alpha1.RouteLadder{}, &v1alpha1.ProviderHealth{}} {
		informer, err := l.cache.GetInformer(ctx, object)
		if err != nil {
			return nil, nil, fmt.Errorf("watch %T: %w", object, err)
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { l.notify() },
			UpdateFunc: func(any, any) { l.notify() },
			DeleteFunc: func(any) { l.notify() },
		}); err != nil {
			return nil, nil, fmt.Errorf("watch %T: %w", object, err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- l.cache.Start(ctx) }()
	if !l.cache.WaitForCacheSync(ctx) {
		return nil, nil, fmt.Errorf("watch ladder and health: %w", errors.Join(context.Cause(ctx), <-done))
	}
	return l, done, nil
}

func (l *live) notify() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.changed)
	l.changed = make(chan struct{})
}

// Changed is closed at the next change of the ladder or of a route's health.
func (l *live) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// Current returns the newest accepted generation of the ladder. A bad edit changes nothing for a run that has one.
func (l *live) Current(ctx context.Context) (loop.Ladder, error) {
	var found v1alpha1.RouteLadder
	err := l.cache.Get(ctx, client.ObjectKey{Namespace: l.namespace, Name: l.ladderName}, &found)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && isAccepted(&found) {
		l.accepted = withoutLeftOut(&found)
	}
	if l.accepted == nil {
		return loop.Ladder{}, fmt.Errorf("%w: RouteLadder %s/%s: %w", errLadderUnusable, l.namespace, l.ladderName, whyUnusable(&found, err))
	}
	chain, targets := contract.LadderOf(l.accepted, l.credentials)
	return loop.Ladder{Ladder: chain, Targets: targets}, nil
}

// threshold is the number of blind failures that opens a route of the ladder.
func (l *live) threshold() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.accepted == nil {
		return breaker.DefaultConfig().FailureThreshold
	}
	return contract.BreakerOf(l.accepted).FailureThreshold
}

// withoutLeftOut drains the legs that the manager did not accept, so that no plan has them. They keep their place: a run
// that selects one of them contradicts nothing.
func withoutLeftOut(l *v1alpha1.RouteLadder) *v1alpha1.RouteLadder {
	for _, s := range l.Status.Legs {
		if s.State != v1alpha1.LegLeftOut {
			continue
		}
		for i := range l.Spec.Legs {
			if l.Spec.Legs[i].Name == s.Name {
				l.Spec.Legs[i].State = v1alpha1.LegStateDrained
			}
		}
	}
	return l
}

func isAccepted(l *v1alpha1.RouteLadder) bool {
	c := meta.FindStatusCondition(l.Status.Conditions, v1alpha1.ConditionAccepted)
	return c != nil && c.Status == "True" && c.ObservedGeneration == l.Generation
}

func whyUnusable(l *v1alpha1.RouteLadder, err error) error {
	if err != nil {
		return err
	}
	c := meta.FindStatusCondition(l.Status.Conditions, v1alpha1.ConditionAccepted)
	if c == nil || c.ObservedGeneration != l.Generation {
		return fmt.Errorf("generation %d has not been looked at by the manager yet", l.Generation)
	}
	return fmt.Errorf("generation %d is not accepted: %s", l.Generation, c.Message)
}

// acceptedWithin waits for the first accepted generation.
func (l *live) acceptedWithin(ctx context.Context, limit <-chan time.Time) error {
	for {
		changed := l.Changed()
		_, err := l.Current(ctx)
		if err == nil || !errors.Is(err, errLadderUnusable) {
			return err
		}
		select {
		case <-changed:
		case <-limit:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Shared returns what the cluster knows of each route.
func (l *live) Shared() map[route.Name]breaker.Shared {
	var list v1alpha1.ProviderHealthList
	// Reading a synced cache does not fail; without it the run goes by what it sees itself.
	if err := l.cache.List(context.Background(), &list); err != nil {
		return nil
	}
	out := make(map[route.Name]breaker.Shared, len(list.Items))
	for i := range list.Items {
		if list.Items[i].Status.State != "" {
			out[route.Name(list.Items[i].Name)] = sharedOf(&list.Items[i], l.runUID, l.epoch)
		}
	}
	return out
}

// sharedOf is the view that one epoch of one run has of a shared breaker.
func sharedOf(h *v1alpha1.ProviderHealth, runUID string, epoch int64) breaker.Shared {
	s := h.Status
	out := breaker.Shared{UID: string(h.UID), Position: positionOf(s.State)}
	if s.Generation != nil {
		out.Generation = *s.Generation
	}
	if s.Trips != nil {
		out.Trips = int(*s.Trips)
	}
	if s.OpenUntil != nil {
		out.OpenUntil = s.OpenUntil.Time
	}
	if s.CoolUntil != nil {
		out.CoolUntil = s.CoolUntil.Time
	}
	if s.LastFailure != nil {
		out.LastKind = failure.Kind(s.LastFailure.Kind)
	}
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionAvailable); c != nil {
		out.Forced = c.Reason == v1alpha1.ReasonForcedOpen || c.Reason == v1alpha1.ReasonForcedClosed
	}
	if p := s.Probe; p != nil {
		out.ProbeExpires = p.ExpiresAt.Time
		if p.RunUID == runUID && p.Epoch == epoch {
			out.ProbeToken = p.Token
		}
	}
	return out
}

func positionOf(s v1alpha1.HealthState) breaker.Position {
	switch s {
	case v1alpha1.HealthClosed:
		return breaker.Closed
	case v1alpha1.HealthCooling:
		return breaker.Cooling
	case v1alpha1.HealthOpen:
		return breaker.Open
	case v1alpha1.HealthHalfOpen:
		return breaker.HalfOpen
	}
	return breaker.Closed
}
