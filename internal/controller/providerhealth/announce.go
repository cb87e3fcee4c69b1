package providerhealth

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"belay.dev/belay/api/v1alpha1"
	"belay.dev/belay/internal/runtime/breaker"
	"belay.dev/belay/internal/runtime/report"
)

// Reasons of events.
const (
	eventBreakerOpened     = "BreakerOpened"
	eventBreakerHalfOpened = "BreakerHalfOpened"
	eventBreakerClosed     = "BreakerClosed"
)

// eventAction is what the controller was doing.
const eventAction = "Reconciling"

var transitions = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "belay_providerhealth_transitions_total", Help: "Changes of shared breakers, by the new state and the failure behind it.",
}, []string{"state", "kind"})

var routesDesc = prometheus.NewDesc("belay_providerhealth_routes", "Routes by dialect and by the state of their shared breaker.",
	[]string{"dialect", "state"}, nil)

// states counts the routes at each scrape, so that the figures cannot drift from the objects.
type states struct{ reader client.Reader }

// Describe implements prometheus.Collector.
func (s states) Describe(ch chan<- *prometheus.Desc) { ch <- routesDesc }

// Collect implements prometheus.Collector.
func (s states) Collect(ch chan<- prometheus.Metric) {
	var list v1alpha1.ProviderHealthList
	if err := s.reader.List(context.Background(), &list, client.UnsafeDisableDeepCopy); err != nil {
		ch <- prometheus.NewInvalidMetric(routesDesc, fmt.Errorf("listing the health of routes: %w", err))
		return
	}
	type labels struct{ dialect, state string }
	count := map[labels]int{}
	for i := range list.Items {
		h := &list.Items[i]
		state := h.Status.State
		if state == "" {
			state = v1alpha1.HealthClosed
		}
		count[labels{string(h.Spec.Route.Dialect), string(state)}]++
	}
	for l, n := range count {
		ch <- prometheus.MustNewConstMetric(routesDesc, prometheus.GaugeValue, float64(n), l.dialect, l.state)
	}
}

// registerMetrics adds the controller's metrics to those of the manager. A second manager in one process shares them.
func registerMetrics(reader client.Reader) error {
	for _, c := range []prometheus.Collector{transitions, states{reader}} {
		var already prometheus.AlreadyRegisteredError
		if err := metrics.Registry.Register(c); err != nil && !errors.As(err, &already) {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	return nil
}

// announce tells of transitions: a log line, a metric and, for those of the breaker, an event. It is called after the
// write.
func (r *Reconciler) announce(ctx context.Context, health *v1alpha1.ProviderHealth, list []report.Transition) {
	for _, t := range list {
		kind := string(t.Kind)
		if kind == "" {
			kind = "None"
		}
		transitions.WithLabelValues(string(t.To), kind).Inc()
		ctrl.LoggerFrom(ctx).Info("Route changed", "ProviderHealth", klog.KObj(health), "from", t.From, "to", t.To,
			"generation", t.Generation, "kind", t.Kind)
		if a, ok := announcementOf(t); ok {
			r.events.Eventf(health, nil, a.kind, a.reason, eventAction, "%s", a.note)
		}
	}
}

// announcement is one event.
type announcement struct{ kind, reason, note string }

// announcementOf returns the event of a transition; false for one that is none of the breaker's. A cooling is a provider's
// ordinary way to say when to come back.
func announcementOf(t report.Transition) (announcement, bool) {
	switch t.To {
	case breaker.Open:
		note := t.Cause
		if t.Kind != "" {
			note = fmt.Sprintf("%s: %s", t.Kind, t.Cause)
		}
		return announcement{corev1.EventTypeWarning, eventBreakerOpened, note}, true
	case breaker.HalfOpen:
		return announcement{corev1.EventTypeNormal, eventBreakerHalfOpened, t.Cause}, true
	case breaker.Closed:
		if t.From == breaker.Open || t.From == breaker.HalfOpen {
			return announcement{corev1.EventTypeNormal, eventBreakerClosed, t.Cause}, true
		}
	case breaker.Cooling:
	}
	return announcement{}, false
}
