package ladder

import (
	"fmt"
	"slices"
	"time"

	"belay.dev/belay/internal/runtime/breaker"
	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/route"
)

// Next says what to do now. It may be called again at any time, for example when health changed during a wait.
func (w *Walk) Next(health HealthView, now time.Time, rnd Rand) Decision {
	if w.ended == nil {
		w.checkCeilings(health, now)
	}
	if w.ended != nil {
		return *w.ended
	}
	if w.pending != nil {
		return *w.pending
	}
	if w.wait.reason == WaitRewalk && now.Before(w.wait.until) {
		return w.waitFor(WaitRewalk, w.wait.base, w.wait.until, now)
	}
	// Every round either decides, or leaves a leg for this walk, or begins at the top with at least one leg to ask.
	for {
		view := w.look(health, now)
		if d, ok := w.pick(view, now, rnd); ok {
			return d
		}
		if d, ok := w.atTheEnd(w.look(health, now), now, rnd); ok {
			return d
		}
	}
}

func (w *Walk) checkCeilings(health HealthView, now time.Time) {
	if w.pending != nil || w.sends == 0 {
		return
	}
	switch retry, c := w.ladder.Retry, w.counts; {
	case w.attempts >= retry.MaxAttemptsPerTurn:
		w.end(StopRetriesExhausted, fmt.Sprintf("the turn has used all %d requests of the ladder's retry.maxAttemptsPerTurn: %s",
			retry.MaxAttemptsPerTurn, w.describe(health, now)))
	case c.MaxModelRetries != nil && c.Retries >= *c.MaxModelRetries:
		used := fmt.Sprintf("the run has used all %d retries of limits.maxModelRetries", *c.MaxModelRetries)
		if *c.MaxModelRetries == 0 {
			used = "limits.maxModelRetries of the run is 0, so no request is sent again"
		}
		w.end(StopRetriesExhausted, used+": "+w.describe(health, now))
	}
}

// view is the health of the walk's legs at one moment, in their order.
type view []breaker.Verdict

func (w *Walk) look(health HealthView, now time.Time) view {
	v := make(view, len(w.legs))
	for i := range w.legs {
		v[i] = health.Health(w.legs[i].name, now)
	}
	return v
}

// fits tells whether the request fits into the leg's window, as far as is known.
func (w *Walk) fits(l *legState) bool {
	return w.need.fits(l.Leg) && l.ContextWindow >= w.minWindow
}

// usable tells that the walk may ask the leg now.
func (w *Walk) usable(i int, v view) bool {
	l := &w.legs[i]
	return !l.spent && !l.out && v[i].Allowed && w.fits(l)
}

// another tells whether a later leg of this walk is available.
func (w *Walk) another(v view) bool {
	for i := w.at + 1; i < len(w.legs); i++ {
		if w.usable(i, v) {
			return true
		}
	}
	return false
}

// pick decides for the first leg, from the current one on, that can be asked now or is worth a short wait.
func (w *Walk) pick(v view, now time.Time, rnd Rand) (Decision, bool) {
	for i := w.at; i < len(w.legs); i++ {
		l := &w.legs[i]
		if l.spent || l.out || !w.fits(l) {
			continue
		}
		if l.tries > 0 && !l.amended {
			if d, ok := w.again(i, v, now, rnd); ok {
				return d, true
			}
			continue
		}
		if v[i].Allowed {
			return w.send(i, v), true
		}
	}
	return Decision{}, false
}

// again decides whether the leg that failed last is asked once more, and after which wait. False means that the walk is
// done with it.
func (w *Walk) again(i int, v view, now time.Time, rnd Rand) (Decision, bool) {
	l := &w.legs[i]
	kind := l.last.Kind
	other := w.another(v)
	tries := 1 + w.ladder.Retry.MaxRetries
	alone := true // the rule lets the leg be asked again although another is available
	switch kind.Disposition().SameLeg {
	case failure.SameLegShortWait:
		if other {
			tries = min(tries, shortWaitTries)
		}
	case failure.SameLegOnlyIfAlone:
		alone = !other
	case failure.SameLegBackoff, failure.SameLegOnce, failure.SameLegAfterReread, failure.SameLegAfterRepair,
		failure.SameLegAfterReduction, failure.SameLegRaiseCap:
	case failure.SameLegNever:
		tries = 0
	}
	if l.tries >= tries || !alone {
		return w.leave(l, FallbackTriesSpent)
	}
	if v[i].Position == breaker.Cooling {
		if v[i].Until.Sub(now) > w.ladder.Waits.MaxWait {
			return w.leave(l, FallbackWaitTooLong)
		}
		return w.waitForLeg(WaitCooling, l, v[i].Until, now), true
	}
	if !v[i].Allowed {
		return w.leave(l, FallbackReason(blockedBy(v[i].Position)))
	}
	if !l.drawn {
		l.drawn = true
		w.wait = plannedWait{}
		if until := w.backoff(l, now, rnd); until.After(now) {
			if until.Sub(now) > w.ladder.Waits.MaxWait && other && hinted(l.last) {
				return w.leave(l, FallbackWaitTooLong)
			}
			return w.waitForLeg(WaitBackoff, l, until, now), true
		}
	}
	if w.wait.reason == WaitBackoff && now.Before(w.wait.until) {
		return w.waitForLeg(WaitBackoff, l, w.wait.until, now), true
	}
	return w.send(i, v), true
}

