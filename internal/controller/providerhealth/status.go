package providerhealth

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"belay.dev/belay/api/v1alpha1"
	"belay.dev/belay/internal/runtime/breaker"
	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/report"
)

// sharedOf reads the shared breaker from a status. The override that holds is told by the reason of condition Available.
func sharedOf(s *v1alpha1.ProviderHealthStatus) report.Status {
	out := report.Status{
		State:           positionOf(s.State),
		Generation:      ptr.Deref(s.Generation, 0),
		Failures:        int(ptr.Deref(s.Failures, 0)),
		Trips:           int(ptr.Deref(s.Trips, 0)),
		OpenedTime:      timeOf(s.OpenedTime),
		OpenUntil:       timeOf(s.OpenUntil),
		CoolUntil:       timeOf(s.CoolUntil),
		LastSuccessTime: timeOf(s.LastSuccessTime),
	}
	if l := s.LastFailure; l != nil {
		out.LastFailure = breaker.LastFailure{Kind: failure.Kind(l.Kind), HTTPStatus: int(l.HTTPStatus), Code: l.Code, Time: timeOf(l.Time)}
	}
	if p := s.Probe; p != nil {
		out.Probe = &report.Probe{RunName: p.RunName, RunUID: p.RunUID, Epoch: p.Epoch, Token: p.Token, ExpiresAt: p.ExpiresAt.Time}
	}
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionAvailable); c != nil {
		switch c.Reason {
		case v1alpha1.ReasonForcedOpen:
			out.Override = report.ForcedOpen
		case v1alpha1.ReasonForcedClosed:
			out.Override = report.ForcedClosed
		}
	}
	return out
}

func positionOf(s v1alpha1.HealthState) breaker.Position {
	switch s {
	case v1alpha1.HealthCooling:
		return breaker.Cooling
	case v1alpha1.HealthOpen:
		return breaker.Open
	case v1alpha1.HealthHalfOpen:
		return breaker.HalfOpen
	case v1alpha1.HealthClosed:
	}
	return breaker.Closed
}

// statusOf is the status after a pass.
func (f *facts) statusOf(old *v1alpha1.ProviderHealthStatus, s report.Status, wish report.Wish) v1alpha1.ProviderHealthStatus {
	out := v1alpha1.ProviderHealthStatus{
		Conditions:         old.DeepCopy().Conditions,
		ObservedGeneration: 1, // that of an object which is about to be created
		State:              v1alpha1.HealthState(s.State),
		Generation:         ptr.To(s.Generation),
		Failures:           ptr.To(int32(s.Failures)),
		Trips:              ptr.To(int32(s.Trips)),
		OpenedTime:         microTime(s.OpenedTime),
		OpenUntil:          microTime(s.OpenUntil),
		CoolUntil:          microTime(s.CoolUntil),
		LastSuccessTime:    microTime(s.LastSuccessTime),
		Runs:               ptr.To(f.activeRuns()),
		UnreferencedTime:   f.unreferenced(old),
	}
	if f.health != nil {
		out.ObservedGeneration = f.health.Generation
	}
	if l := s.LastFailure; l.Kind != "" {
		out.LastFailure = &v1alpha1.RouteFailure{Kind: string(l.Kind), HTTPStatus: int32(l.HTTPStatus), Code: l.Code, Time: microTime(l.Time)}
	}
	if p := s.Probe; p != nil {
		out.Probe = &v1alpha1.Probe{RunName: p.RunName, RunUID: p.RunUID, Epoch: p.Epoch, Token: p.Token, ExpiresAt: *microTime(p.ExpiresAt)}
	}
	if until := blockedUntil(s); !until.IsZero() {
		out.Until = until.UTC().Format(time.RFC3339)
	}
	c := available(s, f.reason(wish))
	c.ObservedGeneration = out.ObservedGeneration
	c.LastTransitionTime = metav1.NewTime(f.now)
	meta.SetStatusCondition(&out.Conditions, c)
	return out
}

