package breaker

import (
	"time"

	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/route"
)

// minAwayGrace is how long beyond a shared breaker's end its keeper may take to act, before a run concludes that nobody
// is there to act.
const minAwayGrace = 60 * time.Second

// halfOpenRecheck is how long a run expects another's probe to take, again and again.
const halfOpenRecheck = 60 * time.Second

// Shared is what the cluster knows about a route, as one run sees it.
type Shared struct {
	// UID identifies the object that holds it; a new object starts over.
	UID string `json:"uid,omitempty"`
	// Generation counts the transitions of the shared breaker.
	Generation int64     `json:"generation"`
	Position   Position  `json:"position"`
	Trips      int       `json:"trips,omitempty"`
	OpenUntil  time.Time `json:"openUntil,omitzero"`
	CoolUntil  time.Time `json:"coolUntil,omitzero"`
	// Forced tells that an operator decided the position; the run then never probes by itself.
	Forced bool `json:"forced,omitempty"`
	// ProbeToken is set if the one probe of the half-open route was given to this run and this epoch.
	ProbeToken string `json:"probeToken,omitempty"`
	// ProbeExpires is when the probe, whoever has it, counts as lost.
	ProbeExpires time.Time    `json:"probeExpires,omitzero"`
	LastKind     failure.Kind `json:"lastKind,omitempty"`
}

func (s Shared) tripped() bool { return s.Position == Open || s.Position == HalfOpen }

// ProbeResult is what a shared probe found. It is empty while the probe is under way.
type ProbeResult string

const (
	// ProbeSucceeded means that the route answered.
	ProbeSucceeded ProbeResult = "Succeeded"
	// ProbeFailed means that the route failed again.
	ProbeFailed ProbeResult = "Failed"
	// ProbeReleased means that the probe ended without saying anything about the route.
	ProbeReleased ProbeResult = "Released"
)

// away is a run's own way out when the keeper of the shared breaker is gone.
type away struct {
	// at is when the run may make one probe by itself; zero for never.
	at time.Time
	// grace and jitter place the next such probe after one that failed.
	grace   time.Duration
	jitter  float64
	probing bool
	// scheduled tells that at was worked out for the present view; a restored set has yet to do so.
	scheduled bool
	// proven tells that such a probe succeeded: the shared breaker is stale and is disregarded until it changes.
	proven bool
}

// Adopt takes in what the cluster knows. A new generation resets the run's own count: what it had counted was evidence
// about a route that has changed since. The run's own opening and cooling end only where the shared breaker took over,
// was proven closed, or was set by an operator, because nothing else may shorten them. jitter is a random number in
// [0, 1) that spreads the runs' own probes should the keeper of the shared breaker be gone.
func (s *Set) Adopt(name route.Name, next Shared, now time.Time, jitter float64) {
	e := s.entry(name)
	next.OpenUntil = atMost(next.OpenUntil, now, s.cfg.MaxCooldown)
	next.CoolUntil = atMost(next.CoolUntil, now, MaxWaitHint)
	prev := e.shared
	if prev != nil && prev.UID == next.UID && next.Generation < prev.Generation {
		return // an old view
	}
	renewed := prev == nil || prev.UID != next.UID || prev.Generation != next.Generation
	if renewed {
		e.sharedSeen = now
		e.reset(prev, next)
	}
	if renewed || !e.away.scheduled || !prev.sameWindow(next) {
		e.away.schedule(s.cfg, next, now, jitter)
	}
	e.shared = &next
}

// Forget drops what the cluster knew about a route whose shared object is gone. The run's own breaker stays.
func (s *Set) Forget(name route.Name) {
	if e := s.entries[name]; e != nil {
		e.shared, e.away = nil, away{}
	}
}

func (e *entry) reset(prev *Shared, next Shared) {
	healed := next.Forced || (prev != nil && prev.tripped() && !next.tripped())
	e.local.Failures = 0
	if !healed && !next.tripped() {
		return
	}
	fresh := State{
		Generation:      e.local.Generation + 1,
		LastFailure:     e.local.LastFailure,
		LastSuccessTime: e.local.LastSuccessTime,
	}
	if !healed {
		fresh.CoolUntil = e.local.CoolUntil
		fresh.InformedStreak, fresh.QuotaStreak = e.local.InformedStreak, e.local.QuotaStreak
	}
	e.local = fresh
}

// sameWindow tells that two views of one generation leave the keeper the same time to act. A nil view is never the same.
func (s *Shared) sameWindow(next Shared) bool {
	return s != nil && s.Position == next.Position && s.OpenUntil.Equal(next.OpenUntil) && s.ProbeExpires.Equal(next.ProbeExpires)
}

