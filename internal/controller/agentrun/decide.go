package agentrun

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"belay.dev/belay/api/v1alpha1"
)

const (
	// deadlineGrace lets the runner, which knows the deadline too, end in order before the controller takes the pod away.
	deadlineGrace = 30 * time.Second
	// endingPoll is how often a pod that is being deleted is looked at: a node that goes away sends no event for the pod.
	endingPoll = 10 * time.Second
	// strayPoll is how often a run with more than one live pod is looked at.
	strayPoll = 5 * time.Second
)

// podRef names one pod, and no other pod of the same name.
type podRef struct {
	name string
	uid  types.UID
}

// condition is what a condition will say, without its type and status.
type condition struct{ reason, message string }

// ending is how a run ends.
type ending struct {
	// reason is a reason of condition Succeeded; ReasonCompleted alone is success.
	reason  string
	message string
	outcome v1alpha1.Outcome
	// report is the runner's last report, nil if the controller ends the run.
	report *v1alpha1.Final
}

// decision is what one pass does.
type decision struct {
	admission admission

	// Writes besides the status, in this order.
	release   []podRef // take our finalizer from pods whose end is recorded
	remove    []podRef // delete pods
	create    bool     // create the epoch's pod, or adopt it
	deleteRun bool

	// Changes of the status.
	begin  int64                 // begin this epoch
	record *v1alpha1.EpochRecord // record the end of the epoch's pod
	finish *ending               // end the run

	// podReady is what condition PodReady says; podUp its status.
	podReady condition
	podUp    bool
	// parked is set while the run waits without a pod for a route.
	parked bool

	// next is when to look again if nothing happens before; zero for never.
	next time.Time
}

// decide is the whole of the controller's judgement. It is a pure function of the facts.
func decide(f *facts) decision {
	d := decision{admission: admit(f.run, f.ladder), release: f.orphans}
	if f.run.DeletionTimestamp != nil {
		d.letGo(f)
		return d
	}
	d.cleanUp(f)
	switch p := f.current(); {
	case finished(f.run):
		d.decideFinished(f)
	case f.run.Status.Epoch == 0 || f.recorded():
		d.decideNext(f)
	case p == nil && f.run.Status.PodUID == "":
		d.decideCreate(f)
	case p == nil || p.over():
		d.recordEnd(f, p)
	default:
		d.decideLive(f, p)
	}
	return d
}

// letGo is for a run that is being deleted: its pods go with it, and nobody will record their ends.
func (d *decision) letGo(f *facts) {
	d.podReady = condition{v1alpha1.ReasonPodNotNeeded, "the run is being deleted"}
	for i := range f.pods {
		p := &f.pods[i]
		if p.held {
			d.release = append(d.release, podRef{p.name, p.uid})
		}
		if !p.deleted {
			d.remove = append(d.remove, podRef{p.name, p.uid})
		}
	}
}

// cleanUp releases pods whose end is recorded, and deletes those that nobody needs: pods of earlier epochs, which cannot do
// anything but find out that they are fenced, and the pod of a run that gave it back.
func (d *decision) cleanUp(f *facts) {
	current, record := f.current(), lastRecord(f.run)
	for i := range f.pods {
		p := &f.pods[i]
		ref := podRef{p.name, p.uid}
		isCurrent := current != nil && p.uid == current.uid
		switch {
		case isCurrent && record == nil && !finished(f.run):
			continue
		case isCurrent && record != nil:
			if p.held {
				d.release = append(d.release, ref)
			}
			if gaveBack(record.End) && !p.deleted {
				d.remove = append(d.remove, ref)
			}
		default:
			if p.held && p.over() {
				d.release = append(d.release, ref)
			}
			if !p.deleted {
				d.remove = append(d.remove, ref)
			}
		}
	}
}

// gaveBack says whether a run has no pod to look at after such an end.
func gaveBack(end v1alpha1.EpochEnd) bool {
	return end == v1alpha1.EpochParked || end == v1alpha1.EpochSuspended
}

// decideFinished is for a run that has ended: it may be deleted in time.
func (d *decision) decideFinished(f *facts) {
	d.podReady = condition{v1alpha1.ReasonPodNotNeeded, "the run is finished"}
	ttl, completed := f.run.Spec.TTLSecondsAfterFinished, f.run.Status.CompletionTime
	if ttl == nil || completed == nil {
		return
	}
	due := completed.Add(seconds(*ttl))
	if f.now.Before(due) {
		d.next = due
		return
	}
	d.deleteRun = true
}

