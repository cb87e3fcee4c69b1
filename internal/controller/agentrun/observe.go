package agentrun

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"belay.dev/belay/api/v1alpha1"
)

// taintOutOfService is set by an operator who vouches that nothing runs on a node any more.
const taintOutOfService = "node.kubernetes.io/out-of-service"

// observe gathers the facts about a run; nil if it does not exist. It reads from the cache, and again from the API server
// if what it found would lead to a decision that must not rest on a cache.
func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName) (*facts, error) {
	f, err := r.observeRun(ctx, key, false)
	if err != nil {
		return nil, err
	}
	if f == nil || f.doubtful() || newerPod(f) {
		if f, err = r.observeRun(ctx, key, true); f == nil || err != nil {
			return nil, err
		}
	}
	if err := r.observeNodes(ctx, f); err != nil {
		return nil, err
	}
	return f, r.observeRoutes(ctx, f)
}

// newerPod is true if a pod is of a later epoch than the run, which means that the run was read from a stale cache.
func newerPod(f *facts) bool {
	for i := range f.pods {
		if f.pods[i].epoch > f.run.Status.Epoch {
			return true
		}
	}
	return false
}

// observeRun reads a run, its ladder and its pods; nil if the run does not exist. With live, the run and its epoch's pod are
// read from the API server; the other pods and the ladder always come from the cache.
func (r *Reconciler) observeRun(ctx context.Context, key types.NamespacedName, live bool) (*facts, error) {
	var reader client.Reader = r.client
	if live {
		reader = r.live
	}
	run := &v1alpha1.AgentRun{}
	if err := reader.Get(ctx, key, run); apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // no run and no error is what the caller has to tell apart
	} else if err != nil {
		return nil, fmt.Errorf("reading run %s: %w", key, err)
	}
	f := &facts{now: r.clock.Now(), run: run}
	ladder := &v1alpha1.RouteLadder{}
	ladderKey := types.NamespacedName{Namespace: run.Namespace, Name: run.Spec.LadderRef.Name}
	if err := r.client.Get(ctx, ladderKey, ladder); err == nil {
		f.ladder = ladder
	} else if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading ladder %s: %w", ladderKey, err)
	}
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, client.InNamespace(run.Namespace), client.MatchingFields{indexRun: run.Name}); err != nil {
		return nil, fmt.Errorf("listing the pods of run %s: %w", key, err)
	}
	for i := range pods.Items {
		if pod := &pods.Items[i]; !live || pod.Name != run.Status.PodName {
			f.addPod(pod)
		}
	}
	if !live || run.Status.PodName == "" {
		return f, nil
	}
	pod := &corev1.Pod{}
	podKey := types.NamespacedName{Namespace: run.Namespace, Name: run.Status.PodName}
	if err := reader.Get(ctx, podKey, pod); err == nil {
		f.addPod(pod)
	} else if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading pod %s: %w", podKey, err)
	}
	return f, nil
}

// addPod sorts a pod that has the run's label, or the name of its epoch's pod, into the facts.
func (f *facts) addPod(pod *corev1.Pod) {
	switch {
	case owned(pod, f.run):
		f.pods = append(f.pods, podFactsOf(pod))
		return
	case pod.Name == f.run.Status.PodName:
		f.foreignPod = true
	}
	// A pod of an earlier run of this name: that run is gone, and nobody else will let the pod go.
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "AgentRun" && owner.Name == f.run.Name {
		f.orphans = append(f.orphans, podRef{pod.Name, pod.UID})
	}
}

// owned says whether a pod belongs to this very run, not to an earlier one of its name.
func owned(pod *corev1.Pod, run *v1alpha1.AgentRun) bool { return metav1.IsControlledBy(pod, run) }

// observeNodes looks up the nodes of pods that are being deleted and have not ended: whether anybody will say that they did.
func (r *Reconciler) observeNodes(ctx context.Context, f *facts) error {
	for i := range f.pods {
		p := &f.pods[i]
		if !p.deleted || p.terminal || p.nodeName == "" {
			continue
		}
		node := &corev1.Node{}
		switch err := r.live.Get(ctx, types.NamespacedName{Name: p.nodeName}, node); {
		case apierrors.IsNotFound(err):
			p.node = nodeGone
		case err != nil:
			return fmt.Errorf("reading node %s: %w", p.nodeName, err)
		default:
			p.node = nodeStateOf(node)
		}
	}
	return nil
}

func nodeStateOf(node *corev1.Node) nodeState {
	for _, taint := range node.Spec.Taints {
		if taint.Key == taintOutOfService {
			return nodeOutOfService
		}
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return nodePresent
		}
	}
	return nodeNotReady
}

// observeRoutes looks whether a route that a parked run waits for works again, or is the run's to probe. A route that was
// closed when the run parked did not keep other runs away, only this one; nothing is news about it but a new generation.
func (r *Reconciler) observeRoutes(ctx context.Context, f *facts) error {
	record, runner := lastRecord(f.run), f.run.Status.Runner
	if record == nil || record.End != v1alpha1.EpochParked || runner == nil || runner.Wake == nil {
		return nil
	}
	for _, name := range runner.Wake.Routes {
		health := &v1alpha1.ProviderHealth{}
		key := types.NamespacedName{Namespace: f.run.Namespace, Name: name}
		if err := r.client.Get(ctx, key, health); apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return fmt.Errorf("reading health %s: %w", key, err)
		}
		if reopened(f.run, health) {
			f.reopened = name
			return nil
		}
	}
	return nil
}

// reopened says whether a route's shared state changed, since the run last saw it, to one in which the run may try it.
func reopened(run *v1alpha1.AgentRun, health *v1alpha1.ProviderHealth) bool {
	var seen int64
	for i := range run.Status.Runner.Routes {
		if level := &run.Status.Runner.Routes[i]; level.Route == health.Name {
			seen = ptr.Deref(level.Generation, 0)
		}
	}
	if ptr.Deref(health.Status.Generation, 0) <= seen {
		return false
	}
	switch health.Status.State {
	case v1alpha1.HealthClosed:
		return true
	case v1alpha1.HealthHalfOpen:
		return health.Status.Probe != nil && health.Status.Probe.RunUID == string(run.UID)
	case v1alpha1.HealthCooling, v1alpha1.HealthOpen:
		return false
	default:
		return false
	}
}
