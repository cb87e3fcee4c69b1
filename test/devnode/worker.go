package devnode

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"belay.dev/belay/test/devnode/admit"
	"belay.dev/belay/test/devnode/container"
	"belay.dev/belay/test/devnode/lifecycle"
	"belay.dev/belay/test/devnode/volume"
)

// Reasons of pods that the node ends itself.
const (
	// ReasonUnsupported is a pod that asks for what the node cannot give.
	ReasonUnsupported = "DevnodeUnsupported"
	// ReasonNodeRestarted is a pod whose processes ended with an earlier run of
	// the node.
	ReasonNodeRestarted = "NodeRestarted"
	// ReasonEvicted is the kubelet's reason for an eviction.
	ReasonEvicted = "Evicted"
	// ReasonDeadline is the kubelet's reason for activeDeadlineSeconds.
	ReasonDeadline = "DeadlineExceeded"
)

// What happens to a pod, beside time passing.
type (
	evicted       struct{ message string }
	killRequested struct {
		container string // empty is all
		done      chan error
	}
	lookup struct {
		name  string
		found chan *container.Process
	}
	mounted struct{ volumes map[string]volume.Volume }
	// notStarted is a container that could not be started for now.
	notStarted struct{ name, reason, message string }
	begun      struct {
		name    string
		process *container.Process
		over    <-chan struct{} // closed when it is gone and its log complete
		logPath string
		id      string
		imageID string
		message func(exitCode int32) string
	}
	ended  struct{ name string }
	probed struct {
		name    string
		process *container.Process
		kind    probeKind
		ok      bool
		message string
	}
)

// live is a container whose processes exist.
type live struct {
	begun
	stopProbes context.CancelFunc
	killAt     time.Time // zero: not asked to stop
}

// worker runs one pod from its binding to its end. All its fields belong to the
// goroutine of run.
type worker struct {
	node            *Node
	namespace, name string
	pod             *corev1.Pod
	original        *corev1.Pod // as it was first seen; never changed
	events          chan any
	done            chan struct{}

	facts      lifecycle.Facts
	status     corev1.PodStatus
	startTime  time.Time
	volumes    map[string]volume.Volume
	lives      map[string]*live
	waits      map[string]time.Duration // the last wait before a restart
	killStarts map[string]bool          // starts under way that a kill came too early for
	stopAt     time.Time                // when the pod's grace ends; zero: it is not ending
	isGone     bool
	ended      atomic.Bool // nothing runs any more; read by others

	mail      mailbox
	publisher *publisher
	logs      logIndex
	helpers   sync.WaitGroup
}

func newWorker(n *Node, pod *corev1.Pod) *worker {
	w := &worker{
		node: n, namespace: pod.Namespace, name: pod.Name, pod: pod, original: pod,
		events: make(chan any), done: make(chan struct{}),
		facts:  lifecycle.Facts{Containers: map[string]*lifecycle.Container{}},
		status: *pod.Status.DeepCopy(),
		lives:  map[string]*live{}, waits: map[string]time.Duration{}, killStarts: map[string]bool{},
		mail:      mailbox{arrived: make(chan struct{}, 1)},
		publisher: newPublisher(n, pod),
	}
	for _, name := range lifecycle.Names(&pod.Spec) {
		w.facts.Containers[name] = &lifecycle.Container{}
	}
	return w
}

// send hands an event over; false is a worker that has ended.
func (w *worker) send(e any) bool {
	select {
	case w.events <- e:
		return true
	case <-w.done:
		return false
	}
}

// over says that nothing of the pod runs any more.
func (w *worker) over() bool { return w.ended.Load() }

func (w *worker) now() time.Time { return w.node.cfg.Clock.Now() }

// run is the pod's life. It returns when nothing of the pod runs any more and
// the API server knows, or when life ends: then all is killed and nothing said.
func (w *worker) run(life context.Context) {
	ctx, cancel := context.WithCancel(life)
	defer func() {
		cancel()
		w.ended.Store(true)
		close(w.done)
		w.helpers.Wait()
		w.release()
	}()
	w.helps(func() { w.publisher.run(ctx) })
	w.begin(ctx)

	refresh := w.node.cfg.Clock.NewTicker(w.node.cfg.Refresh)
	defer refresh.Stop()
	for {
		decision := lifecycle.Decide(&w.pod.Spec, w.facts, w.now())
		w.act(ctx, decision)
		over := decision.Done && len(w.lives) == 0
		if over {
			// Before the end is known: the next pod may come at once for the
			// volumes and ports.
			w.ended.Store(true)
			w.release()
		}
		if !w.isGone {
			w.publish()
		}
		if over {
			w.finish(ctx)
			return
		}
		timer, stop := w.timer(decision)
		select {
		case <-w.mail.arrived:
			w.readMail()
		case e := <-w.events:
			w.handle(ctx, e)
		case <-timer:
			w.onTime()
		case <-refresh.C():
			w.refresh(ctx)
		case <-life.Done():
			w.killAll()
			stop()
			return
		}
		stop()
	}
}