// decideNext is for a run without a pod: before the first epoch, or after the recorded end of one.
func (d *decision) decideNext(f *facts) {
	run := f.run
	record := lastRecord(run)
	d.podReady = condition{v1alpha1.ReasonPodNotNeeded, ""}
	if record != nil {
		d.podReady = condition{v1alpha1.ReasonPodEnded, record.Message}
	}
	if d.stopsBeforePod(f) {
		return
	}
	if record != nil && record.End == v1alpha1.EpochParked && !d.wakes(f, record) {
		return
	}
	if due := run.Status.NextEpochTime; due != nil && f.now.Before(due.Time) {
		d.podReady = condition{v1alpha1.ReasonBackoff, fmt.Sprintf("the next pod is created at %s", rfc3339(due.Time))}
		d.next = due.Time
		return
	}
	if activeFor(run) >= activeDeadline(run) {
		d.finish = deadlineExceeded(run)
		return
	}
	if d.waitsForStray(f) {
		return
	}
	newest := run.Status.Epoch
	if report := final(run); report != nil && report.LedgerEpoch > newest {
		newest = report.LedgerEpoch
	}
	d.begin = newest + 1
	d.podReady = condition{v1alpha1.ReasonPodCreating, ""}
}

// stopsBeforePod is true for a run that must not get a pod now.
func (d *decision) stopsBeforePod(f *facts) bool {
	switch desiredState(f.run) {
	case v1alpha1.DesiredStateCancelled:
		d.finish = cancelled()
		return true
	case v1alpha1.DesiredStateSuspended:
		d.podReady = condition{v1alpha1.ReasonPodNotNeeded, "the run is suspended"}
		return true
	case v1alpha1.DesiredStateRunning:
	}
	if d.admission.admitted() {
		return false
	}
	if d.admission.reason == v1alpha1.ReasonPolicyConflict {
		d.finish = &ending{reason: v1alpha1.ReasonPolicyConflict, message: d.admission.message, outcome: v1alpha1.OutcomeFailed}
	} else {
		d.podReady = condition{v1alpha1.ReasonPodNotNeeded, d.admission.message}
	}
	return true
}

// wakes says whether a parked run gets its next pod now. The time, a route that works again, a changed ladder, or one that can
// be used again wake it; a park that lasted too long ends the run.
func (d *decision) wakes(f *facts, record *v1alpha1.EpochRecord) bool {
	var wake v1alpha1.Wake
	if w := f.run.Status.Runner; w != nil && w.Wake != nil {
		wake = *w.Wake
	}
	if wake.Until != nil && !f.now.Before(wake.Until.Time) {
		return true
	}
	if f.reopened != "" {
		return true
	}
	if ladder := f.ladder; ladder != nil && !ladderRejected(ladder) {
		changed := record.LadderGeneration != 0 && record.LadderGeneration != ladder.Generation
		if changed || (wake.Reason == v1alpha1.ReasonLadderUnusable && ladderAccepted(ladder)) {
			return true
		}
	}
	limit := seconds(orDefault(limits(f.run).MaxParkedSeconds, v1alpha1.DefaultMaxParkedSeconds))
	d.parked = true
	d.podReady = condition{v1alpha1.ReasonPodNotNeeded, "the run is parked"}
	if record.EndTime != nil {
		giveUp := record.EndTime.Add(limit)
		if !f.now.Before(giveUp) {
			d.parked = false
			message := fmt.Sprintf("no route became available within limits.maxParkedSeconds (%d)", int(limit.Seconds()))
			if report := final(f.run); report != nil && report.Message != "" {
				message += "; " + report.Message
			}
			d.finish = &ending{reason: v1alpha1.ReasonAllRoutesTripped, message: message, outcome: v1alpha1.OutcomeFailed}
			return false
		}
		d.wakeAt(giveUp)
	}
	if wake.Until != nil {
		d.wakeAt(wake.Until.Time)
	}
	return false
}

// waitsForStray is true while a pod of the run lives that is not the epoch's.
func (d *decision) waitsForStray(f *facts) bool {
	current := f.current()
	for i := range f.pods {
		p := &f.pods[i]
		if (current != nil && p.uid == current.uid) || p.over() {
			continue
		}
		d.podReady = condition{v1alpha1.ReasonMultiplePods, fmt.Sprintf("pod %s of epoch %d still lives; no other is created before it has ended", p.name, p.epoch)}
		d.wakeAt(f.now.Add(strayPoll))
		return true
	}
	return false
}

