package agentrun

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"belay.dev/belay/api/v1alpha1"
)

type eventRecorder = events.EventRecorder

// Reasons of events. A run that ends has the reason of its condition Succeeded.
const (
	eventPodCreated = "PodCreated"
	eventResumed    = "Resumed"
	eventParked     = "Parked"
	eventSuspended  = "Suspended"
	eventPodEnded   = "PodEnded"
	eventFenced     = "Fenced"
)

// eventAction is what the controller was doing.
const eventAction = "Reconciling"

var (
	epochsEnded = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "belay_agentrun_epochs_total", Help: "Pods of runs that ended, by why they ended.",
	}, []string{"end"})
	runsFinished = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "belay_agentrun_finished_total", Help: "Runs that finished, by the reason of their condition Succeeded.",
	}, []string{"reason"})
)

// registerMetrics adds the controller's metrics to those of the manager. A second manager in one process shares them.
func registerMetrics() error {
	for _, c := range []prometheus.Collector{epochsEnded, runsFinished} {
		var already prometheus.AlreadyRegisteredError
		if err := metrics.Registry.Register(c); err != nil && !errors.As(err, &already) {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	return nil
}

// announcement is one event.
type announcement struct {
	kind, reason, note string
}

// announce tells of what a status write changed: events, metrics and a log line. It is called after the write.
func (r *Reconciler) announce(ctx context.Context, run *v1alpha1.AgentRun, status *v1alpha1.AgentRunStatus) {
	old := &run.Status
	if record := newEnd(old, status); record != nil {
		epochsEnded.WithLabelValues(string(record.End)).Inc()
	}
	if !conditionTrue(old, v1alpha1.ConditionFinished) && conditionTrue(status, v1alpha1.ConditionFinished) {
		runsFinished.WithLabelValues(meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionSucceeded).Reason).Inc()
	}
	for _, a := range announcements(old, status) {
		ctrl.LoggerFrom(ctx).Info("Run changed", "reason", a.reason, "epoch", status.Epoch)
		r.events.Eventf(run, nil, a.kind, a.reason, eventAction, "%s", truncate(a.note, maxConditionMessage))
	}
}

// announcements are the events of a change from old to status. They name transitions, so a repeated write has none.
func announcements(old, status *v1alpha1.AgentRunStatus) []announcement {
	var list []announcement
	if old.PodUID != status.PodUID && status.PodUID != "" {
		list = append(list, announcement{corev1.EventTypeNormal, eventPodCreated, fmt.Sprintf("pod %s of epoch %d", status.PodName, status.Epoch)})
		if resumes(status) > resumes(old) {
			list = append(list, announcement{corev1.EventTypeNormal, eventResumed, fmt.Sprintf("pod %s continues what an earlier pod began", status.PodName)})
		}
	}
	if record := newEnd(old, status); record != nil {
		switch record.End {
		case v1alpha1.EpochFailed, v1alpha1.EpochDisrupted, v1alpha1.EpochLost, v1alpha1.EpochNeverStarted:
			list = append(list, announcement{corev1.EventTypeWarning, eventPodEnded, fmt.Sprintf("pod %s of epoch %d: %s: %s", record.PodName, record.Epoch, record.End, record.Message)})
		case v1alpha1.EpochFenced:
			list = append(list, announcement{corev1.EventTypeWarning, eventFenced, fmt.Sprintf("pod %s of epoch %d: %s", record.PodName, record.Epoch, record.Message)})
		case v1alpha1.EpochFinished, v1alpha1.EpochParked, v1alpha1.EpochSuspended, v1alpha1.EpochCancelled, v1alpha1.EpochInterrupted:
		}
	}
	for _, c := range []struct{ condition, reason string }{{v1alpha1.ConditionParked, eventParked}, {v1alpha1.ConditionSuspended, eventSuspended}} {
		if !conditionTrue(old, c.condition) && conditionTrue(status, c.condition) {
			now := meta.FindStatusCondition(status.Conditions, c.condition)
			list = append(list, announcement{corev1.EventTypeNormal, c.reason, now.Reason + ": " + now.Message})
		}
	}
	for _, kind := range []string{v1alpha1.ConditionAdmitted, v1alpha1.ConditionPodReady} {
		before, now := meta.FindStatusCondition(old.Conditions, kind), meta.FindStatusCondition(status.Conditions, kind)
		if now != nil && troubling(now.Reason) && (before == nil || before.Reason != now.Reason) {
			list = append(list, announcement{corev1.EventTypeWarning, now.Reason, now.Message})
		}
	}
	if !conditionTrue(old, v1alpha1.ConditionFinished) && conditionTrue(status, v1alpha1.ConditionFinished) {
		end := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionSucceeded)
		kind := corev1.EventTypeNormal
		if end.Status != metav1.ConditionTrue {
			kind = corev1.EventTypeWarning
		}
		list = append(list, announcement{kind, end.Reason, end.Message})
	}
	return list
}

// troubling reasons need someone to do something.
func troubling(reason string) bool {
	switch reason {
	case v1alpha1.ReasonLadderNotFound, v1alpha1.ReasonLadderUnusable, v1alpha1.ReasonPodCreateFailed, v1alpha1.ReasonPodNameTaken,
		v1alpha1.ReasonNodeUnreachable, v1alpha1.ReasonMultiplePods:
		return true
	default:
		return false
	}
}

// newEnd is the record that status has and old has not.
func newEnd(old, status *v1alpha1.AgentRunStatus) *v1alpha1.EpochRecord {
	n := len(status.Epochs)
	if n == 0 {
		return nil
	}
	last := &status.Epochs[n-1]
	if m := len(old.Epochs); m > 0 && old.Epochs[m-1].Epoch == last.Epoch {
		return nil
	}
	return last
}

func conditionTrue(s *v1alpha1.AgentRunStatus, kind string) bool {
	return meta.IsStatusConditionTrue(s.Conditions, kind)
}

func resumes(s *v1alpha1.AgentRunStatus) int32 {
	if s.Resumes == nil {
		return 0
	}
	return *s.Resumes
}
