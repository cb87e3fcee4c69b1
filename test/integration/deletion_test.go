package integration

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"belay.dev/belay/api/v1alpha1"
)

// gone waits until an object does not exist any more.
func (s *scene) gone(key client.ObjectKey, object client.Object) {
	s.t.Helper()
	s.eventually(soon, fmt.Sprintf("%T %s is gone", object, key), func() (bool, string) {
		err := shared.api.Get(s.ctx, key, object)
		return apierrors.IsNotFound(err), fmt.Sprintf("finalizers %q, error %v", object.GetFinalizers(), err)
	})
}

func TestDeletedRunLeavesItsClaimAndNothingElse(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.provider("only", gatedTurns)
	s.create(s.secret("only"), s.ladder("only"), s.run("unwanted"))

	run := s.midCall("unwanted")
	if err := shared.api.Delete(s.ctx, run); err != nil {
		t.Fatal(err)
	}
	s.gone(client.ObjectKeyFromObject(run), &v1alpha1.AgentRun{})
	s.gone(client.ObjectKey{Namespace: s.ns, Name: "unwanted-1"}, &corev1.Pod{})
	claim := get[corev1.PersistentVolumeClaim](s, "belay-"+string(run.UID))
	if claim.DeletionTimestamp != nil || claim.Status.Phase != corev1.ClaimBound {
		t.Errorf("the claim is being deleted at %v, phase %s; want it kept and bound", claim.DeletionTimestamp, claim.Status.Phase)
	}
	s.wantIntact(run)

	// The name is free: a new run of it starts from zero, on a claim of its own.
	s.create(s.run("unwanted"))
	again := s.midCall("unwanted")
	s.open(gate, again)
	again = s.completes("unwanted")
	if again.UID == run.UID || again.Status.Epoch != 1 {
		t.Errorf("the new run has UID %s and epoch %d, want another than %s and 1", again.UID, again.Status.Epoch, run.UID)
	}
	s.wantOnce(again)
}

func TestDeletedRunTakesItsClaimAlongIfAskedTo(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.provider("only", oneAnswer)
	run := s.run("brief")
	run.Spec.Ledger = &v1alpha1.Ledger{Retention: v1alpha1.LedgerRetentionDelete}
	s.create(s.secret("only"), s.ladder("only"), run)

	run = s.completes("brief")
	if err := shared.api.Delete(s.ctx, run); err != nil {
		t.Fatal(err)
	}
	s.gone(client.ObjectKey{Namespace: s.ns, Name: "belay-" + string(run.UID)}, &corev1.PersistentVolumeClaim{})
	s.gone(client.ObjectKey{Namespace: s.ns, Name: "brief-1"}, &corev1.Pod{})
}

func TestFinishedRunIsDeletedAfterItsTimeToLive(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.provider("only", oneAnswer)
	run := s.run("fleeting")
	run.Spec.TTLSecondsAfterFinished = ptr.To[int32](2)
	s.create(s.secret("only"), s.ladder("only"), run)

	s.gone(client.ObjectKeyFromObject(run), &v1alpha1.AgentRun{})
	s.gone(client.ObjectKey{Namespace: s.ns, Name: "fleeting-1"}, &corev1.Pod{})
	get[corev1.PersistentVolumeClaim](s, "belay-"+string(run.UID))
	s.wantIntact(run)
	s.wantAsked("only", 1)
}

func TestNamespaceWithARunningRunGoesAway(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.provider("only", gatedTurns)
	s.create(s.secret("only"), s.ladder("only"), s.run("doomed"))

	s.midCall("doomed")
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.ns}}
	if err := shared.api.Delete(s.ctx, namespace); err != nil {
		t.Fatal(err)
	}
	s.gone(client.ObjectKey{Name: s.ns}, namespace)
}

func TestCancelledRunEndsAndStaysEnded(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.provider("only", gatedTurns)
	s.create(s.secret("only"), s.ladder("only"), s.run("recalled"))

	s.midCall("recalled")
	edit(s, "recalled", func(r *v1alpha1.AgentRun) { r.Spec.DesiredState = v1alpha1.DesiredStateCancelled })
	run := s.fails("recalled", v1alpha1.ReasonCancelled)
	s.eventually(soon, "no pod of the run lives", func() (bool, string) {
		for _, pod := range s.pods("recalled") {
			if pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded {
				return false, fmt.Sprintf("pod %s is %s", pod.Name, pod.Status.Phase)
			}
		}
		return true, ""
	})
	if run.Status.Epoch != 1 {
		t.Errorf("epoch %d, want 1", run.Status.Epoch)
	}
	s.wantIntact(run)
}

func TestSuspendedRunGivesItsPodBackAndGoesOnWhenAsked(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.provider("only", gatedTurns)
	s.create(s.secret("only"), s.ladder("only"), s.run("paused"))

	s.midCall("paused")
	edit(s, "paused", func(r *v1alpha1.AgentRun) { r.Spec.DesiredState = v1alpha1.DesiredStateSuspended })
	s.await("paused", long, "is suspended", func(r *v1alpha1.AgentRun) bool { return isTrue(r, v1alpha1.ConditionSuspended) })
	s.eventually(soon, "the pod is gone", func() (bool, string) {
		pods := s.pods("paused")
		return len(pods) == 0, fmt.Sprintf("%d pods", len(pods))
	})
	edit(s, "paused", func(r *v1alpha1.AgentRun) { r.Spec.DesiredState = v1alpha1.DesiredStateRunning })
	run := s.completes("paused")
	if end := run.Status.Epochs[0].End; end != v1alpha1.EpochSuspended {
		t.Errorf("epoch 1 ended as %s, want Suspended", end)
	}
	s.wantOnce(run)
	s.wantIntact(run)
}
