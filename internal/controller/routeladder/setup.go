package routeladder

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"belay.dev/belay/api/v1alpha1"
)

// controllerName names the controller in metrics, logs and events.
const controllerName = "routeladder"

// reconciliationTimeout bounds one pass.
const reconciliationTimeout = time.Minute

// indexRoute has ladders by the routes of their legs.
const indexRoute = "belay.legRoute"

// New makes a reconciler without a manager.
func New(cached client.Client, clock clock.PassiveClock, recorder events.EventRecorder) *Reconciler {
	return &Reconciler{client: cached, clock: clock, events: recorder}
}

// SetupWithManager adds the controller, its index and its metrics to a manager.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, clock clock.PassiveClock) error {
	r := New(mgr.GetClient(), clock, mgr.GetEventRecorder(v1alpha1.FieldManagerRouteLadder))
	index := func(obj client.Object) []string {
		l, ok := obj.(*v1alpha1.RouteLadder)
		if !ok {
			return nil
		}
		return routesOf(l)
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &v1alpha1.RouteLadder{}, indexRoute, index); err != nil {
		return fmt.Errorf("indexing ladders by route: %w", err)
	}
	if err := registerMetrics(mgr.GetClient()); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named(controllerName).
		For(&v1alpha1.RouteLadder{}).
		Watches(&v1alpha1.ProviderHealth{}, handler.EnqueueRequestsFromMapFunc(r.laddersOfRoute), builder.WithPredicates(predicate.Funcs{UpdateFunc: healthMatters})).
		WithOptions(controller.Options{ReconciliationTimeout: reconciliationTimeout}).
		Complete(r)
}

// routesOf are the names of the routes of a ladder's legs.
func routesOf(l *v1alpha1.RouteLadder) []string {
	var names []string
	for _, v := range judge(l) {
		if v.route != "" && !slices.Contains(names, string(v.route)) {
			names = append(names, string(v.route))
		}
	}
	return names
}

func (r *Reconciler) laddersOfRoute(ctx context.Context, obj client.Object) []reconcile.Request {
	var ladders v1alpha1.RouteLadderList
	err := r.client.List(ctx, &ladders, client.InNamespace(obj.GetNamespace()), client.MatchingFields{indexRoute: obj.GetName()}, client.UnsafeDisableDeepCopy)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Could not list the ladders of a route", "ProviderHealth", obj.GetName())
		return nil
	}
	list := make([]reconcile.Request, 0, len(ladders.Items))
	for i := range ladders.Items {
		list = append(list, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: ladders.Items[i].Namespace, Name: ladders.Items[i].Name}})
	}
	return list
}

// healthMatters tells whether an update of a route's health can change what its ladders say.
func healthMatters(e event.UpdateEvent) bool {
	old, ok := e.ObjectOld.(*v1alpha1.ProviderHealth)
	if !ok {
		return true
	}
	changed, ok := e.ObjectNew.(*v1alpha1.ProviderHealth)
	if !ok {
		return true
	}
	return old.Status.State != changed.Status.State ||
		!equality.Semantic.DeepEqual(old.Status.LastFailure, changed.Status.LastFailure) ||
		!equality.Semantic.DeepEqual(old.Status.LastSuccessTime, changed.Status.LastSuccessTime)
}
