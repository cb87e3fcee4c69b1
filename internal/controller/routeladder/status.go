package routeladder

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"belay.dev/belay/api/v1alpha1"
	"belay.dev/belay/internal/runtime/breaker"
	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/report"
	"belay.dev/belay/internal/runtime/route"
)

const (
	maxConditionMessage = 2048
	maxLegMessage       = 512
)

// facts are what a pass knows about one ladder.
type facts struct {
	now    time.Time
	ladder *v1alpha1.RouteLadder
	// health has the objects that exist, by route.
	health map[route.Name]*v1alpha1.ProviderHealth
}

// nextStatus is the status after a pass. It is pure.
func nextStatus(f *facts) v1alpha1.RouteLadderStatus {
	verdicts := judge(f.ladder)
	s := v1alpha1.RouteLadderStatus{
		Conditions:         f.ladder.Status.DeepCopy().Conditions,
		ObservedGeneration: f.ladder.Generation,
		LegCount:           int32(len(verdicts)),
	}
	usable := 0
	for _, v := range verdicts {
		leg := v1alpha1.LegStatus{Name: v.leg.Name, Route: string(v.route), State: v1alpha1.LegAccepted}
		if !v.accepted() {
			leg.State, leg.Reason, leg.Message = v1alpha1.LegLeftOut, v.reason, truncate(v.message, maxLegMessage)
		}
		s.Legs = append(s.Legs, leg)
		if v.accepted() && f.usable(v.route) {
			usable++
			if s.Active == "" {
				s.Active = v.leg.Name
			}
		}
	}
	s.Available = fmt.Sprintf("%d/%d", usable, len(verdicts))
	for _, c := range []metav1.Condition{accepted(verdicts), ready(verdicts), f.available(verdicts, usable), resilient(verdicts), f.verified(verdicts)} {
		c.ObservedGeneration = f.ladder.Generation
		c.LastTransitionTime = metav1.NewTime(f.now)
		c.Message = truncate(c.Message, maxConditionMessage)
		meta.SetStatusCondition(&s.Conditions, c)
	}
	return s
}

// usable tells whether runs may use the route now. Nothing bad is known about a route whose object does not exist yet.
func (f *facts) usable(name route.Name) bool {
	h := f.health[name]
	return h == nil || h.Status.State == "" || h.Status.State == v1alpha1.HealthClosed
}

func accepted(verdicts []verdict) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted}
	var left []string
	for _, v := range verdicts {
		if !v.accepted() {
			left = append(left, fmt.Sprintf("leg %q is left out (%s): %s", v.leg.Name, v.reason, v.message))
		}
	}
	switch len(left) {
	case 0:
		c.Message = fmt.Sprintf("all %d legs are accepted", len(verdicts))
		if len(verdicts) == 1 {
			c.Message = "the leg is accepted"
		}
		return c
	case len(verdicts):
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonNoUsableLeg
	default:
		c.Reason = v1alpha1.ReasonLegsLeftOut
	}
	c.Message = strings.Join(left, "; ")
	return c
}

func ready(verdicts []verdict) metav1.Condition {
	for _, v := range verdicts {
		if v.accepted() {
			return metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady,
				Message: "the configuration works; condition Available tells about outages"}
		}
	}
	return metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNoUsableLeg,
		Message: "no leg can be used; condition Accepted says why"}
}

func (f *facts) available(verdicts []verdict, usable int) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAvailable}
	if usable == 0 {
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonUnavailable
	}
	var blocked []string
	for _, v := range verdicts {
		if v.accepted() && !f.usable(v.route) {
			blocked = append(blocked, fmt.Sprintf("leg %q is %s", v.leg.Name, f.health[v.route].Status.State))
		}
	}
	switch {
	case len(blocked) > 0:
		c.Message = strings.Join(blocked, "; ")
	case usable == 0:
		c.Message = "no leg is accepted"
	default:
		c.Message = "every accepted leg may be used"
	}
	return c
}

func resilient(verdicts []verdict) metav1.Condition {
	list := warnings(verdicts)
	if len(list) == 0 {
		return metav1.Condition{Type: v1alpha1.ConditionResilient, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonResilient,
			Message: "nothing about the ladder stands in the way of a failover"}
	}
	var messages []string
	for _, w := range list {
		messages = append(messages, fmt.Sprintf("%s: %s", w.reason, w.message))
	}
	return metav1.Condition{Type: v1alpha1.ConditionResilient, Status: metav1.ConditionFalse, Reason: list[0].reason, Message: strings.Join(messages, "; ")}
}

// verified tells what providers think of the legs' credentials and models, as far as runs have found out.
func (f *facts) verified(verdicts []verdict) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionLegsVerified, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonNoRejection,
		Message: "no provider has rejected a leg's credential or model since it last worked"}
	var rejected []string
	for _, v := range verdicts {
		h := f.health[v.route]
		if !v.accepted() || h == nil {
			continue
		}
		kind, ok := rejection(h)
		if !ok {
			continue
		}
		c.Status = metav1.ConditionFalse
		if kind.Disposition().Flag == failure.FlagModel {
			rejected = append(rejected, fmt.Sprintf("leg %q: the provider does not serve model %q", v.leg.Name, h.Spec.Route.Model))
			if len(rejected) == 1 {
				c.Reason = v1alpha1.ReasonModelNotFound
			}
			continue
		}
		// A bad credential is the graver news: it concerns everything that uses it.
		c.Reason = v1alpha1.ReasonCredentialInvalid
		what := "requests without a credential"
		if ref := h.Spec.Route.SecretRef; ref != nil {
			what = fmt.Sprintf("key %q of Secret %q", ref.Key, ref.Name)
		}
		rejected = append(rejected, fmt.Sprintf("leg %q: the provider rejected %s (%s)", v.leg.Name, what, kind))
	}
	if len(rejected) > 0 {
		c.Message = strings.Join(rejected, "; ")
	}
	return c
}

// rejection returns the newest word of a provider about a route if it was to reject its credential or model.
func rejection(h *v1alpha1.ProviderHealth) (failure.Kind, bool) {
	l := h.Status.LastFailure
	if l == nil || l.Time == nil {
		return "", false
	}
	var success time.Time
	if t := h.Status.LastSuccessTime; t != nil {
		success = t.Time
	}
	kind := failure.Kind(l.Kind)
	return kind, report.Rejected(breaker.LastFailure{Kind: kind, Time: l.Time.Time}, success)
}

// truncate cuts a text at a bound in bytes, between two characters.
func truncate(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	const ellipsis = "…"
	cut := limit - len(ellipsis)
	for cut > 0 && text[cut]&0xC0 == 0x80 {
		cut--
	}
	return text[:cut] + ellipsis
}