func (w *worker) helps(f func()) { w.helpers.Go(f) }

// begin takes a pod on, or refuses it.
func (w *worker) begin(ctx context.Context) {
	w.startTime = w.now()
	if w.pod.Status.StartTime != nil {
		w.startTime = w.pod.Status.StartTime.Time
	}
	if hasRun(&w.pod.Status) {
		w.adopt()
		return
	}
	if problems := admit.Check(w.pod, container.DefaultCapabilities); len(problems) > 0 {
		w.fail(ReasonUnsupported, "the process-backed node cannot give the pod: "+strings.Join(problems, "; "))
		return
	}
	if other, port := w.node.portTaken(w); other != "" {
		w.fail(ReasonUnsupported, fmt.Sprintf("port %d is in use by pod %s, and pods share the host's network on this node", port, other))
		return
	}
	w.noticeDeletion()
	pod := w.pod
	w.helps(func() { w.mount(ctx, pod) })
}

func (w *worker) fail(reason, message string) {
	if w.facts.Reason != "" {
		return
	}
	w.facts.Reason, w.facts.Message = reason, message
	w.beginStop(w.grace())
	w.node.events.Event(w.pod, corev1.EventTypeWarning, reason, message)
}

// hasRun says that some container of the pod was started before.
func hasRun(s *corev1.PodStatus) bool {
	return slices.ContainsFunc(slices.Concat(s.InitContainerStatuses, s.ContainerStatuses), func(c corev1.ContainerStatus) bool {
		return c.State.Running != nil || c.State.Terminated != nil || c.LastTerminationState.Terminated != nil
	})
}

// adopt ends a pod of an earlier run of this node: its processes are gone.
func (w *worker) adopt() {
	now := w.now()
	for _, s := range slices.Concat(w.pod.Status.InitContainerStatuses, w.pod.Status.ContainerStatuses) {
		c := w.facts.Containers[s.Name]
		if c == nil {
			continue
		}
		c.ID, c.ImageID, c.Restarts = s.ContainerID, s.ImageID, s.RestartCount
		switch {
		case s.State.Terminated != nil:
			t := s.State.Terminated
			c.State, c.Attempted = lifecycle.Exited, true
			c.Last = &lifecycle.Termination{ExitCode: t.ExitCode, Reason: t.Reason, Message: t.Message,
				StartedAt: t.StartedAt.Time, FinishedAt: t.FinishedAt.Time, ContainerID: t.ContainerID}
		case s.State.Running != nil:
			c.State, c.Attempted = lifecycle.Exited, true
			c.Last = &lifecycle.Termination{ExitCode: 137, Reason: "ContainerStatusUnknown",
				Message:   "the container ended with the node's process",
				StartedAt: s.State.Running.StartedAt.Time, FinishedAt: now, ContainerID: s.ContainerID}
		}
	}
	w.facts.VolumesReady = true
	w.fail(ReasonNodeRestarted, "the node's process ended and took the pod's containers along")
	w.facts.Disrupted = true
}

