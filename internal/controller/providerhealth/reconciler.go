package providerhealth

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"belay.dev/belay/api/v1alpha1"
	applyv1alpha1 "belay.dev/belay/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"belay.dev/belay/internal/runtime/route"
)

// minorInterval is the least time between two writes of which the later has nothing that anybody acts on.
const minorInterval = 10 * time.Second

// Reconciler reconciles ProviderHealth objects.
type Reconciler struct {
	client client.Client // reads come from the cache
	clock  clock.PassiveClock
	events events.EventRecorder

	// wrote is when each status was last written. It only spares writes: nothing is decided by it.
	mu    sync.Mutex
	wrote map[types.NamespacedName]time.Time
}

// +kubebuilder:rbac:groups=agents.belay.dev,resources=providerhealths,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=agents.belay.dev,resources=providerhealths/status,verbs=get;patch
// +kubebuilder:rbac:groups=agents.belay.dev,resources=agentruns;routeladders,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile does one pass over one route.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	f, err := r.observe(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	d := decide(f)
	switch {
	case d.ignore:
		return ctrl.Result{}, nil
	case d.remove:
		return ctrl.Result{}, r.remove(ctx, f.health)
	}
	if d.create != nil {
		if f.health, err = r.create(ctx, req.NamespacedName, *d.create); err != nil {
			return quietly(err)
		}
	}
	wait, err := r.write(ctx, f, &d)
	if err != nil {
		return quietly(err)
	}
	next := d.next
	if wait > 0 && (next.IsZero() || f.now.Add(wait).Before(next)) {
		next = f.now.Add(wait)
	}
	if next.IsZero() {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: max(next.Sub(f.now), time.Millisecond)}, nil
}

// observe gathers the facts about a route.
func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName) (*facts, error) {
	// Stored times have microseconds, so a pass at the very moment that it asked for must not come before it.
	f := &facts{now: r.clock.Now().UTC().Truncate(time.Microsecond), name: route.Name(key.Name)}
	health := &v1alpha1.ProviderHealth{}
	if err := r.client.Get(ctx, key, health); err == nil {
		f.health = health
	} else if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading health %s: %w", key, err)
	}
	var ladders v1alpha1.RouteLadderList
	if err := r.client.List(ctx, &ladders, client.InNamespace(key.Namespace), client.MatchingFields{indexRoute: key.Name}); err != nil {
		return nil, fmt.Errorf("listing the ladders that name route %s: %w", key, err)
	}
	for i := range ladders.Items {
		l, named := ladderFactsOf(&ladders.Items[i], f.name)
		if !named {
			continue
		}
		f.ladders = append(f.ladders, l)
		var runs v1alpha1.AgentRunList
		err := r.client.List(ctx, &runs, client.InNamespace(key.Namespace), client.MatchingFields{indexUnfinished: ladders.Items[i].Name},
			client.UnsafeDisableDeepCopy) // the runs are read only, and there may be thousands
		if err != nil {
			return nil, fmt.Errorf("listing the runs of ladder %s: %w", ladders.Items[i].Name, err)
		}
		for j := range runs.Items {
			if run, ok := l.runFacts(&runs.Items[j], f.name); ok {
				f.runs = append(f.runs, run)
			}
		}
	}
	return f, nil
}

// create makes the object of a route. One that exists already is another pass's, which the cache has not shown yet.
func (r *Reconciler) create(ctx context.Context, key types.NamespacedName, id v1alpha1.RouteIdentity) (*v1alpha1.ProviderHealth, error) {
	health := &v1alpha1.ProviderHealth{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name,
			Labels: map[string]string{"app.kubernetes.io/name": "belay", "app.kubernetes.io/managed-by": "belay"},
		},
		Spec: v1alpha1.ProviderHealthSpec{Route: id},
	}
	if err := r.client.Create(ctx, health, client.FieldOwner(v1alpha1.FieldManagerProviderHealth)); err != nil {
		return nil, fmt.Errorf("creating health %s: %w", key, err)
	}
	return health, nil
}

func (r *Reconciler) remove(ctx context.Context, health *v1alpha1.ProviderHealth) error {
	key := client.ObjectKeyFromObject(health)
	err := r.client.Delete(ctx, health, client.Preconditions{UID: &health.UID, ResourceVersion: &health.ResourceVersion})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting health %s, which no ladder names: %w", key, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.wrote, key)
	return nil
}

// write stores the status if it changed, and tells of it. A minor change that comes too soon is left to a later pass, in
// the time that is returned.
func (r *Reconciler) write(ctx context.Context, f *facts, d *decision) (time.Duration, error) {
	old := &f.health.Status
	if equal(old, &d.status) {
		return 0, nil
	}
	key := client.ObjectKeyFromObject(f.health)
	if wait := r.sinceWrite(key, f.now); wait > 0 && minor(old, &d.status) {
		return wait, nil
	}
	raw, err := json.Marshal(d.status)
	if err != nil {
		return 0, fmt.Errorf("encoding the status of health %s: %w", key, err)
	}
	owned := applyv1alpha1.ProviderHealthStatus()
	if err := json.Unmarshal(raw, owned); err != nil {
		return 0, fmt.Errorf("encoding the status of health %s: %w", key, err)
	}
	apply := applyv1alpha1.ProviderHealth(f.health.Name, f.health.Namespace).
		WithResourceVersion(f.health.ResourceVersion).WithUID(f.health.UID).WithStatus(owned)
	if err := r.client.Status().Apply(ctx, apply, client.FieldOwner(v1alpha1.FieldManagerProviderHealth), client.ForceOwnership); err != nil {
		return 0, fmt.Errorf("writing the status of health %s: %w", key, err)
	}
	r.mu.Lock()
	r.wrote[key] = f.now
	r.mu.Unlock()
	r.announce(ctx, f.health, d.transitions)
	return 0, nil
}

// sinceWrite is how long a minor change has to wait.
func (r *Reconciler) sinceWrite(key types.NamespacedName, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, ok := r.wrote[key]
	if !ok || last.After(now) {
		return 0
	}
	return max(last.Add(minorInterval).Sub(now), 0)
}

func equal(a, b *v1alpha1.ProviderHealthStatus) bool { return equality.Semantic.DeepEqual(a, b) }

// quietly takes a conflict for what it is: the pass rested on an old state, and the next one will not. In a namespace that
// goes away there is nothing left to do.
func quietly(err error) (ctrl.Result, error) {
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return ctrl.Result{}, nil
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return ctrl.Result{RequeueAfter: 100 * time.Millisecond}, nil
	}
	return ctrl.Result{}, err
}
