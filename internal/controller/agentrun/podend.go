package agentrun

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"belay.dev/belay/api/v1alpha1"
)

// maxRecords is how many ended pods a run's status remembers.
const maxRecords = 10

// maxRecordMessage is the length that the API allows for the message of a record.
const maxRecordMessage = 512

// recordEnd is for an epoch whose pod is over; p is nil if the pod vanished. It says why the pod ended, and ends the run if
// the runner said so or a limit is spent.
func (d *decision) recordEnd(f *facts, p *podFacts) {
	run := f.run
	end, message := classifyEnd(f, p)
	d.record = newRecord(f, p, end, message)
	d.podReady = condition{v1alpha1.ReasonPodEnded, d.record.Message}
	d.podUp = false
	switch report := final(run); end {
	case v1alpha1.EpochFinished:
		if report != nil && endsRun(report.Outcome) {
			d.finish = endingOf(report)
		} else {
			d.finish = deadlineExceeded(run)
		}
	case v1alpha1.EpochCancelled:
		d.finish = cancelled()
	case v1alpha1.EpochNeverStarted:
		text := fmt.Sprintf("pod %s did not run its runner within startupDeadlineSeconds (%d)", run.Status.PodName, int(startupDeadline(run).Seconds()))
		if message != "" {
			text += ": " + message
		}
		d.finish = &ending{reason: v1alpha1.ReasonStartupDeadline, message: text, outcome: v1alpha1.OutcomeFailed}
	case v1alpha1.EpochFailed:
		if limit := ptr.Deref(run.Spec.RestartLimit, v1alpha1.DefaultRestartLimit); ptr.Deref(run.Status.Restarts, 0) >= limit {
			d.finish = &ending{
				reason: v1alpha1.ReasonRestartLimit, outcome: v1alpha1.OutcomeFailed,
				message: fmt.Sprintf("restartLimit (%d) is spent; the last pod, %s: %s", limit, run.Status.PodName, d.record.Message),
			}
		}
	case v1alpha1.EpochDisrupted, v1alpha1.EpochLost:
		if limit := ptr.Deref(run.Spec.DisruptionLimit, v1alpha1.DefaultDisruptionLimit); ptr.Deref(run.Status.Disruptions, 0) >= limit {
			d.finish = &ending{
				reason: v1alpha1.ReasonDisruptionLimit, outcome: v1alpha1.OutcomeFailed,
				message: fmt.Sprintf("disruptionLimit (%d) is spent; the last pod, %s: %s", limit, run.Status.PodName, d.record.Message),
			}
		}
	case v1alpha1.EpochParked:
		d.parked = true
		d.podReady = condition{v1alpha1.ReasonPodNotNeeded, "the run is parked"}
	case v1alpha1.EpochSuspended, v1alpha1.EpochInterrupted, v1alpha1.EpochFenced:
	}
}

// classifyEnd says why a pod ended, from the strongest evidence to the weakest: what the runner reported, what the
// controller itself did, what the cluster did, and what is left is the run's own fault.
func classifyEnd(f *facts, p *podFacts) (v1alpha1.EpochEnd, string) {
	run, report := f.run, final(f.run)
	if report != nil && endsRun(report.Outcome) {
		return v1alpha1.EpochFinished, report.Message
	}
	if desiredState(run) == v1alpha1.DesiredStateCancelled {
		return v1alpha1.EpochCancelled, ""
	}
	if report != nil && report.Outcome == v1alpha1.FinalParked {
		return v1alpha1.EpochParked, report.Message
	}
	if (report != nil && report.Outcome == v1alpha1.FinalSuspended) ||
		(desiredState(run) == v1alpha1.DesiredStateSuspended && p != nil && p.deleted) {
		return v1alpha1.EpochSuspended, ""
	}
	if p == nil {
		return v1alpha1.EpochLost, "the pod disappeared before its end was recorded"
	}
	if age := f.now.Sub(p.created.Time); p.deleted && activeFor(run)+age >= activeDeadline(run) {
		return v1alpha1.EpochFinished, ""
	} else if p.deleted && !p.started && age >= startupDeadline(run) {
		return v1alpha1.EpochNeverStarted, startProblem(f, p)
	}
	switch {
	case report != nil && report.Outcome == v1alpha1.FinalFenced:
		return v1alpha1.EpochFenced, fencedMessage(report)
	case p.disrupted && p.message != "":
		return v1alpha1.EpochDisrupted, p.message
	case p.disrupted:
		return v1alpha1.EpochDisrupted, "the cluster took the pod away"
	case p.deleted:
		return v1alpha1.EpochDisrupted, deletedMessage(p)
	case report != nil && report.Outcome == v1alpha1.FinalInterrupted:
		return v1alpha1.EpochInterrupted, report.Message
	case p.message != "":
		return v1alpha1.EpochFailed, p.message
	default:
		return v1alpha1.EpochFailed, "the pod ended without a final report"
	}
}

func fencedMessage(report *v1alpha1.Final) string {
	if report.LedgerEpoch == 0 {
		return "another pod holds the ledger"
	}
	return fmt.Sprintf("the ledger's newest epoch is %d", report.LedgerEpoch)
}