// decideCreate is for an epoch that is written and has no pod yet.
func (d *decision) decideCreate(f *facts) {
	d.podReady = condition{v1alpha1.ReasonPodCreating, ""}
	if d.stopsBeforePod(f) || d.waitsForStray(f) {
		return
	}
	if f.foreignPod {
		d.podReady = condition{v1alpha1.ReasonPodNameTaken, fmt.Sprintf("pod %s exists and does not belong to the run; delete it", f.run.Status.PodName)}
		d.next = f.now.Add(endingPoll)
		return
	}
	d.create = true
}

// decideLive is for a run whose pod lives, or may still live.
func (d *decision) decideLive(f *facts, p *podFacts) {
	run := f.run
	if p.ready {
		d.podReady, d.podUp = condition{v1alpha1.ReasonPodReady, ""}, true
	} else {
		d.podReady = condition{v1alpha1.ReasonPodStarting, p.message}
	}
	if p.deleted {
		d.decideEnding(f, p)
		return
	}
	age := f.now.Sub(p.created.Time)
	deadline := activeDeadline(run) - activeFor(run) + deadlineGrace
	startup := startupDeadline(run)
	if desiredState(run) != v1alpha1.DesiredStateRunning || age >= deadline || (!p.started && age >= startup) {
		d.remove = append(d.remove, podRef{p.name, p.uid})
		d.podReady, d.podUp = condition{v1alpha1.ReasonPodEnding, startProblem(f, p)}, false
		d.wakeAt(f.now.Add(endingPoll))
		return
	}
	d.wakeAt(p.created.Add(deadline))
	if !p.started {
		d.wakeAt(p.created.Add(startup))
	}
	if d.waitsForStray(f) {
		d.podUp = false
	}
}

// decideEnding is for a pod that is being deleted and may still run.
func (d *decision) decideEnding(f *facts, p *podFacts) {
	d.podUp = false
	d.wakeAt(f.now.Add(endingPoll))
	if p.node != nodeNotReady {
		d.podReady = condition{v1alpha1.ReasonPodEnding, startProblem(f, p)}
		return
	}
	if report := final(f.run); report != nil && endsRun(report.Outcome) {
		d.recordEnd(f, p) // nothing will follow the pod, so it does not matter whether it still runs
		return
	}
	d.podReady = condition{v1alpha1.ReasonNodeUnreachable, fmt.Sprintf("pod %s is deleted, but node %s does not say that it stopped; the next pod waits "+
		"until the node reports, is deleted, or has the taint node.kubernetes.io/out-of-service", p.name, p.nodeName)}
}

// wakeAt brings the next look forward to t.
func (d *decision) wakeAt(t time.Time) {
	if d.next.IsZero() || t.Before(d.next) {
		d.next = t
	}
}

func cancelled() *ending {
	return &ending{reason: v1alpha1.ReasonCancelled, message: "desiredState is Cancelled", outcome: v1alpha1.OutcomeFailed}
}

func deadlineExceeded(run *v1alpha1.AgentRun) *ending {
	return &ending{
		reason:  v1alpha1.ReasonDeadlineExceeded,
		message: fmt.Sprintf("the run had a pod for longer than limits.activeDeadlineSeconds (%d)", int(activeDeadline(run).Seconds())),
		outcome: v1alpha1.OutcomeFailed,
	}
}

func desiredState(run *v1alpha1.AgentRun) v1alpha1.DesiredState {
	if run.Spec.DesiredState == "" {
		return v1alpha1.DefaultDesiredState
	}
	return run.Spec.DesiredState
}

func limits(run *v1alpha1.AgentRun) v1alpha1.Limits {
	return ptr.Deref(run.Spec.Limits, v1alpha1.Limits{})
}

func activeDeadline(run *v1alpha1.AgentRun) time.Duration {
	return seconds(orDefault(limits(run).ActiveDeadlineSeconds, v1alpha1.DefaultActiveDeadlineSeconds))
}

func startupDeadline(run *v1alpha1.AgentRun) time.Duration {
	return seconds(orDefault(run.Spec.StartupDeadlineSeconds, v1alpha1.DefaultStartupDeadlineSeconds))
}

// activeFor is the time that earlier pods of the run lived.
func activeFor(run *v1alpha1.AgentRun) time.Duration {
	return time.Duration(ptr.Deref(run.Status.ActiveSeconds, 0)) * time.Second
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

// orDefault returns n, or def if n is unset; it is for fields that cannot be 0.
func orDefault(n, def int32) int32 {
	if n == 0 {
		return def
	}
	return n
}

func rfc3339(t time.Time) string { return t.UTC().Format(time.RFC3339) }
