package providerhealth

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
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
	"belay.dev/belay/internal/contract"
)

// controllerName names the controller in metrics, logs and events.
const controllerName = "providerhealth"

const (
	// reconciliationTimeout bounds one pass.
	reconciliationTimeout = time.Minute
	// workers is how many routes are reconciled at the same time.
	workers = 4
)

// Indexes of the cache.
const (
	indexRoute      = "belay.route"          // ladders by the routes of their legs
	indexUnfinished = "belay.unfinishedRuns" // unfinished runs by their ladder
)

// New makes a reconciler without a manager.
func New(cached client.Client, clock clock.PassiveClock, recorder events.EventRecorder) *Reconciler {
	return &Reconciler{client: cached, clock: clock, events: recorder, wrote: map[types.NamespacedName]time.Time{}}
}

// SetupWithManager adds the controller, its indexes and its metrics to a manager.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, clock clock.PassiveClock) error {
	r := New(mgr.GetClient(), clock, mgr.GetEventRecorder(v1alpha1.FieldManagerProviderHealth))
	indexer := mgr.GetFieldIndexer()
	if err := indexer.IndexField(ctx, &v1alpha1.RouteLadder{}, indexRoute, routesOfLadder); err != nil {
		return fmt.Errorf("indexing ladders by route: %w", err)
	}
	if err := indexer.IndexField(ctx, &v1alpha1.AgentRun{}, indexUnfinished, ladderOfUnfinished); err != nil {
		return fmt.Errorf("indexing unfinished runs by ladder: %w", err)
	}
	if err := registerMetrics(mgr.GetClient()); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named(controllerName).
		For(&v1alpha1.ProviderHealth{}).
		Watches(&v1alpha1.RouteLadder{}, handler.EnqueueRequestsFromMapFunc(requestsOfLadder)).
		Watches(&v1alpha1.AgentRun{}, handler.EnqueueRequestsFromMapFunc(r.requestsOfRun), builder.WithPredicates(predicate.Funcs{UpdateFunc: runMatters})).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, ReconciliationTimeout: reconciliationTimeout}).
		Complete(r)
}

// routesOfLadder are the names of the routes of all legs, accepted or not: a ladder that was edited badly still serves the
// runs that use its last accepted generation.
func routesOfLadder(obj client.Object) []string {
	l, ok := obj.(*v1alpha1.RouteLadder)
	if !ok {
		return nil
	}
	var names []string
	for _, leg := range l.Spec.Legs {
		r := contract.RouteOf(l, leg)
		if r.BaseURL == "" {
			continue // the leg's provider does not exist
		}
		if name := string(r.Name()); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func ladderOfUnfinished(obj client.Object) []string {
	run, ok := obj.(*v1alpha1.AgentRun)
	if !ok || finished(run) {
		return nil
	}
	return []string{run.Spec.LadderRef.Name}
}

func requestsOfLadder(_ context.Context, obj client.Object) []reconcile.Request {
	return requests(obj.GetNamespace(), routesOfLadder(obj))
}

func requests(namespace string, names []string) []reconcile.Request {
	list := make([]reconcile.Request, 0, len(names))
	for _, name := range names {
		list = append(list, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
	}
	return list
}

// requestsOfRun are the routes of the run's ladder: any of them may have been told something, gained a prober or lost one.
func (r *Reconciler) requestsOfRun(ctx context.Context, obj client.Object) []reconcile.Request {
	run, ok := obj.(*v1alpha1.AgentRun)
	if !ok {
		return nil
	}
	l := &v1alpha1.RouteLadder{}
	key := types.NamespacedName{Namespace: run.Namespace, Name: run.Spec.LadderRef.Name}
	if err := r.client.Get(ctx, key, l); err != nil {
		if client.IgnoreNotFound(err) != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Could not read the ladder of a run", "RouteLadder", key)
		}
		return nil
	}
	return requests(run.Namespace, routesOfLadder(l))
}

// runMatters tells whether an update of a run says anything about routes. The progress of a run does not.
func runMatters(e event.UpdateEvent) bool {
	old, ok := e.ObjectOld.(*v1alpha1.AgentRun)
	if !ok {
		return true
	}
	changed, ok := e.ObjectNew.(*v1alpha1.AgentRun)
	if !ok {
		return true
	}
	return !equality.Semantic.DeepEqual(aspectsOf(old), aspectsOf(changed))
}

// aspects are what the fold reads of a run.
type aspects struct {
	Epoch, ReportEpoch              int64
	Ready, Parked, Finished, Ending bool
	CostLimited                     bool
	Routes                          []v1alpha1.RouteLevel
	Waiting                         []string
}

func aspectsOf(run *v1alpha1.AgentRun) aspects {
	a := aspects{
		Epoch:       run.Status.Epoch,
		Ready:       meta.IsStatusConditionTrue(run.Status.Conditions, v1alpha1.ConditionPodReady),
		Parked:      meta.IsStatusConditionTrue(run.Status.Conditions, v1alpha1.ConditionParked),
		Finished:    finished(run),
		Ending:      run.DeletionTimestamp != nil,
		CostLimited: policyOf(run).CostLimited,
	}
	if r := run.Status.Runner; r != nil {
		a.ReportEpoch, a.Routes = r.Epoch, r.Routes
		if r.Wake != nil {
			a.Waiting = r.Wake.Routes
		}
	}
	return a
}
