package report

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"belay.dev/belay/internal/runtime/breaker"
	"belay.dev/belay/internal/runtime/failure"
)

// Transition is one change of the shared breaker.
type Transition struct {
	From, To breaker.Position
	// Generation is that of To.
	Generation int64
	// Kind is the failure behind it, empty if none is.
	Kind failure.Kind
	// Cause says for people what caused it.
	Cause string
}

// Outcome is the result of a fold.
type Outcome struct {
	Status Status
	// Next is when the status changes by time alone; zero if it does not.
	Next time.Time
	// Transitions are what changed, in order.
	Transitions []Transition
}

// Fold returns the shared breaker after the present reports: a function of its own status, the runs, the operator's wish
// and the time, and of nothing else. Folding the same inputs again changes nothing.
//
// Closed opens when the runs' consecutive blind failures add up to the threshold and enough runs see them: with N live
// runs at least a tenth of N, not less than two and not more than ten, but never more than there are; so neither one
// poisonous request nor one bad node opens a route for everybody. At the end of its cooldown an open route is given to
// one run to probe, and only that run's word settles it.
func Fold(own Status, runs []Run, wish Wish, cfg Config, now time.Time) Outcome {
	f := fold{Outcome: Outcome{Status: own}, cfg: cfg, now: now, runs: ordered(runs)}
	s := &f.Status
	if s.State == "" {
		s.State = breaker.Closed
	}
	if s.Probe != nil {
		p := *s.Probe // the caller's stays as it was
		s.Probe = &p
	}
	s.OpenUntil = f.atMost(s.OpenUntil, cfg.MaxCooldown)
	s.CoolUntil = f.atMost(s.CoolUntil, breaker.MaxWaitHint)
	f.observe()
	if override := wish.at(now); override != s.Override || override != NoOverride {
		f.override(override, wish)
	} else {
		f.advance()
	}
	if wish.Override != NoOverride && now.Before(wish.Until) {
		f.wake(wish.Until)
	}
	return f.Outcome
}

type fold struct {
	Outcome
	cfg  Config
	now  time.Time
	runs []Run
}

// ordered returns the runs by age, each once, so that the outcome depends neither on the order of a list nor on a run
// that it holds twice.
func ordered(runs []Run) []Run {
	out := slices.Clone(runs)
	slices.SortStableFunc(out, func(a, b Run) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.UID, b.UID), cmp.Compare(b.Epoch, a.Epoch), cmp.Compare(b.ReportEpoch, a.ReportEpoch))
	})
	return slices.CompactFunc(out, func(a, b Run) bool { return a.UID == b.UID })
}

func (f *fold) atMost(t time.Time, d time.Duration) time.Time {
	if t.Sub(f.now) > d {
		return f.now.Add(d)
	}
	return t
}

// wake makes the next fold due at t, unless it is due earlier.
func (f *fold) wake(t time.Time) {
	if f.Next.IsZero() || t.Before(f.Next) {
		f.Next = t
	}
}

// move changes the state and begins a new generation.
func (f *fold) move(to breaker.Position, kind failure.Kind, cause string) {
	s := &f.Status
	s.Generation++
	f.Transitions = append(f.Transitions, Transition{From: s.State, To: to, Generation: s.Generation, Kind: kind, Cause: cause})
	s.State = to
	if to != breaker.HalfOpen {
		s.Probe = nil
	}
}

// valid returns a run's level if it is of the run's present epoch; and of the present generation, unless the override or
// a transition of this very fold began a new one.
func (f *fold) valid(r Run) (breaker.Level, bool) {
	if r.Report == nil || r.ReportEpoch != r.Epoch || r.Report.Generation != f.Status.Generation {
		return breaker.Level{}, false
	}
	return r.Report.Level, true
}

// observe takes in what the reports say besides the count: the newest failure and success.
func (f *fold) observe() {
	s := &f.Status
	for _, r := range f.runs {
		l, ok := f.valid(r)
		if !ok {
			continue
		}
		if l.LastFailure.Time.After(s.LastFailure.Time) {
			s.LastFailure = l.LastFailure
		}
		if l.LastSuccessTime.After(s.LastSuccessTime) {
			s.LastSuccessTime = l.LastSuccessTime
		}
	}
}

// advance follows the breaker until it stands still at now.
func (f *fold) advance() {
	switch f.Status.State {
	case breaker.Closed, breaker.Cooling:
		f.closed()
	case breaker.Open:
		f.open()
	case breaker.HalfOpen:
		f.halfOpen()
	}
}