// startProblem says what keeps, or kept, a pod from running its runner; empty for a pod that ran it. Once a pod is deleted
// its status tells of the deletion, so the condition PodReady remembers what was seen before.
func startProblem(f *facts, p *podFacts) string {
	if p.started {
		return ""
	}
	if c := meta.FindStatusCondition(f.run.Status.Conditions, v1alpha1.ConditionPodReady); p.deleted && c != nil && c.Message != "" &&
		(c.Reason == v1alpha1.ReasonPodStarting || c.Reason == v1alpha1.ReasonPodEnding) {
		return c.Message
	}
	return p.message
}

func deletedMessage(p *podFacts) string {
	switch {
	case p.terminal:
		return "the pod was deleted"
	case p.nodeName == "":
		return "the pod was deleted before it had a node"
	case p.node == nodeGone:
		return fmt.Sprintf("node %s is gone", p.nodeName)
	default:
		return fmt.Sprintf("node %s is out of service", p.nodeName)
	}
}

// endsRun says whether a final report of this outcome is the end of the run, not only of its pod.
func endsRun(outcome v1alpha1.FinalOutcome) bool {
	switch outcome {
	case v1alpha1.FinalProduced, v1alpha1.FinalUnknown, v1alpha1.FinalFailed:
		return true
	case v1alpha1.FinalParked, v1alpha1.FinalSuspended, v1alpha1.FinalInterrupted, v1alpha1.FinalFenced:
		return false
	default:
		return false
	}
}

// endingOf reads the end of a run from its runner's report. A reason that is not on the list of reasons cannot become a
// condition; it would be a runner of another version, and its message still says what happened.
func endingOf(report *v1alpha1.Final) *ending {
	e := &ending{reason: report.Reason, message: report.Message, report: report}
	switch report.Outcome {
	case v1alpha1.FinalProduced:
		e.outcome, e.reason = v1alpha1.OutcomeProduced, v1alpha1.ReasonCompleted
	case v1alpha1.FinalUnknown:
		e.outcome, e.reason = v1alpha1.OutcomeUnknown, v1alpha1.ReasonOutcomeUnknown
	case v1alpha1.FinalFailed, v1alpha1.FinalParked, v1alpha1.FinalSuspended, v1alpha1.FinalInterrupted, v1alpha1.FinalFenced:
		e.outcome = v1alpha1.OutcomeFailed
		if !isFailureReason(e.reason) {
			e.reason = v1alpha1.ReasonOutcomeUnknown
			e.message = fmt.Sprintf("the runner ended for reason %s, which this version does not know; %s", report.Reason, report.Message)
		}
	}
	return e
}

func newRecord(f *facts, p *podFacts, end v1alpha1.EpochEnd, message string) *v1alpha1.EpochRecord {
	status := &f.run.Status
	now := metav1.NewTime(f.now)
	r := &v1alpha1.EpochRecord{
		Epoch: status.Epoch, PodName: status.PodName, PodUID: status.PodUID, StartTime: status.PodStartTime, EndTime: &now,
		End: end, Message: truncate(message, maxRecordMessage),
	}
	if p != nil {
		r.PodUID, r.NodeName, r.StartTime, r.ExitCode = string(p.uid), p.nodeName, &p.created, p.exitCode
	}
	if f.ladder != nil {
		r.LadderGeneration = f.ladder.Generation
	}
	if runner := status.Runner; runner != nil {
		r.Turn = runner.Turn
		if runner.Ledger != nil {
			r.LedgerSeq = &runner.Ledger.Seq
		}
	}
	return r
}

// What a pod costs that the run gave back in order. A park waits for its wake-up anyway; this bounds what a runner can do that
// parks until a time that is always past.
const (
	parkedWait    = 10 * time.Second
	suspendedWait = time.Second
)

// backoffSteps are the waits before the next epoch, in seconds; the last one repeats.
var backoffSteps = [...]int32{1, 10, 20, 40, 80, 160, 300}

// backoff is the wait after the last of the records. It grows from pod to pod and starts again when a pod commits a turn.
func backoff(records []v1alpha1.EpochRecord) time.Duration {
	if len(records) == 0 {
		return 0
	}
	last := records[len(records)-1]
	if last.End == v1alpha1.EpochParked {
		return parkedWait
	}
	if last.End == v1alpha1.EpochSuspended {
		return suspendedWait
	}
	fruitless := 0
	for i := len(records) - 1; i >= 0 && !gaveBack(records[i].End); i-- {
		before := int32(0)
		if i > 0 {
			before = ptr.Deref(records[i-1].Turn, 0)
		}
		// The oldest record of a full list has no predecessor to compare with; taking it for fruitless errs towards waiting.
		if oldest := i == 0 && len(records) == maxRecords; !oldest && ptr.Deref(records[i].Turn, 0) > before {
			break
		}
		fruitless++
	}
	step := min(max(fruitless-1, 0), len(backoffSteps)-1)
	return seconds(backoffSteps[step])
}

// truncate cuts s to at most n bytes at a character's boundary.
func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	const mark = "…"
	cut := n - len(mark)
	for cut > 0 && s[cut]&0xC0 == 0x80 {
		cut--
	}
	return s[:cut] + mark
}
