package devnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"belay.dev/belay/test/devnode/admit"
	"belay.dev/belay/test/devnode/container"
	"belay.dev/belay/test/devnode/lifecycle"
)

// handle takes one event in.
func (w *worker) handle(ctx context.Context, e any) {
	switch e := e.(type) {
	case evicted:
		w.fail(ReasonEvicted, e.message)
		w.facts.Disrupted = true
		w.beginStop(0)
	case killRequested:
		e.done <- w.killNow(e.container)
	case lookup:
		var p *container.Process
		if l := w.lives[e.name]; l != nil {
			p = l.process
		}
		e.found <- p
	case mounted:
		w.volumes = e.volumes
		w.facts.VolumesReady = true
	case notStarted:
		c := w.facts.Containers[e.name]
		delete(w.killStarts, e.name)
		c.State = lifecycle.Waiting
		if c.Last != nil {
			c.State = lifecycle.Exited
		}
		c.WaitReason, c.WaitMessage = e.reason, e.message
		c.RestartAt = w.now().Add(w.startRetry(e.name))
		w.node.events.Event(w.pod, corev1.EventTypeWarning, "Failed", e.message)
	case begun:
		w.began(ctx, e)
	case ended:
		w.endedContainer(e.name)
	case probed:
		w.onProbe(e)
	}
}

// mailbox takes the newest version of a pod from the API server. Leaving one
// never blocks: the watch serves every pod of the node.
type mailbox struct {
	arrived chan struct{}

	mu     sync.Mutex
	pod    *corev1.Pod
	gone   bool
	closed bool
}

// put leaves a version, or the news that the pod is gone. It reports false when
// nobody will read it.
func (m *mailbox) put(pod *corev1.Pod, gone bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.pod, m.gone = pod, m.gone || gone
	select {
	case m.arrived <- struct{}{}:
	default:
	}
	return true
}

func (m *mailbox) take() (*corev1.Pod, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	pod := m.pod
	m.pod = nil
	return pod, m.gone
}

// close takes what is left and refuses more.
func (m *mailbox) close() (*corev1.Pod, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return m.pod, m.gone
}

// readMail takes notice of what the API server says about the pod.
func (w *worker) readMail() {
	pod, gone := w.mail.take()
	if pod != nil {
		w.pod = pod
		w.noticeDeletion()
		if terminal(&w.pod.Status) && !terminal(&w.status) {
			// Somebody else declared the pod ended, for instance the pod garbage
			// collector. Their word on how stands.
			w.facts.Stopping = true
			if w.pod.Status.Phase == corev1.PodFailed && w.facts.Reason == "" {
				w.facts.Reason, w.facts.Message = cmp.Or(w.pod.Status.Reason, "Terminated"), w.pod.Status.Message
			}
			w.beginStop(w.grace())
		}
	}
	if gone && !w.isGone {
		w.isGone = true
		w.facts.Stopping = true
		w.beginStop(0)
		for _, l := range w.lives {
			l.process.Kill()
		}
	}
}

// startRetry is the wait after a start that failed for now: 1 s doubling to 10 s.
func (w *worker) startRetry(name string) time.Duration {
	key := "start/" + name
	w.waits[key] = min(max(time.Second, 2*w.waits[key]), 10*time.Second)
	return w.waits[key]
}

// began takes over a container whose command runs.
func (w *worker) began(ctx context.Context, e begun) {
	c := w.facts.Containers[e.name]
	spec := w.spec(e.name)
	delete(w.waits, "start/"+e.name)
	c.State, c.Attempted = lifecycle.Running, true
	c.WaitReason, c.WaitMessage = "", ""
	c.ID, c.ImageID, c.StartedAt = e.id, e.imageID, e.process.Exit().StartedAt
	c.Started, c.Ready = spec.StartupProbe == nil, spec.ReadinessProbe == nil
	if c.Last != nil {
		c.Restarts++
	}
	probes, cancel := context.WithCancel(ctx)
	w.lives[e.name] = &live{begun: e, stopProbes: cancel}
	w.logs.began(e.name, e.logPath, e.over)
	w.helps(func() {
		<-e.over
		w.send(ended{name: e.name})
	})
	w.startProbes(probes, spec, e.process)
	if w.killStarts[e.name] || ctx.Err() != nil {
		delete(w.killStarts, e.name)
		e.process.Kill()
	}
}

