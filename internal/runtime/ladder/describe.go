package ladder

import (
	"fmt"
	"strings"
	"time"

	"belay.dev/belay/internal/runtime/breaker"
	"belay.dev/belay/internal/runtime/failure"
)

// permanentReason says why no leg of the turn can ever answer it: each of them is out, or was never allowed.
func (w *Walk) permanentReason() StopReason {
	var answered StopReason
	legs, credentials, windows := 0, 0, 0
	for i := range w.legs {
		l := &w.legs[i]
		legs++
		switch {
		case !w.fits(l):
			windows++
		case l.last == nil:
		case l.last.Kind == failure.EmptyResponse:
			answered = StopEmptyResponse
		case l.last.Kind == failure.ContentFiltered:
			answered = StopContentFiltered
		case l.last.Kind.Disposition().Flag == failure.FlagCredential:
			credentials++
		}
	}
	for _, s := range w.plan.Skipped {
		switch s.Reason {
		case SkipCredentialMissing, SkipCredentialNotMounted, SkipCredentialInvalid, SkipCredentialNotForHost:
			legs++
			credentials++
		case CapabilityMissing:
			legs++
		case NotSelected, DrainedLeg, ClassTooLow, MeteredDenied, NoPrice, UnknownLeg, WindowTooSmall, RouteOpen, RouteCooling, RouteHalfOpen:
		}
	}
	switch {
	case answered != "":
		return answered
	case windows > 0:
		return StopContextIrreducible
	case legs > 0 && credentials == legs:
		return StopCredentialInvalid
	}
	return StopNoRouteAllowed
}

func (w *Walk) permanentMessage(reason StopReason, v view, now time.Time) string {
	text := w.describeView(v, now)
	for _, s := range w.plan.Skipped {
		if !s.Reason.passing() {
			text = join(text, fmt.Sprintf("leg %q is left out (%s): %s", s.Leg, s.Reason, s.Message))
		}
	}
	switch reason {
	case StopCredentialInvalid:
		return "every allowed leg lacks a credential that works: " + text
	case StopContextIrreducible:
		return fmt.Sprintf("the request of about %d tokens fits into no allowed leg's window and cannot be reduced further: %s", w.need.InputTokens, text)
	case StopEmptyResponse:
		return "no allowed leg answered with text or a call: " + text
	case StopContentFiltered:
		return "the content filters of the allowed legs withheld the answer: " + text
	case StopNoRouteAllowed, StopRetriesExhausted, StopAllRoutesTripped, StopInvalidRequest, StopOutputTruncated, StopCancelled:
	}
	return "no leg of the ladder may serve the run: " + text
}

func (w *Walk) describe(health HealthView, now time.Time) string {
	return w.describeView(w.look(health, now), now)
}

// describeView says for each leg what failed there and how long it stays unavailable.
func (w *Walk) describeView(v view, now time.Time) string {
	var text string
	for i := range w.legs {
		text = join(text, w.describeLeg(&w.legs[i], v[i], now))
	}
	return text
}

func (w *Walk) describeLeg(l *legState, v breaker.Verdict, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "leg %q ", l.Name)
	switch {
	case !v.Allowed:
		b.WriteString(blockedText(v, now))
	case !w.fits(l):
		fmt.Fprintf(&b, "has a window of %d tokens, too small for the request of about %d", l.ContextWindow, max(w.need.InputTokens, w.minWindow-1))
	case l.last == nil:
		b.WriteString("was not asked")
	default:
		fmt.Fprintf(&b, "failed with %s", l.last.Kind)
		if l.last.HTTPStatus != 0 {
			fmt.Fprintf(&b, " (HTTP %d)", l.last.HTTPStatus)
		}
	}
	if l.total > 0 {
		fmt.Fprintf(&b, " (%s in this turn)", plural(l.total, "request"))
	}
	return b.String()
}

// blockedText says why a route may not be asked, and for how long.
func blockedText(v breaker.Verdict, now time.Time) string {
	after := ""
	if v.Kind != "" {
		after = " after " + string(v.Kind)
	}
	left := ""
	if d := v.Until.Sub(now); !v.Until.IsZero() && d > 0 {
		left = " for another " + roundUp(d).String()
	}
	switch v.Position {
	case breaker.Cooling:
		return "is cooling" + left + after + ", as the provider asked"
	case breaker.HalfOpen:
		return "is half-open" + after + ", and its one probe is under way elsewhere" + left
	case breaker.Open:
		return "is open" + left + after
	case breaker.Closed:
	}
	return "is unavailable" + left + after
}

// roundUp makes a duration readable; it never says less than is left.
func roundUp(d time.Duration) time.Duration {
	unit := time.Second
	if d < time.Second {
		unit = 10 * time.Millisecond
	}
	return (d + unit - 1).Truncate(unit)
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}