func (w *Walk) leave(l *legState, why FallbackReason) (Decision, bool) {
	l.spent, l.left = true, why
	return Decision{}, false
}

func hinted(f *failure.Failure) bool { return f.Wait != nil && f.Wait.Duration > 0 }

// backoff draws when the leg may be asked again: full jitter under a bound that grows with its tries, and not before the
// time that the failure itself named. A cooled leg waited for its own time already.
func (w *Walk) backoff(l *legState, now time.Time, rnd Rand) time.Time {
	d := l.last.Kind.Disposition()
	if d.Health == failure.HealthInformed {
		return now
	}
	r := w.ladder.Retry
	delay := l.failedAt.Add(jitter(r.BaseDelay, r.BackoffFactor, l.tries, r.MaxDelay, rnd))
	if hinted(l.last) {
		if until := l.failedAt.Add(l.last.Wait.Duration); until.After(delay) {
			return until
		}
	}
	return delay
}

// jitter draws evenly from zero to base·factor^(n−1), at most limit.
func jitter(base time.Duration, factor, n int, limit time.Duration, rnd Rand) time.Duration {
	bound := base
	for i := 1; i < n && bound < limit; i++ {
		bound *= time.Duration(max(factor, 1))
		if factor <= 1 {
			break
		}
	}
	return time.Duration(rnd() * float64(min(bound, limit)))
}

func (w *Walk) send(i int, v view) Decision {
	l := &w.legs[i]
	w.wait = plannedWait{}
	d := Decision{
		Action:   Send,
		Leg:      l.Name,
		Route:    l.name,
		Try:      l.total + 1,
		Probe:    v[i].Probe,
		Position: v[i].Position,
	}
	if from := w.displaced(i); from >= 0 {
		d.FailoverFrom = w.legs[from].Name
		if w.last != l.Name && w.current < i {
			d.Fallback = w.fallback(from, i, v)
		}
		l.from = d.FailoverFrom
	}
	w.at = i
	return d
}

// displaced returns the earlier leg whose place leg i takes, -1 if it is the first choice: the leg asked before it in
// this turn, else the one that would have been asked first.
func (w *Walk) displaced(i int) int {
	l := &w.legs[i]
	switch {
	case i == 0:
		return -1
	case w.current == i && l.from != "":
		return slices.IndexFunc(w.legs, func(o legState) bool { return o.Name == l.from })
	case w.current >= 0 && w.current < i:
		return w.current
	}
	return 0
}

func (w *Walk) fallback(from, to int, v view) *Fallback {
	l := &w.legs[from]
	kind, reason := v[from].Kind, l.left
	if l.last != nil {
		kind = l.last.Kind
	}
	if reason == "" {
		switch {
		case !w.fits(l):
			reason, kind = FallbackWindowTooSmall, ""
		case !v[from].Allowed:
			reason = FallbackReason(blockedBy(v[from].Position))
		default:
			reason = FallbackTriesSpent
		}
	}
	return &Fallback{From: l.Name, To: w.legs[to].Name, Kind: kind, Reason: reason}
}

// atTheEnd decides when no leg from the current one on can be asked.
func (w *Walk) atTheEnd(v view, now time.Time, rnd Rand) (Decision, bool) {
	spent, blocked, reducible := false, []int(nil), -1
	for i := range w.legs {
		l := &w.legs[i]
		switch {
		case l.out:
		case !w.fits(l):
			if reducible < 0 && v[i].Allowed {
				reducible = i
			}
		case !v[i].Allowed:
			blocked = append(blocked, i)
		case l.spent:
			spent = true
		default:
			// A leg above the current one has come back since it was passed.
			w.at = 0
			return Decision{}, false
		}
	}
	if reducible >= 0 && w.reductions < maxReductions && !w.soon(blocked, v, now) {
		l := &w.legs[reducible]
		w.pending = &Decision{Action: Amend, Leg: l.Name, Route: l.name, Amendment: ReduceContext, Kind: failure.ContextLengthExceeded,
			Message: fmt.Sprintf("the request of about %d tokens does not fit into the window of %d of leg %q", w.need.InputTokens, l.ContextWindow, l.Name)}
		return *w.pending, true
	}
	switch {
	case spent:
		return w.endure(v, now, rnd), true
	case len(blocked) > 0:
		return w.outlast(blocked, v, now, rnd), true
	}
	reason := w.permanentReason()
	w.end(reason, w.permanentMessage(reason, v, now))
	return *w.ended, true
}