// endedContainer takes the end of a container in.
func (w *worker) endedContainer(name string) {
	l := w.lives[name]
	if l == nil {
		return // a kill was faster
	}
	delete(w.lives, name)
	l.stopProbes()
	exit := l.process.Exit()
	code := int32(exit.Code)
	t := &lifecycle.Termination{
		ExitCode: code, Reason: "Completed", Message: l.message(code),
		StartedAt: exit.StartedAt, FinishedAt: exit.FinishedAt, ContainerID: l.id,
	}
	switch {
	case exit.StartError != nil:
		t.Reason, t.Message = "StartError", exit.StartError.Error()
	case code != 0:
		t.Reason = "Error"
	}
	c := w.facts.Containers[name]
	c.State, c.Started, c.Ready = lifecycle.Exited, false, false
	c.Previous, c.Last = c.Last, t
	wait := lifecycle.BackOff(c.Restarts+1, w.waits[name], exit.FinishedAt.Sub(exit.StartedAt))
	w.waits[name] = wait
	c.RestartAt = exit.FinishedAt.Add(wait)
	if err := w.removeRoot(l.id); err != nil {
		w.node.cfg.Log.Warn("remove a container's files", "pod", w.name, "container", name, "error", err)
	}
}

// kill is called by others; an empty name is every container.
func (w *worker) kill(name string) error {
	done := make(chan error, 1)
	if !w.send(killRequested{container: name, done: done}) {
		return fmt.Errorf("devnode: pod %s/%s has ended", w.namespace, w.name)
	}
	return <-done
}

// killNow kills containers and takes their ends in together, so that no decision
// falls between them. Main containers go first: none of them may act on the death
// of a sidecar, which a power cut would not let it see.
func (w *worker) killNow(name string) error {
	var mains, others []string
	for n, l := range w.lives {
		if name != "" && n != name {
			continue
		}
		if w.isMain(n) {
			mains = append(mains, n)
			l.process.Kill()
		} else {
			others = append(others, n)
		}
	}
	for _, n := range mains {
		<-w.lives[n].over
	}
	for _, n := range others {
		w.lives[n].process.Kill()
	}
	for n, c := range w.facts.Containers {
		if c.State == lifecycle.Starting && (name == "" || n == name) {
			w.killStarts[n] = true
			others = append(others, n)
		}
	}
	victims := append(mains, others...)
	if len(victims) == 0 {
		return fmt.Errorf("devnode: nothing of pod %s/%s to kill runs (container %q)", w.namespace, w.name, name)
	}
	for _, n := range victims {
		if l := w.lives[n]; l != nil {
			<-l.over
			w.endedContainer(n)
		}
	}
	return nil
}

func (w *worker) isMain(name string) bool {
	return slices.ContainsFunc(w.pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == name })
}

// refresh brings mounted secrets and config maps up to date.
func (w *worker) refresh(ctx context.Context) {
	if !w.facts.VolumesReady || w.facts.Stopping || w.facts.Reason != "" {
		return
	}
	pod := w.pod
	w.helps(func() {
		if err := w.node.volumes.Refresh(ctx, pod); err != nil && ctx.Err() == nil {
			w.node.cfg.Log.Info("refresh volumes", "pod", pod.Namespace+"/"+pod.Name, "error", err)
		}
	})
}

// release removes the pod's files from this machine.
func (w *worker) release() {
	if err := errors.Join(w.node.volumes.Release(w.pod), os.RemoveAll(w.dir())); err != nil {
		w.node.cfg.Log.Warn("remove a pod's files", "pod", w.namespace+"/"+w.name, "error", err)
	}
}

// spec finds a container of the pod.
func (w *worker) spec(name string) *corev1.Container {
	for _, list := range [][]corev1.Container{w.pod.Spec.InitContainers, w.pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return &corev1.Container{Name: name}
}

// portTaken finds another running pod that names one of w's ports.
func (n *Node) portTaken(w *worker) (pod string, port int32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, other := range n.workers {
		if other == w || other.over() {
			continue
		}
		for _, p := range admit.Ports(other.original) {
			for _, mine := range admit.Ports(w.original) {
				if p == mine {
					return other.namespace + "/" + other.name, p
				}
			}
		}
	}
	return "", 0
}

// process finds a running container's process.
func (w *worker) process(name string) (*container.Process, error) {
	found := make(chan *container.Process, 1)
	if w.send(lookup{name: name, found: found}) {
		if p := <-found; p != nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("devnode: container %q of pod %s/%s does not run", name, w.namespace, w.name)
}
