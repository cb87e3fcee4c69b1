package devnode_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
)

// BenchmarkPod measures a pod from its creation to its success: scheduling, an
// init container, a sidecar and a main container that do nothing.
func BenchmarkPod(b *testing.B) {
	ctx := context.Background()
	w, err := client.CoreV1().Pods(metav1.NamespaceDefault).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer w.Stop()
	for b.Loop() {
		p := pod(metav1.NamespaceDefault, "", corev1.PodSpec{
			AutomountServiceAccountToken: ptr.To(false), TerminationGracePeriodSeconds: ptr.To[int64](1),
			InitContainers: []corev1.Container{sh("init", "true"), sidecar(sh("side", "trap 'exit 0' TERM; sleep 600 & wait"))},
			Containers:     []corev1.Container{sh("main", "true")},
		})
		p.GenerateName = "bench-"
		created, err := client.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{})
		if err != nil {
			b.Fatal(err)
		}
		awaitEvent(b, w, created.Name, corev1.PodSucceeded)
		if err := client.CoreV1().Pods(p.Namespace).Delete(ctx, created.Name, *metav1.NewDeleteOptions(0)); err != nil {
			b.Fatal(err)
		}
	}
}

func awaitEvent(b *testing.B, w watch.Interface, name string, phase corev1.PodPhase) {
	b.Helper()
	for e := range w.ResultChan() {
		if p, ok := e.Object.(*corev1.Pod); ok && p.Name == name && p.Status.Phase == phase {
			return
		}
	}
	b.Fatal("the watch ended")
}