// schedule places the run's own probe: not before the keeper has had the grace, then spread over another grace.
func (a *away) schedule(cfg Config, next Shared, now time.Time, jitter float64) {
	*a = away{probing: a.probing, scheduled: true, jitter: jitter}
	if !next.tripped() || next.Forced {
		return
	}
	due := next.OpenUntil
	if due.IsZero() {
		due = now
	}
	if next.Position == HalfOpen {
		due = later(now, next.ProbeExpires)
	}
	a.grace = max(minAwayGrace, cfg.Cooldown(next.Trips))
	// A run that meets an old trip only now has yet to spread its probe.
	a.at = later(due.Add(a.grace), now).Add(a.share())
}

func (a *away) share() time.Duration { return time.Duration(a.jitter * float64(a.grace)) }

// sharedVerdict judges by the shared breaker alone. Its keeper moves it; the run never concludes from the time that an
// open route has become half-open.
func (e *entry) sharedVerdict(now time.Time) Verdict {
	sh := e.shared
	v := Verdict{Position: sh.Position, Kind: sh.LastKind}
	switch sh.Position {
	case Closed:
		v.Allowed = true
	case Cooling:
		if v.Allowed = !now.Before(sh.CoolUntil); v.Allowed {
			v.Position = Closed
		} else {
			v.Until = sh.CoolUntil
		}
	case Open, HalfOpen:
		switch {
		case e.away.proven:
			v.Position, v.Allowed = Closed, true
		case e.grantHolds(now):
			v.Allowed, v.Probe = true, true
		case e.awayOpens(now):
			v.Position, v.Allowed, v.Probe = HalfOpen, true, true
		default:
			v.Until = e.sharedUntil(now)
		}
	}
	return v
}

// sharedUntil is when a shared trip may end: by its keeper if it is there, else by the run's own probe.
func (e *entry) sharedUntil(now time.Time) time.Time {
	sh := e.shared
	if until := later(sh.OpenUntil, sh.CoolUntil); sh.Position == Open && now.Before(until) {
		return until
	}
	if sh.Position == HalfOpen && now.Before(e.away.at) {
		// Another's probe may settle it at any moment. The lease's end would make a run park that need only wait a little.
		rounds := now.Sub(e.sharedSeen)/halfOpenRecheck + 1
		return earlier(e.away.at, e.sharedSeen.Add(rounds*halfOpenRecheck))
	}
	return e.away.at
}

// grantHolds tells that the cluster's probe is this run's, not yet sent and not expired.
func (e *entry) grantHolds(now time.Time) bool {
	sh := e.shared
	return sh.Position == HalfOpen && sh.ProbeToken != "" && sh.ProbeToken != e.probeToken && now.Before(sh.ProbeExpires)
}

func (e *entry) awayOpens(now time.Time) bool {
	return !e.away.probing && !e.away.at.IsZero() && !now.Before(e.away.at)
}

// settle records the result of a probe of the shared breaker.
func (e *entry) settle(cfg Config, p Permit, r Result, now time.Time) {
	if p.token != "" && p.token == e.probeToken {
		e.probeResult = probeResultOf(r.Outcome)
	}
	if !p.away {
		return
	}
	e.away.probing = false
	if e.shared == nil || !e.shared.tripped() {
		return
	}
	if r.Outcome == Success {
		e.away.proven, e.away.at = true, time.Time{}
		return
	}
	e.away.grace = min(2*e.away.grace, max(minAwayGrace, cfg.MaxCooldown))
	e.away.at = now.Add(e.away.grace + e.away.share())
}

func probeResultOf(o Outcome) ProbeResult {
	switch o {
	case Success:
		return ProbeSucceeded
	case Blind:
		return ProbeFailed
	case Informed, CredentialCooling, Neutral:
		return ProbeReleased
	}
	return ProbeReleased
}

// Level is what a run publishes about a route: levels, not changes, so that a reader who misses some of them, or sees one
// twice, still knows what is true.
type Level struct {
	// Generation is the shared generation that the levels were counted in; 0 before any was seen.
	Generation       int64
	ConsecutiveBlind int
	LastFailure      LastFailure
	LastSuccessTime  time.Time
	CoolUntil        time.Time
	// ProbeToken is the last shared probe that this run began, and ProbeResult what it found.
	ProbeToken  string
	ProbeResult ProbeResult
}

// Level returns the levels of a route.
func (s *Set) Level(name route.Name) Level {
	e := s.entries[name]
	if e == nil {
		return Level{}
	}
	l := Level{
		ConsecutiveBlind: e.local.Failures,
		LastFailure:      e.local.LastFailure,
		LastSuccessTime:  e.local.LastSuccessTime,
		CoolUntil:        e.local.CoolUntil,
		ProbeToken:       e.probeToken,
		ProbeResult:      e.probeResult,
	}
	if e.shared != nil {
		l.Generation = e.shared.Generation
	}
	return l
}
