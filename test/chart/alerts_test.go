package chart

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"

	"belay.dev/belay/api/v1alpha1"
)

// metricName is the label that a selector has its metric in.
const metricName = "__name__"

// alert is what a PrometheusRule has of one.
type alert struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func alerts(t *testing.T) []alert {
	t.Helper()
	type rules struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Metadata   map[string]any `json:"metadata"`
		Spec       struct {
			Groups []struct {
				Name  string  `json:"name"`
				Rules []alert `json:"rules"`
			} `json:"groups"`
		} `json:"spec"`
	}
	rendered := render(t, append(sameAsConfig, "--set", "metrics.alerts.enabled=true")...)
	var all []alert
	for _, group := range as[rules](t, rendered["PrometheusRule/belay-alerts"]).Spec.Groups {
		all = append(all, group.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("the chart has no alerts")
	}
	return all
}

// selectors are the metrics that an alert asks for.
func (a alert) selectors(t *testing.T) []*parser.VectorSelector {
	t.Helper()
	expr, err := parser.ParseExpr(a.Expr)
	if err != nil {
		t.Errorf("%s: %s: %v", a.Alert, a.Expr, err)
		return nil
	}
	var all []*parser.VectorSelector
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if selector, ok := node.(*parser.VectorSelector); ok {
			all = append(all, selector)
		}
		return nil
	})
	return all
}

func TestAlertsAskForValuesThatLabelsCanHave(t *testing.T) {
	var ladderReasons = []string{
		v1alpha1.ReasonAccepted, v1alpha1.ReasonLegsLeftOut, v1alpha1.ReasonNoUsableLeg, v1alpha1.ReasonReady, v1alpha1.ReasonAvailable,
		v1alpha1.ReasonUnavailable, v1alpha1.ReasonCredentialInvalid, v1alpha1.ReasonModelNotFound, v1alpha1.ReasonNoRejection,
	}
	known := map[string][]string{
		"belay_providerhealth_routes state":      {string(v1alpha1.HealthClosed), string(v1alpha1.HealthCooling), string(v1alpha1.HealthOpen), string(v1alpha1.HealthHalfOpen)},
		"belay_routeladder_conditions condition": {v1alpha1.ConditionAccepted, v1alpha1.ConditionAvailable, v1alpha1.ConditionLegsVerified},
		"belay_routeladder_conditions reason":    ladderReasons,
		"belay_agentrun_finished_total reason":   v1alpha1.FailureReasons(),
		"belay_agentrun_epochs_total end":        {string(v1alpha1.EpochFenced), string(v1alpha1.EpochFailed), string(v1alpha1.EpochParked)},
	}
	for _, a := range alerts(t) {
		selectors := a.selectors(t)
		if len(selectors) == 0 {
			t.Errorf("%s asks for no metric", a.Alert)
		}
		for _, selector := range selectors {
			for _, matcher := range selector.LabelMatchers {
				if matcher.Name == metricName {
					continue
				}
				for value := range strings.SplitSeq(matcher.Value, "|") {
					if !slices.Contains(known[selector.Name+" "+matcher.Name], value) {
						t.Errorf("%s: the label %s of %s is never %s", a.Alert, matcher.Name, selector.Name, value)
					}
				}
			}
		}
		if a.Annotations["summary"] == "" || a.Annotations["description"] == "" || a.Labels["severity"] == "" {
			t.Errorf("%s lacks summary, description or severity", a.Alert)
		}
	}
}
