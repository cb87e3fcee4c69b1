package devnode

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// publisher writes a pod's status to the API server: the newest one, in order,
// however long that takes.
type publisher struct {
	node *Node
	pod  *corev1.Pod

	mu      sync.Mutex
	next    *corev1.PodStatus // not written yet
	busy    bool
	idle    chan struct{} // closed when nothing is left to write
	sent    corev1.PodStatus
	changed chan struct{}
}

func newPublisher(n *Node, pod *corev1.Pod) *publisher {
	idle := make(chan struct{})
	close(idle)
	return &publisher{node: n, pod: pod, sent: *pod.Status.DeepCopy(), changed: make(chan struct{}, 1), idle: idle}
}

// publish takes a status to write.
func (p *publisher) publish(s *corev1.PodStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == nil && !p.busy {
		p.idle = make(chan struct{})
	}
	p.next = s.DeepCopy()
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// flush waits until everything is written.
func (p *publisher) flush(ctx context.Context) {
	p.mu.Lock()
	idle := p.idle
	p.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// run writes until ctx ends.
func (p *publisher) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.changed:
		}
		for ctx.Err() == nil {
			p.mu.Lock()
			s, wrote := p.next, p.busy
			p.next, p.busy = nil, s != nil
			if s == nil && wrote {
				close(p.idle)
			}
			p.mu.Unlock()
			if s == nil {
				break
			}
			p.write(ctx, s)
		}
	}
}

// write sends what changed since the last write as a strategic merge patch, as
// the kubelet does: conditions and fields of others stay as they are.
func (p *publisher) write(ctx context.Context, s *corev1.PodStatus) {
	patch, err := statusPatch(p.pod.UID, &p.sent, s)
	if err != nil {
		p.node.cfg.Log.Error("encode a pod's status", "pod", p.pod.Name, "error", err)
		return
	}
	if patch == nil {
		return
	}
	p.node.retry(ctx, "write a pod's status", p.pod, func(ctx context.Context) error {
		_, err := p.node.client.CoreV1().Pods(p.pod.Namespace).Patch(ctx, p.pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil // the pod is gone, or another one has its name
		}
		return err
	})
	p.sent = *s
}

// statusPatch returns nil when there is nothing to write. The uid makes the API
// server refuse a patch for another pod of the same name.
func statusPatch(uid types.UID, before, after *corev1.PodStatus) ([]byte, error) {
	encode := func(s *corev1.PodStatus) ([]byte, error) {
		return json.Marshal(corev1.Pod{Status: *s})
	}
	a, err := encode(before)
	if err != nil {
		return nil, err
	}
	b, err := encode(after)
	if err != nil {
		return nil, err
	}
	diff, err := strategicpatch.CreateTwoWayMergePatch(a, b, corev1.Pod{})
	if err != nil {
		return nil, fmt.Errorf("compare two statuses: %w", err)
	}
	if string(diff) == "{}" {
		return nil, nil
	}
	var patch map[string]any
	if err := json.Unmarshal(diff, &patch); err != nil {
		return nil, err
	}
	patch["metadata"] = map[string]any{"uid": uid}
	return json.Marshal(patch)
}

// retry repeats a request until it succeeds, is refused for good or ctx ends.
func (n *Node) retry(ctx context.Context, what string, pod *corev1.Pod, request func(context.Context) error) {
	wait := 50 * time.Millisecond
	for {
		err := request(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		n.cfg.Log.Warn(what, "pod", pod.Namespace+"/"+pod.Name, "error", err)
		if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-n.cfg.Clock.After(wait):
		}
		wait = min(wait*2, 5*time.Second)
	}
}
