package routeladder

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"belay.dev/belay/api/v1alpha1"
)

// eventAction is what the controller was doing.
const eventAction = "Reconciling"

// maxEventNote is what the events API takes.
const maxEventNote = 1024

var conditionsDesc = prometheus.NewDesc("belay_routeladder_conditions", "Ladders by a condition that is not True and its reason.",
	[]string{"condition", "reason"}, nil)

// conditions counts the ladders at each scrape, so that the figures cannot drift from the objects.
type conditions struct{ reader client.Reader }

// Describe implements prometheus.Collector.
func (c conditions) Describe(ch chan<- *prometheus.Desc) { ch <- conditionsDesc }

// Collect implements prometheus.Collector.
func (c conditions) Collect(ch chan<- prometheus.Metric) {
	var list v1alpha1.RouteLadderList
	if err := c.reader.List(context.Background(), &list, client.UnsafeDisableDeepCopy); err != nil {
		ch <- prometheus.NewInvalidMetric(conditionsDesc, fmt.Errorf("listing ladders: %w", err))
		return
	}
	type labels struct{ condition, reason string }
	count := map[labels]int{}
	for i := range list.Items {
		for _, cond := range list.Items[i].Status.Conditions {
			if cond.Status != metav1.ConditionTrue {
				count[labels{cond.Type, cond.Reason}]++
			}
		}
	}
	for l, n := range count {
		ch <- prometheus.MustNewConstMetric(conditionsDesc, prometheus.GaugeValue, float64(n), l.condition, l.reason)
	}
}

// registerMetrics adds the controller's metrics to those of the manager. A second manager in one process shares them.
func registerMetrics(reader client.Reader) error {
	var already prometheus.AlreadyRegisteredError
	if err := metrics.Registry.Register(conditions{reader}); err != nil && !errors.As(err, &already) {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return nil
}

// announce tells of the conditions that a status write changed. It is called after the write.
func (r *Reconciler) announce(ctx context.Context, l *v1alpha1.RouteLadder, status *v1alpha1.RouteLadderStatus) {
	for _, a := range announcements(l.Status.Conditions, status.Conditions) {
		ctrl.LoggerFrom(ctx).Info("Ladder changed", "RouteLadder", klog.KObj(l), "reason", a.reason)
		r.events.Eventf(l, nil, a.kind, a.reason, eventAction, "%s", a.note)
	}
}

// announcement is one event.
type announcement struct{ kind, reason, note string }

// announcements are the events of a change: one for each condition whose status or reason changed. That a new ladder is
// all right is no news, and Ready says nothing that Accepted does not.
func announcements(old, changed []metav1.Condition) []announcement {
	var list []announcement
	for _, c := range changed {
		before := meta.FindStatusCondition(old, c.Type)
		good := c.Status == metav1.ConditionTrue && c.Reason != v1alpha1.ReasonLegsLeftOut
		switch {
		case c.Type == v1alpha1.ConditionReady:
		case before == nil && good:
		case before != nil && before.Status == c.Status && before.Reason == c.Reason:
		case good:
			list = append(list, announcement{corev1.EventTypeNormal, c.Reason, truncate(c.Message, maxEventNote)})
		default:
			list = append(list, announcement{corev1.EventTypeWarning, c.Reason, truncate(c.Message, maxEventNote)})
		}
	}
	return list
}
