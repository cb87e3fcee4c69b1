package agentrun

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"belay.dev/belay/api/v1alpha1"
)

// maxConditionMessage keeps a status small; the API would allow 32 KiB.
const maxConditionMessage = 1024

// nextStatus is the status after a pass: what was there, what is seen, and what was decided. It leaves runner alone.
func nextStatus(f *facts, d *decision) v1alpha1.AgentRunStatus {
	s := *f.run.Status.DeepCopy()
	s.ObservedGeneration = f.run.Generation
	if runner := s.Runner; runner != nil && runner.ReplayedTurns != nil {
		s.ReplayedTurns = runner.ReplayedTurns
	}
	if !finished(f.run) {
		adopt(&s, f.current())
	}
	if d.record != nil {
		recordEpoch(&s, d.record)
	}
	if d.begin > 0 {
		s.Epoch = d.begin
		s.PodName = podName(f.run, d.begin)
		s.PodUID, s.PodStartTime, s.NextEpochTime = "", nil, nil
	}
	if d.finish != nil {
		finishRun(&s, d.finish, f.now)
	}
	setConditions(&s, f, d)
	return s
}

// adopt writes down the epoch's pod once it exists.
func adopt(s *v1alpha1.AgentRunStatus, p *podFacts) {
	if p == nil || s.PodUID != "" {
		return
	}
	s.PodUID = string(p.uid)
	s.PodStartTime = ptr.To(p.created)
	if s.StartTime == nil {
		s.StartTime = ptr.To(p.created)
	}
	resumes := ptr.Deref(s.Resumes, 0)
	if s.Runner != nil && s.Runner.Epoch < s.Epoch { // an earlier pod had begun
		resumes++
	}
	s.Resumes = &resumes
}

// recordEpoch adds the record of a pod's end and counts what it counts. It is written once for an epoch, because the record
// and the counters are in one status write.
func recordEpoch(s *v1alpha1.AgentRunStatus, r *v1alpha1.EpochRecord) {
	s.Epochs = append(s.Epochs, *r)
	if extra := len(s.Epochs) - maxRecords; extra > 0 {
		s.Epochs = s.Epochs[extra:]
	}
	if r.StartTime != nil {
		lived := max(r.EndTime.Sub(r.StartTime.Time), 0)
		s.ActiveSeconds = ptr.To(ptr.Deref(s.ActiveSeconds, 0) + int64(lived/time.Second))
	}
	switch r.End {
	case v1alpha1.EpochFailed:
		s.Restarts = ptr.To(ptr.Deref(s.Restarts, 0) + 1)
	case v1alpha1.EpochDisrupted, v1alpha1.EpochLost:
		s.Disruptions = ptr.To(ptr.Deref(s.Disruptions, 0) + 1)
	case v1alpha1.EpochFinished, v1alpha1.EpochParked, v1alpha1.EpochSuspended, v1alpha1.EpochCancelled, v1alpha1.EpochInterrupted,
		v1alpha1.EpochFenced, v1alpha1.EpochNeverStarted:
	}
	s.NextEpochTime = nil
	if wait := backoff(s.Epochs); wait > 0 {
		s.NextEpochTime = ptr.To(metav1.NewTime(r.EndTime.Add(wait)))
	}
}

// finishRun writes the end of the run.
func finishRun(s *v1alpha1.AgentRunStatus, e *ending, now time.Time) {
	s.CompletionTime = ptr.To(metav1.NewTime(now))
	s.NextEpochTime = nil
	s.Outcome = e.outcome
	if s.Runner != nil {
		s.Usage = s.Runner.Usage
	}
	report := e.report
	if report == nil {
		return
	}
	if report.Usage != nil {
		s.Usage = report.Usage
	}
	s.Legs = report.Legs
	if report.Text != "" || report.Size != nil || report.Path != "" {
		s.Result = &v1alpha1.Result{Text: report.Text, Size: report.Size, SHA256: report.SHA256, Path: report.Path}
	}
}

