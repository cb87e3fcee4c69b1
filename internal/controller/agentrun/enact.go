package agentrun

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"belay.dev/belay/api/v1alpha1"
	applyv1alpha1 "belay.dev/belay/api/v1alpha1/applyconfiguration/api/v1alpha1"
)

// createRetry is how long a pod that the API server refused waits for the next try.
const createRetry = 30 * time.Second

// enact does what was decided, except for the status. A created or adopted pod is added to the facts, a refused one to the
// decision, so that the status tells of it in the same pass.
func (r *Reconciler) enact(ctx context.Context, f *facts, d *decision) error {
	for _, ref := range d.release {
		if err := r.releasePod(ctx, f.run.Namespace, ref); err != nil {
			return err
		}
	}
	for _, ref := range d.remove {
		if err := r.deletePod(ctx, f.run.Namespace, ref); err != nil {
			return err
		}
	}
	if d.create {
		if err := r.createPod(ctx, f, d); err != nil {
			return err
		}
	}
	if d.deleteRun {
		uid, version := f.run.UID, f.run.ResourceVersion
		err := r.client.Delete(ctx, f.run, client.Preconditions{UID: &uid, ResourceVersion: &version}, client.PropagationPolicy(metav1.DeletePropagationBackground))
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting run %s after its time to live: %w", client.ObjectKeyFromObject(f.run), err)
		}
	}
	return nil
}

// deletePod deletes a pod, and no other pod of the same name.
func (r *Reconciler) deletePod(ctx context.Context, namespace string, ref podRef) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ref.name}}
	err := r.client.Delete(ctx, pod, client.Preconditions{UID: &ref.uid})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting pod %s: %w", ref.name, err)
	}
	return nil
}

// releasePod takes our finalizer from a pod. It reads the pod live, so that no other's finalizer is lost.
func (r *Reconciler) releasePod(ctx context.Context, namespace string, ref podRef) error {
	pod := &corev1.Pod{}
	if err := r.live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: ref.name}, pod); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("reading pod %s: %w", ref.name, err)
	}
	at := slices.Index(pod.Finalizers, v1alpha1.FinalizerEndRecorded)
	if pod.UID != ref.uid || at < 0 {
		return nil
	}
	base := pod.DeepCopy()
	pod.Finalizers = slices.Delete(pod.Finalizers, at, at+1)
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, pod, patch, client.FieldOwner(v1alpha1.FieldManagerAgentRun)); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("releasing pod %s: %w", ref.name, err)
	}
	return nil
}

// createPod creates the epoch's pod, and before it what the pod needs. A pod of that name that the run owns is the one that
// an earlier pass created and did not live to write down.
func (r *Reconciler) createPod(ctx context.Context, f *facts, d *decision) error {
	err := r.createWithNeeds(ctx, f)
	switch {
	case err == nil:
		d.podReady = condition{v1alpha1.ReasonPodStarting, ""}
		return nil
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		d.podReady = condition{v1alpha1.ReasonPodCreateFailed, err.Error()}
		d.next = f.now.Add(createRetry)
		return nil
	default:
		return err
	}
}

func (r *Reconciler) createWithNeeds(ctx context.Context, f *facts) error {
	if err := r.ensureNamespace(ctx, f.run.Namespace); err != nil {
		return err
	}
	for _, claim := range desiredClaims(f.run) {
		if err := r.createUnlessThere(ctx, claim); err != nil {
			return err
		}
	}
	pod := desiredPod(f.run, f.ladder, r.options.Image)
	err := r.client.Create(ctx, pod, client.FieldOwner(v1alpha1.FieldManagerAgentRun))
	if apierrors.IsAlreadyExists(err) {
		if err := r.live.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return fmt.Errorf("reading pod %s, which exists already: %w", pod.Name, err)
		}
		if !owned(pod, f.run) {
			return fmt.Errorf("pod %s was created by someone else at this moment", pod.Name) // seen as a foreign pod in the next pass
		}
	} else if err != nil {
		return fmt.Errorf("creating pod %s: %w", pod.Name, err)
	}
	f.pods = append(f.pods, podFactsOf(pod))
	return nil
}

// writeStatus applies the fields of the status that are the controller's, all of them, if one changed. The apply carries
// the resourceVersion that the status was computed from: with a stale one it fails instead of turning the epoch back.
func (r *Reconciler) writeStatus(ctx context.Context, run *v1alpha1.AgentRun, status v1alpha1.AgentRunStatus) error {
	status.Runner = nil
	raw, err := json.Marshal(status)
	if err != nil {
		return fmt.Errorf("encoding the status of run %s: %w", client.ObjectKeyFromObject(run), err)
	}
	owned := &applyv1alpha1.AgentRunStatusApplyConfiguration{}
	if err := json.Unmarshal(raw, owned); err != nil {
		return fmt.Errorf("encoding the status of run %s: %w", client.ObjectKeyFromObject(run), err)
	}
	apply := applyv1alpha1.AgentRun(run.Name, run.Namespace).WithResourceVersion(run.ResourceVersion).WithUID(run.UID).WithStatus(owned)
	if err := r.client.Status().Apply(ctx, apply, client.FieldOwner(v1alpha1.FieldManagerAgentRun), client.ForceOwnership); err != nil {
		return fmt.Errorf("writing the status of run %s: %w", client.ObjectKeyFromObject(run), err)
	}
	return nil
}
