package devnode

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// watchPods follows the pods bound to this node and hands each to its worker.
//
// The pod controller of virtual-kubelet is not used: it removes a pod from the
// API server while its init containers still run, waits out the whole grace
// period of a pod that ended at once, and knows no sidecars.
func (n *Node) watchPods(life context.Context) (<-chan struct{}, error) {
	factory := informers.NewSharedInformerFactoryWithOptions(n.client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", n.cfg.Name).String()
	}))
	pods := factory.Core().V1().Pods().Informer()
	registration, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) {
			if pod, ok := o.(*corev1.Pod); ok {
				n.seen(life, pod)
			}
		},
		UpdateFunc: func(before, after any) {
			old, ok1 := before.(*corev1.Pod)
			pod, ok2 := after.(*corev1.Pod)
			if !ok1 || !ok2 {
				return
			}
			if old.UID != pod.UID {
				n.gone(old)
			}
			n.seen(life, pod)
		},
		DeleteFunc: func(o any) {
			if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			if pod, ok := o.(*corev1.Pod); ok {
				n.gone(pod)
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	factory.Start(life.Done())
	n.shutdown = append(n.shutdown, factory.Shutdown)
	synced := make(chan struct{})
	n.goes(func() {
		if cache.WaitForCacheSync(life.Done(), registration.HasSynced) {
			close(synced)
		}
	})
	return synced, nil
}

// seen takes notice of a pod that is new or changed.
func (n *Node) seen(life context.Context, pod *corev1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopped {
		return
	}
	w, known := n.workers[pod.UID]
	if known && w.mail.put(pod, false) {
		return
	}
	if known || terminal(&pod.Status) {
		// It has ended; all that is left to do is to agree to its deletion.
		if pod.DeletionTimestamp != nil && ptr.Deref(pod.DeletionGracePeriodSeconds, 0) > 0 {
			n.goes(func() { n.deletePod(life, pod) })
		}
		return
	}
	w = newWorker(n, pod)
	n.workers[pod.UID] = w
	n.goes(func() { w.run(life) })
}

// gone takes notice of a pod that the API server no longer has.
func (n *Node) gone(pod *corev1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if w, ok := n.workers[pod.UID]; ok {
		w.mail.put(pod, true)
		delete(n.workers, pod.UID)
	}
}

func terminal(s *corev1.PodStatus) bool {
	return s.Phase == corev1.PodSucceeded || s.Phase == corev1.PodFailed
}

// deletePod tells the API server that nothing of a deleted pod is left, as the
// last word of a kubelet about it.
func (n *Node) deletePod(ctx context.Context, pod *corev1.Pod) {
	options := metav1.NewDeleteOptions(0)
	options.Preconditions = metav1.NewUIDPreconditions(string(pod.UID))
	n.retry(ctx, "delete a pod that has ended", pod, func(ctx context.Context) error {
		err := n.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, *options)
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil // it is gone, or another one has its name
		}
		return err
	})
}