// setConditions sets all conditions, so that none ever vanishes. Those that only a running run can change stay as they
// were when it ended, and are stamped with the newest generation.
func setConditions(s *v1alpha1.AgentRunStatus, f *facts, d *decision) {
	set := func(kind string, status metav1.ConditionStatus, c condition) {
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: c.reason, Message: truncate(c.message, maxConditionMessage),
			ObservedGeneration: f.run.Generation, LastTransitionTime: metav1.NewTime(f.now),
		})
	}
	if finished(f.run) {
		set(v1alpha1.ConditionPodReady, conditionStatus(d.podUp), d.podReady)
		for i := range s.Conditions {
			s.Conditions[i].ObservedGeneration = f.run.Generation
		}
		return
	}
	status, succeeded := succeededCondition(s, f, d)
	set(v1alpha1.ConditionSucceeded, status, succeeded)
	if d.finish != nil {
		set(v1alpha1.ConditionFinished, metav1.ConditionTrue, condition{v1alpha1.ReasonFinished, ""})
	} else {
		set(v1alpha1.ConditionFinished, metav1.ConditionFalse, condition{v1alpha1.ReasonNotFinished, ""})
	}
	if status == metav1.ConditionFalse {
		set(v1alpha1.ConditionStalled, metav1.ConditionTrue, succeeded)
	} else {
		set(v1alpha1.ConditionStalled, metav1.ConditionFalse, condition{v1alpha1.ReasonNotStalled, ""})
	}
	set(v1alpha1.ConditionAdmitted, conditionStatus(d.admission.admitted()), condition{d.admission.reason, d.admission.message})
	set(v1alpha1.ConditionPodReady, conditionStatus(d.podUp), d.podReady)
	status, c := parkedCondition(f, d)
	set(v1alpha1.ConditionParked, status, c)
	status, c = suspendedCondition(f, d)
	set(v1alpha1.ConditionSuspended, status, c)
	status, c = ledgerCondition(s)
	set(v1alpha1.ConditionLedgerHealthy, status, c)
	status, c = routeCondition(s)
	set(v1alpha1.ConditionRouteAvailable, status, c)
}

func succeededCondition(s *v1alpha1.AgentRunStatus, f *facts, d *decision) (metav1.ConditionStatus, condition) {
	switch {
	case d.finish != nil && d.finish.reason == v1alpha1.ReasonCompleted:
		return metav1.ConditionTrue, condition{d.finish.reason, d.finish.message}
	case d.finish != nil:
		return metav1.ConditionFalse, condition{d.finish.reason, d.finish.message}
	case suspended(f, d):
		return metav1.ConditionUnknown, condition{v1alpha1.ReasonSuspended, ""}
	case d.parked:
		return metav1.ConditionUnknown, condition{v1alpha1.ReasonParked, ""}
	case s.StartTime == nil:
		return metav1.ConditionUnknown, condition{v1alpha1.ReasonPending, d.podReady.message}
	default:
		return metav1.ConditionUnknown, condition{v1alpha1.ReasonRunning, ""}
	}
}

func parkedCondition(f *facts, d *decision) (metav1.ConditionStatus, condition) {
	if !d.parked {
		return metav1.ConditionFalse, condition{v1alpha1.ReasonNotParked, ""}
	}
	c := condition{reason: v1alpha1.ReasonAllRoutesTripped}
	if report := final(f.run); report != nil {
		c.message = report.Message
		if slices.Contains(v1alpha1.AgentRunReasons(v1alpha1.ConditionParked), report.Reason) && report.Reason != v1alpha1.ReasonNotParked {
			c.reason = report.Reason
		}
	}
	if runner := f.run.Status.Runner; runner != nil && runner.Wake != nil && runner.Wake.Until != nil {
		c.message = fmt.Sprintf("until %s at the latest; %s", rfc3339(runner.Wake.Until.Time), c.message)
	}
	return metav1.ConditionTrue, c
}

