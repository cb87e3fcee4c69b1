package agentrun

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"belay.dev/belay/api/v1alpha1"
)

// controllerName names the controller in metrics, logs and events.
const controllerName = "agentrun"

// reconciliationTimeout bounds one pass.
const reconciliationTimeout = time.Minute

// Waits between passes that fail. The longest is short enough that an outage of the API server is soon forgotten.
const (
	errorBackoff    = 20 * time.Millisecond
	maxErrorBackoff = time.Minute
)

// Indexes of the cache.
const (
	indexRun       = "belay.run"       // pods by the name of their run
	indexLadder    = "belay.ladder"    // runs without a live pod by the ladder that they name
	indexWakeRoute = "belay.wakeRoute" // parked runs by the routes that they wait for
)

// New makes a reconciler without a manager. cached may read from a cache; live must read from the API server.
func New(cached client.Client, live client.Reader, clock clock.PassiveClock, recorder eventRecorder, options Options) (*Reconciler, error) {
	if options.Image == "" {
		return nil, fmt.Errorf("the agentrun controller needs the image of the runner")
	}
	switch options.Bootstrap {
	case "":
		options.Bootstrap = BootstrapEnabled
	case BootstrapEnabled, BootstrapDisabled:
	default:
		return nil, fmt.Errorf("bootstrap is %q; it must be %s or %s", options.Bootstrap, BootstrapEnabled, BootstrapDisabled)
	}
	if options.Workers < 1 {
		options.Workers = 4
	}
	return &Reconciler{client: cached, live: live, clock: clock, events: recorder, options: options}, nil
}

// SetupWithManager adds the controller, its indexes and its metrics to a manager.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, clock clock.PassiveClock, options Options) error {
	r, err := New(mgr.GetClient(), mgr.GetAPIReader(), clock, mgr.GetEventRecorder(v1alpha1.FieldManagerAgentRun), options)
	if err != nil {
		return err
	}
	for _, index := range indexes() {
		if err := mgr.GetFieldIndexer().IndexField(ctx, index.object, index.name, index.extract); err != nil {
			return fmt.Errorf("indexing %T by %s: %w", index.object, index.name, err)
		}
	}
	if err := registerMetrics(); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named(controllerName).
		For(&v1alpha1.AgentRun{}).
		Owns(&corev1.Pod{}).
		Watches(&v1alpha1.RouteLadder{}, handler.EnqueueRequestsFromMapFunc(r.runsBy(indexLadder))).
		Watches(&v1alpha1.ProviderHealth{}, handler.EnqueueRequestsFromMapFunc(r.runsBy(indexWakeRoute))).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: r.options.Workers, ReconciliationTimeout: reconciliationTimeout,
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](errorBackoff, maxErrorBackoff),
		}).
		Complete(r)
}

type index struct {
	object  client.Object
	name    string
	extract client.IndexerFunc
}

func indexes() []index {
	return []index{
		{&corev1.Pod{}, indexRun, func(obj client.Object) []string {
			if name := obj.GetLabels()[v1alpha1.LabelRun]; name != "" {
				return []string{name}
			}
			return nil
		}},
		{&v1alpha1.AgentRun{}, indexLadder, func(obj client.Object) []string {
			run, ok := obj.(*v1alpha1.AgentRun)
			if !ok || finished(run) || (run.Status.PodUID != "" && lastRecord(run) == nil) {
				return nil // a run with a pod watches its ladder itself
			}
			return []string{run.Spec.LadderRef.Name}
		}},
		{&v1alpha1.AgentRun{}, indexWakeRoute, func(obj client.Object) []string {
			run, ok := obj.(*v1alpha1.AgentRun)
			if !ok || finished(run) || run.Status.Runner == nil || run.Status.Runner.Wake == nil {
				return nil
			}
			if record := lastRecord(run); record == nil || record.End != v1alpha1.EpochParked {
				return nil
			}
			return run.Status.Runner.Wake.Routes
		}},
	}
}

// runsBy maps an object to the runs that an index has under its name.
func (r *Reconciler) runsBy(index string) handler.MapFunc {
	return func(ctx context.Context, obj client.Object) []reconcile.Request {
		var runs v1alpha1.AgentRunList
		if err := r.client.List(ctx, &runs, client.InNamespace(obj.GetNamespace()), client.MatchingFields{index: obj.GetName()}); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Could not list the runs that wait for an object", "index", index, "name", obj.GetName())
			return nil
		}
		requests := make([]reconcile.Request, 0, len(runs.Items))
		for i := range runs.Items {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: runs.Items[i].Namespace, Name: runs.Items[i].Name}})
		}
		return requests
	}
}