func (f *facts) activeRuns() int32 {
	var n int32
	for _, r := range f.runs {
		if r.Live {
			n++
		}
	}
	return n
}

func (f *facts) unreferenced(old *v1alpha1.ProviderHealthStatus) *metav1.Time {
	switch {
	case len(f.ladders) > 0 || f.health == nil:
		return nil
	case old.UnreferencedTime != nil:
		return old.UnreferencedTime
	}
	return ptr.To(metav1.NewTime(f.now.Truncate(time.Second)))
}

// reason is the operator's own word for an override that holds.
func (f *facts) reason(wish report.Wish) string {
	if wish.Override == report.NoOverride || f.health == nil {
		return ""
	}
	return f.health.Spec.Override.Reason
}

// blockedUntil is the time that holds the route back, zero if there is none.
func blockedUntil(s report.Status) time.Time {
	switch s.State {
	case breaker.Cooling:
		return s.CoolUntil
	case breaker.Open:
		if s.CoolUntil.After(s.OpenUntil) {
			return s.CoolUntil
		}
		return s.OpenUntil
	case breaker.Closed, breaker.HalfOpen:
	}
	return time.Time{}
}

// available is the condition Available. Its message changes with the state only, so that it is no reason to write.
func available(s report.Status, why string) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionFalse}
	if why != "" {
		why = ": " + why
	}
	switch {
	case s.Override == report.ForcedOpen:
		c.Reason, c.Message = v1alpha1.ReasonForcedOpen, "an operator keeps all runs away from the route"+why
	case s.Override == report.ForcedClosed:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonForcedClosed, "an operator lets all runs use the route"+why
	case s.State == breaker.Cooling:
		c.Reason = v1alpha1.ReasonCooling
		c.Message = fmt.Sprintf("the provider asked to be left alone until %s%s", stamp(s.CoolUntil), after(s.LastFailure))
	case s.State == breaker.Open:
		c.Reason = v1alpha1.ReasonOpen
		c.Message = fmt.Sprintf("no run asks the route until %s%s (%s since it last worked); then one run probes it",
			stamp(blockedUntil(s)), after(s.LastFailure), times(s.Trips))
	case s.State == breaker.HalfOpen && s.Probe != nil:
		c.Reason, c.Message = v1alpha1.ReasonHalfOpen, fmt.Sprintf("run %s probes the route; all others stay away until it has", s.Probe.RunName)
	case s.State == breaker.HalfOpen:
		c.Reason, c.Message = v1alpha1.ReasonHalfOpen, "the route waits for a run that probes it"
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonAvailable, "runs may use the route"
	}
	return c
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func after(l breaker.LastFailure) string {
	switch {
	case l.Kind == "":
		return ""
	case l.HTTPStatus != 0:
		return fmt.Sprintf(", after %s (HTTP %d)", l.Kind, l.HTTPStatus)
	}
	return ", after " + string(l.Kind)
}

func times(trips int) string {
	if trips == 1 {
		return "opened once"
	}
	return fmt.Sprintf("opened %d times", trips)
}

// minor tells that a change may wait a little: nobody acts on it, and it would otherwise be written for every run that
// starts or ends.
func minor(old, changed *v1alpha1.ProviderHealthStatus) bool {
	if rejected(old) != rejected(changed) || (old.LastFailure == nil) != (changed.LastFailure == nil) {
		return false
	}
	same := changed.DeepCopy()
	same.Runs, same.LastSuccessTime, same.LastFailure = old.Runs, old.LastSuccessTime, old.LastFailure
	return equal(old, same)
}

func rejected(s *v1alpha1.ProviderHealthStatus) bool {
	shared := sharedOf(s)
	return report.Rejected(shared.LastFailure, shared.LastSuccessTime)
}

func timeOf(t *metav1.MicroTime) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

func microTime(t time.Time) *metav1.MicroTime {
	if t.IsZero() {
		return nil
	}
	return &metav1.MicroTime{Time: t.UTC().Truncate(time.Microsecond)}
}