func suspendedCondition(f *facts, d *decision) (metav1.ConditionStatus, condition) {
	switch {
	case d.finish != nil || desiredState(f.run) != v1alpha1.DesiredStateSuspended:
		return metav1.ConditionFalse, condition{v1alpha1.ReasonNotSuspended, ""}
	case suspended(f, d):
		return metav1.ConditionTrue, condition{v1alpha1.ReasonSuspended, ""}
	default:
		return metav1.ConditionFalse, condition{v1alpha1.ReasonSuspending, "waiting for the pod to end"}
	}
}

// suspended says whether a run that should be suspended has no pod any more.
func suspended(f *facts, d *decision) bool {
	if desiredState(f.run) != v1alpha1.DesiredStateSuspended || d.finish != nil {
		return false
	}
	p := f.current()
	return p == nil || p.over()
}

func ledgerCondition(s *v1alpha1.AgentRunStatus) (metav1.ConditionStatus, condition) {
	runner := s.Runner
	if runner == nil {
		return metav1.ConditionUnknown, condition{v1alpha1.ReasonNotReported, ""}
	}
	if runner.Final != nil {
		switch runner.Final.Reason {
		case v1alpha1.ReasonLedgerCorrupt, v1alpha1.ReasonLedgerUnwritable, v1alpha1.ReasonLedgerRegressed:
			return metav1.ConditionFalse, condition{runner.Final.Reason, runner.Final.Message}
		}
	}
	if runner.Ledger == nil {
		return metav1.ConditionUnknown, condition{v1alpha1.ReasonNotReported, ""}
	}
	return metav1.ConditionTrue, condition{v1alpha1.ReasonHealthy, ""}
}

func routeCondition(s *v1alpha1.AgentRunStatus) (metav1.ConditionStatus, condition) {
	runner := s.Runner
	switch {
	case runner == nil || runner.Epoch != s.Epoch || (runner.Leg == "" && runner.Wake == nil):
		return metav1.ConditionUnknown, condition{v1alpha1.ReasonNotReported, ""}
	case runner.Wake == nil:
		return metav1.ConditionTrue, condition{v1alpha1.ReasonAvailable, unusableLegs(runner)}
	}
	c := condition{reason: v1alpha1.ReasonAllRoutesTripped}
	switch runner.Wake.Reason {
	case v1alpha1.ReasonLadderUnusable, v1alpha1.ReasonCredentialInvalid:
		c.reason = runner.Wake.Reason
	}
	if runner.Wake.Until != nil {
		c.message = "until " + rfc3339(runner.Wake.Until.Time) + " at the latest"
	}
	if left := unusableLegs(runner); left != "" {
		c.message = strings.TrimPrefix(c.message+"; "+left, "; ")
	}
	return metav1.ConditionFalse, c
}

// unusableLegs names the legs that the run cannot use, and why: a chain that is shorter than it looks is told of even while
// the run does well without them.
func unusableLegs(runner *v1alpha1.RunnerStatus) string {
	parts := make([]string, 0, len(runner.UnusableLegs))
	for _, leg := range runner.UnusableLegs {
		parts = append(parts, fmt.Sprintf("leg %s is left out: %s", leg.Name, leg.Reason))
	}
	return strings.Join(parts, "; ")
}

func conditionStatus(b bool) metav1.ConditionStatus {
	if b {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

// finished says whether the run has ended.
func finished(run *v1alpha1.AgentRun) bool {
	return meta.IsStatusConditionTrue(run.Status.Conditions, v1alpha1.ConditionFinished)
}

func isFailureReason(reason string) bool { return slices.Contains(v1alpha1.FailureReasons(), reason) }

// ladderRejected says whether the routeladder controller refuses the ladder as it is now.
func ladderRejected(ladder *v1alpha1.RouteLadder) bool {
	c := meta.FindStatusCondition(ladder.Status.Conditions, v1alpha1.ConditionAccepted)
	return c != nil && c.Status == metav1.ConditionFalse && c.ObservedGeneration == ladder.Generation
}

// ladderAccepted says whether the routeladder controller accepts the ladder as it is now.
func ladderAccepted(ladder *v1alpha1.RouteLadder) bool {
	c := meta.FindStatusCondition(ladder.Status.Conditions, v1alpha1.ConditionAccepted)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == ladder.Generation
}
