package agentrun

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Options configure the controller.
type Options struct {
	// Image is the image with Belay's binaries for the pods of runs. Required.
	Image string
	// Bootstrap says whether the controller keeps the runner's account, role and binding in each namespace. Defaults to
	// Enabled.
	Bootstrap Bootstrap
	// Workers is the number of runs that are reconciled at the same time. Defaults to 4.
	Workers int
}

// Reconciler reconciles AgentRun objects.
type Reconciler struct {
	client  client.Client // reads come from the cache
	live    client.Reader // reads come from the API server
	clock   clock.PassiveClock
	events  events.EventRecorder
	options Options
}

// +kubebuilder:rbac:groups=agents.belay.dev,resources=agentruns,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups=agents.belay.dev,resources=agentruns/status,verbs=get;patch
// +kubebuilder:rbac:groups=agents.belay.dev,resources=agentruns/finalizers,verbs=update
// +kubebuilder:rbac:groups=agents.belay.dev,resources=routeladders;providerhealths,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=create
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get
// +kubebuilder:rbac:groups="",resources=serviceaccounts,verbs=get;list;watch;create
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=roles;rolebindings,verbs=get;list;watch;create;update
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile does one pass over one run.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	f, err := r.observe(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	if f == nil {
		return quietly(r.releaseOrphans(ctx, req))
	}
	d := decide(f)
	if err := r.enact(ctx, f, &d); err != nil {
		return quietly(err)
	}
	if d.deleteRun || f.run.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	status := nextStatus(f, &d)
	if !equality.Semantic.DeepEqual(f.run.Status, status) {
		if err := r.writeStatus(ctx, f.run, status); apierrors.IsNotFound(err) {
			return ctrl.Result{}, nil // the run was deleted, and the event of that brings the next pass
		} else if err != nil {
			return quietly(err)
		}
		r.announce(ctx, f.run, &status)
	}
	return resultAt(d.next, f.now), nil
}

// releaseOrphans ends the pods of a run that does not exist any more, and lets them go: nobody is left to record their end.
// The garbage collector would delete them as well, but it may take half a minute for that, in which they spend money.
func (r *Reconciler) releaseOrphans(ctx context.Context, req ctrl.Request) error {
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, client.InNamespace(req.Namespace), client.MatchingFields{indexRun: req.Name}); err != nil {
		return fmt.Errorf("listing the pods of run %s, which does not exist: %w", req, err)
	}
	for i := range pods.Items {
		ref := podRef{pods.Items[i].Name, pods.Items[i].UID}
		if pods.Items[i].DeletionTimestamp == nil {
			if err := r.deletePod(ctx, req.Namespace, ref); err != nil {
				return err
			}
		}
		if err := r.releasePod(ctx, req.Namespace, ref); err != nil {
			return err
		}
	}
	return nil
}

// quietly takes a conflict for what it is: the pass rested on an old state, and the next one will not.
func quietly(err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: 100 * time.Millisecond}, nil
	}
	return ctrl.Result{}, err
}

// resultAt asks for the next pass at t; zero asks for none.
func resultAt(t, now time.Time) ctrl.Result {
	if t.IsZero() {
		return ctrl.Result{}
	}
	return ctrl.Result{RequeueAfter: max(t.Sub(now), 100*time.Millisecond)}
}