// mount makes the pod's volumes, however long their parts take to appear. It runs beside the worker, which owns w.pod.
func (w *worker) mount(ctx context.Context, pod *corev1.Pod) {
	wait := 50 * time.Millisecond
	for said := ""; ; {
		volumes, err := w.node.volumes.Mount(ctx, pod)
		if err == nil {
			w.send(mounted{volumes: volumes})
			return
		}
		if ctx.Err() != nil {
			return
		}
		if text := err.Error(); text != said {
			said = text
			w.node.events.Event(pod, corev1.EventTypeWarning, "FailedMount", text)
			w.node.cfg.Log.Info("volumes are not ready", "pod", w.namespace+"/"+w.name, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-w.done:
			return
		case <-w.node.cfg.Clock.After(wait):
		}
		wait = min(wait*2, 2*time.Second)
	}
}

// act does what was decided.
func (w *worker) act(ctx context.Context, d lifecycle.Decision) {
	if d.Finishing && w.stopAt.IsZero() {
		w.beginStop(w.grace())
	}
	for _, name := range d.Start {
		w.startContainer(ctx, name)
	}
	for _, name := range d.Stop {
		if l := w.lives[name]; l != nil && l.killAt.IsZero() {
			w.stopContainer(l, w.stopAt)
		}
	}
}

// minGrace is the least time that a container gets when the ones before it used
// up the pod's grace period. It is the kubelet's.
const minGrace = 2 * time.Second

// stopContainer asks a container to end until at.
func (w *worker) stopContainer(l *live, at time.Time) {
	l.stopProbes()
	now := w.now()
	if w.isGone || w.pod.DeletionTimestamp != nil && w.deletionGrace() == 0 {
		l.killAt = now
		l.process.Kill()
		return
	}
	l.killAt = at
	if least := now.Add(minGrace); at.Before(least) {
		l.killAt = least
	}
	l.process.Signal(syscall.SIGTERM)
}

// onTime does what is due.
func (w *worker) onTime() {
	now := w.now()
	for _, l := range w.lives {
		if !l.killAt.IsZero() && !now.Before(l.killAt) {
			l.process.Kill()
		}
	}
	if at := w.deadline(); !at.IsZero() && !now.Before(at) {
		w.fail(ReasonDeadline, "Pod was active on the node longer than the specified deadline")
	}
}

func (w *worker) deadline() time.Time {
	if w.pod.Spec.ActiveDeadlineSeconds == nil || w.facts.Reason != "" {
		return time.Time{}
	}
	return w.startTime.Add(time.Duration(*w.pod.Spec.ActiveDeadlineSeconds) * time.Second)
}

// timer fires at the next time something is due.
func (w *worker) timer(d lifecycle.Decision) (<-chan time.Time, func()) {
	next := d.At
	sooner := func(at time.Time) {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	sooner(w.deadline())
	for _, l := range w.lives {
		sooner(l.killAt)
	}
	if next.IsZero() {
		return nil, func() {}
	}
	t := w.node.cfg.Clock.NewTimer(max(0, next.Sub(w.now())))
	return t.C(), func() { t.Stop() }
}

func (w *worker) grace() time.Duration {
	if w.pod.DeletionTimestamp != nil {
		return w.deletionGrace()
	}
	return time.Duration(ptr.Deref(w.pod.Spec.TerminationGracePeriodSeconds, 30)) * time.Second
}

func (w *worker) deletionGrace() time.Duration {
	return time.Duration(ptr.Deref(w.pod.DeletionGracePeriodSeconds, 30)) * time.Second
}

// beginStop begins the end of the pod, or brings it forward.
func (w *worker) beginStop(grace time.Duration) {
	at := w.now().Add(grace)
	if !w.stopAt.IsZero() && !at.Before(w.stopAt) {
		return
	}
	w.stopAt = at
	for _, l := range w.lives {
		if !l.killAt.IsZero() && at.Before(l.killAt) {
			l.killAt = at
		}
	}
}

// noticeDeletion ends a pod that was deleted.
func (w *worker) noticeDeletion() {
	if w.pod.DeletionTimestamp != nil {
		w.facts.Stopping = true
		w.beginStop(w.deletionGrace())
	}
}

func (w *worker) publish() {
	view := w.pod.DeepCopy()
	view.Status.Conditions = mergeConditions(w.pod.Status.Conditions, w.status.Conditions)
	w.status = lifecycle.Status(view, w.facts, lifecycle.Node{IP: hostIP, StartTime: w.startTime}, w.now())
	w.publisher.publish(&w.status)
}

// mergeConditions adds the node's own last word to what the API server has.
func mergeConditions(api, own []corev1.PodCondition) []corev1.PodCondition {
	out := slices.Clone(api)
	for _, c := range own {
		i := slices.IndexFunc(out, func(o corev1.PodCondition) bool { return o.Type == c.Type })
		switch {
		case i < 0:
			out = append(out, c)
		case c.Type != corev1.PodScheduled && c.Type != corev1.DisruptionTarget:
			out[i] = c
		}
	}
	return out
}

// finish reports the end, and lets go of a deleted pod.
func (w *worker) finish(ctx context.Context) {
	if w.isGone {
		return
	}
	w.publisher.flush(ctx)
	if pod, _ := w.mail.close(); pod != nil {
		w.pod = pod
	}
	if w.pod.DeletionTimestamp != nil {
		w.node.deletePod(ctx, w.pod)
	}
}

// killAll kills every container and waits for them.
func (w *worker) killAll() {
	for _, l := range w.lives {
		l.stopProbes()
		l.process.Kill()
	}
	for _, l := range w.lives {
		<-l.over
	}
}