// closed counts blind failures and follows the cooling of a route that is not broken.
func (f *fold) closed() {
	s := &f.Status
	if f.trips() {
		return
	}
	until := s.CoolUntil
	for _, r := range f.runs {
		if l, ok := f.valid(r); ok {
			until = later(until, f.capped(l))
		}
	}
	cooling := f.now.Before(until)
	switch {
	case cooling && s.State == breaker.Closed:
		s.CoolUntil = until
		f.move(breaker.Cooling, s.LastFailure.Kind, "a run was told to come back later")
		// The reports were of the generation before; the runs publish again what still holds.
		s.Failures = 0
	case cooling:
		s.CoolUntil = until
	case s.State == breaker.Cooling:
		s.CoolUntil = time.Time{}
		f.move(breaker.Closed, "", "the time that the provider asked for is over")
		s.Failures = 0
	}
	if cooling {
		f.wake(until)
	}
}

// trips opens the route if the failures add up.
func (f *fold) trips() bool {
	s := &f.Status
	total, failing, active := f.count()
	s.Failures = total
	if f.cfg.BaseCooldown <= 0 || total < f.cfg.FailureThreshold || failing < quorum(active) {
		return false
	}
	f.trip(fmt.Sprintf("%d consecutive failures at %d of %d running runs", total, failing, active))
	return true
}

func (f *fold) trip(cause string) {
	s := &f.Status
	s.Trips++
	s.OpenedTime = f.now
	s.OpenUntil = later(s.OpenUntil, f.now.Add(f.cfg.Cooldown(s.Trips)))
	f.move(breaker.Open, s.LastFailure.Kind, cause)
	f.wake(later(s.OpenUntil, s.CoolUntil))
}

// count adds up the valid levels. A failure that is older than another run's success is no evidence any more.
func (f *fold) count() (total, failing, active int) {
	for i, r := range f.runs {
		if r.Live {
			active++
		}
		l, ok := f.valid(r)
		if !ok || l.ConsecutiveBlind <= 0 || f.refuted(i, l.LastFailure.Time) {
			continue
		}
		total += l.ConsecutiveBlind
		failing++
	}
	return total, failing, active
}

func (f *fold) refuted(run int, failed time.Time) bool {
	for i, r := range f.runs {
		if l, ok := f.valid(r); ok && i != run && l.LastSuccessTime.After(failed) {
			return true
		}
	}
	return false
}

// quorum is how many of the active runs must see a failing route.
func quorum(active int) int {
	return min(active, min(max((active+9)/10, 2), 10))
}

// capped is the end of the cooling that a report may cause for everybody, zero if it causes none.
func (f *fold) capped(l breaker.Level) time.Time {
	limit := f.cfg.InformedCap
	if l.LastFailure.Kind.Disposition().Health == failure.HealthCredentialCooling {
		limit = f.cfg.QuotaCap
	}
	// Reckoned from the failure, so that a report that stands does not extend the cooling with every fold.
	since := l.LastFailure.Time
	if since.IsZero() || since.After(f.now) {
		since = f.now
	}
	return earlier(l.CoolUntil, since.Add(limit))
}

// open waits for the end of the cooldown, and of any cooling that outlasts it.
func (f *fold) open() {
	s := &f.Status
	end := later(s.OpenUntil, s.CoolUntil)
	if f.now.Before(end) {
		f.wake(end)
		return
	}
	f.move(breaker.HalfOpen, s.LastFailure.Kind, "the cooldown is over")
	f.halfOpen()
}

// halfOpen settles, revokes and gives out the probe.
func (f *fold) halfOpen() {
	s := &f.Status
	lost := ""
	if s.Probe != nil {
		done, free := f.settle()
		if done {
			return
		}
		if free {
			lost = s.Probe.RunUID
			s.Probe = nil
		}
	}
	if s.Probe == nil && !f.now.Before(s.CoolUntil) {
		f.assign(lost)
	}
	switch {
	case s.Probe != nil:
		f.wake(f.probeEnd())
	case f.now.Before(s.CoolUntil):
		f.wake(s.CoolUntil)
	}
}