// soon tells that one of the legs may be asked after a short wait.
func (w *Walk) soon(blocked []int, v view, now time.Time) bool {
	for _, i := range blocked {
		if !v[i].Until.IsZero() && v[i].Until.Sub(now) <= w.ladder.Waits.MaxWait {
			return true
		}
	}
	return false
}

// endure begins another walk after transient failures, or ends the run.
func (w *Walk) endure(v view, now time.Time, rnd Rand) Decision {
	if w.rewalks >= w.ladder.Endurance.MaxRewalks {
		w.end(StopRetriesExhausted, fmt.Sprintf("the ladder was walked %d times (endurance.maxRewalks %d) without an answer: %s",
			w.rewalks+1, w.ladder.Endurance.MaxRewalks, w.describeView(v, now)))
		return *w.ended
	}
	delay := jitter(rewalkBaseDelay, 2, w.rewalks+1, w.ladder.Retry.MaxDelay, rnd)
	message := fmt.Sprintf("no leg answered; walking the ladder again in %s: %s", roundUp(delay), w.describeView(v, now))
	w.rewalk()
	until := now.Add(delay)
	d := w.waitFor(WaitRewalk, until, until, now)
	d.Message = message
	return d
}

// outlast deals with legs that are all open or cooling: it waits in place if that is short, else parks, else gives up.
func (w *Walk) outlast(blocked []int, v view, now time.Time, rnd Rand) Decision {
	first, cooling := -1, false
	routes := make([]route.Name, 0, len(blocked))
	for _, i := range blocked {
		routes = append(routes, w.legs[i].name)
		if v[i].Until.IsZero() {
			continue
		}
		if first < 0 || v[i].Until.Before(v[first].Until) {
			first = i
		}
		cooling = cooling || (v[i].Position == breaker.Cooling && v[i].Until.Sub(now) <= w.ladder.Waits.ParkAfter)
	}
	fails := w.ladder.Waits.OnAllTripped == FailOnAllTripped
	short := first >= 0 && v[first].Until.Sub(now) <= w.ladder.Waits.ParkAfter
	message := "no leg may be asked now: " + w.describeView(v, now)
	switch {
	case short && (!fails || cooling):
		// Runs that wait for the same moment must not all come at it.
		until := v[first].Until.Add(jitter(min(v[first].Until.Sub(now)/10, 10*time.Second), 1, 1, 10*time.Second, rnd))
		w.restart()
		d := w.waitFor(WaitRoutes, v[first].Until, until, now)
		d.Routes, d.Message = routes, message
		return d
	case fails:
		w.end(StopAllRoutesTripped, message+"; the ladder's waits.onAllTripped is Fail")
		return *w.ended
	case w.counts.Parks >= maxParks:
		w.end(StopAllRoutesTripped, fmt.Sprintf("%s; the run has parked %d times without an answer", message, w.counts.Parks))
		return *w.ended
	}
	d := Decision{Action: Park, Parking: ParkRoutes, Routes: routes, Message: message}
	if first >= 0 {
		d.Until = v[first].Until
	}
	return d
}

// waitFor waits until a moment that has its reason in another, the base: the same base means the same wait.
func (w *Walk) waitFor(reason WaitReason, base, until, now time.Time) Decision {
	announced := w.wait.reason == reason && w.wait.base.Equal(base)
	if announced {
		until = w.wait.until
	}
	w.wait = plannedWait{reason: reason, base: base, until: until}
	return Decision{Action: Wait, Waiting: reason, For: max(until.Sub(now), 0), Until: until, Announced: announced}
}

func (w *Walk) waitForLeg(reason WaitReason, l *legState, until, now time.Time) Decision {
	d := w.waitFor(reason, until, until, now)
	d.Leg, d.Route, d.Kind = l.Name, l.name, l.last.Kind
	if reason == WaitCooling {
		d.Routes = []route.Name{l.name}
	}
	d.Message = fmt.Sprintf("asking leg %q again in %s after %s", l.Name, roundUp(d.For), l.last.Kind)
	return d
}
