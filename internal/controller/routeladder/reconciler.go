package routeladder

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"belay.dev/belay/api/v1alpha1"
	applyv1alpha1 "belay.dev/belay/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"belay.dev/belay/internal/runtime/route"
)

// Reconciler reconciles RouteLadder objects.
type Reconciler struct {
	client client.Client // reads come from the cache
	clock  clock.PassiveClock
	events events.EventRecorder
}

// +kubebuilder:rbac:groups=agents.belay.dev,resources=routeladders,verbs=get;list;watch
// +kubebuilder:rbac:groups=agents.belay.dev,resources=routeladders/status,verbs=get;patch
// +kubebuilder:rbac:groups=agents.belay.dev,resources=providerhealths,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile does one pass over one ladder.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	f, err := r.observe(ctx, req.NamespacedName)
	if err != nil || f == nil {
		return ctrl.Result{}, err
	}
	status := nextStatus(f)
	if equality.Semantic.DeepEqual(f.ladder.Status, status) {
		return ctrl.Result{}, nil
	}
	if err := r.write(ctx, f.ladder, &status); err != nil {
		if apierrors.IsConflict(err) {
			// The pass rested on an old state, and the next one will not.
			return ctrl.Result{RequeueAfter: 100 * time.Millisecond}, nil
		}
		return ctrl.Result{}, err
	}
	r.announce(ctx, f.ladder, &status)
	return ctrl.Result{}, nil
}

// observe gathers the facts about a ladder; nil if it is gone or about to be.
func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName) (*facts, error) {
	l := &v1alpha1.RouteLadder{}
	if err := r.client.Get(ctx, key, l); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading ladder %s: %w", key, err)
	}
	if l.DeletionTimestamp != nil {
		return nil, nil
	}
	f := &facts{now: r.clock.Now(), ladder: l, health: map[route.Name]*v1alpha1.ProviderHealth{}}
	for _, name := range routesOf(l) {
		h := &v1alpha1.ProviderHealth{}
		err := r.client.Get(ctx, types.NamespacedName{Namespace: l.Namespace, Name: name}, h)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("reading health %s: %w", name, err)
		default:
			f.health[route.Name(name)] = h
		}
	}
	return f, nil
}

func (r *Reconciler) write(ctx context.Context, l *v1alpha1.RouteLadder, status *v1alpha1.RouteLadderStatus) error {
	key := client.ObjectKeyFromObject(l)
	raw, err := json.Marshal(status)
	if err != nil {
		return fmt.Errorf("encoding the status of ladder %s: %w", key, err)
	}
	owned := applyv1alpha1.RouteLadderStatus()
	if err := json.Unmarshal(raw, owned); err != nil {
		return fmt.Errorf("encoding the status of ladder %s: %w", key, err)
	}
	apply := applyv1alpha1.RouteLadder(l.Name, l.Namespace).WithResourceVersion(l.ResourceVersion).WithUID(l.UID).WithStatus(owned)
	if err := r.client.Status().Apply(ctx, apply, client.FieldOwner(v1alpha1.FieldManagerRouteLadder), client.ForceOwnership); err != nil {
		return fmt.Errorf("writing the status of ladder %s: %w", key, err)
	}
	return nil
}