// settle judges the probe under way. done means that the route moved, free that the slot is free again.
func (f *fold) settle() (done, free bool) {
	s := &f.Status
	i := slices.IndexFunc(f.runs, func(r Run) bool { return r.UID == s.Probe.RunUID })
	if i < 0 {
		return false, true // the run ended or may not use the route any more
	}
	r := f.runs[i]
	if l, ok := f.probed(r); ok {
		switch l.ProbeResult {
		case breaker.ProbeSucceeded:
			f.close("the probe of run " + r.Name + " succeeded")
			return true, false
		case breaker.ProbeFailed:
			s.Failures = max(s.Failures, l.ConsecutiveBlind)
			f.trip("the probe of run " + r.Name + " failed")
			return true, false
		case breaker.ProbeReleased:
			s.CoolUntil = later(s.CoolUntil, f.capped(l))
			return false, true
		case "":
		}
	}
	switch {
	case r.Epoch > s.Probe.Epoch, r.Epoch == s.Probe.Epoch && r.Parked:
		return false, true // the pod that it was given to is gone
	}
	return false, !f.now.Before(f.probeEnd())
}

// probeEnd is when the probe counts as lost: one that is known to be under way may take as long as an attempt can.
func (f *fold) probeEnd() time.Time {
	p := f.Status.Probe
	for _, r := range f.runs {
		if r.UID != p.RunUID {
			continue
		}
		if _, sent := f.probed(r); sent {
			return p.ExpiresAt
		}
	}
	return p.ExpiresAt.Add(-f.cfg.ProbeLease)
}

// probed returns the level of the run that has the probe, if it is about this probe.
func (f *fold) probed(r Run) (breaker.Level, bool) {
	if r.Report == nil || r.ReportEpoch != r.Epoch || r.Report.ProbeToken != f.Status.Probe.Token {
		return breaker.Level{}, false
	}
	return r.Report.Level, true
}

func (f *fold) close(cause string) {
	s := &f.Status
	s.Failures, s.Trips = 0, 0
	s.OpenUntil, s.CoolUntil = time.Time{}, time.Time{}
	f.move(breaker.Closed, "", cause)
}

// assign gives the probe to the run that has most use for it: one that waits for the route with its pod, else the oldest
// live one that prefers the route, else the oldest that is parked for it and is woken, else the oldest live one. The run
// that has just lost the probe comes last.
func (f *fold) assign(lost string) {
	var best *Run
	bestRank := 0
	for i := range f.runs {
		r := &f.runs[i]
		rank := r.rank()
		if rank > 0 && r.UID == lost {
			rank = 1
		}
		if rank > bestRank {
			best, bestRank = r, rank
		}
	}
	if best == nil {
		return
	}
	p := &Probe{RunName: best.Name, RunUID: best.UID, Epoch: best.Epoch, ExpiresAt: f.now.Add(f.cfg.ProbeStart + f.cfg.ProbeLease)}
	if best.Parked {
		p.Epoch++
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s %d %d", f.Status.Generation, p.RunUID, p.Epoch, f.now.UnixNano()))
	p.Token = fmt.Sprintf("%d-%s", f.Status.Generation, hex.EncodeToString(sum[:6]))
	f.Status.Probe = p
}

// rank orders candidates for a probe; 0 is none.
func (r *Run) rank() int {
	switch {
	case r.Live && r.Waiting:
		return 5
	case r.Live && r.Prefers:
		return 4
	case r.Parked && r.Waiting:
		return 3
	case r.Live:
		return 2
	}
	return 0
}

// override follows the operator. The end of a ForcedOpen leads to a probe: what the route is worth by then is unknown.
func (f *fold) override(want Override, wish Wish) {
	s := &f.Status
	changed := s.Override != want
	was := s.Override
	s.Override = want
	switch want {
	case ForcedOpen:
		s.OpenUntil, s.CoolUntil = wish.Until, time.Time{}
		if changed {
			s.Failures = 0
			s.OpenedTime = f.now
			f.move(breaker.Open, "", "forced open by an operator")
		}
	case ForcedClosed:
		s.OpenUntil, s.CoolUntil = time.Time{}, time.Time{}
		s.Failures, s.Trips = 0, 0
		if changed {
			f.move(breaker.Closed, "", "forced closed by an operator")
		}
	case NoOverride:
		s.OpenUntil, s.CoolUntil = time.Time{}, time.Time{}
		s.Failures = 0
		if was == ForcedOpen {
			f.move(breaker.HalfOpen, "", "the operator's override ended")
			f.halfOpen()
			return
		}
		f.move(breaker.Closed, "", "the operator's override ended")
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
