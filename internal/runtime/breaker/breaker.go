// Package breaker decides whether a route may be asked. A breaker is a value: a pure reducer takes its state, what
// happened and the time, and returns the next state; nothing runs in the background, and an open breaker becomes
// half-open merely because time has passed.
//
// There are two ways for a route to be out of use, and they are kept apart. A route is open when it failed several times
// in a row without saying when to come back: it is broken until a single probe proves otherwise. A route is cooling when
// it named a time itself (a rate limit, a spent quota): it is not broken, and no probe is needed afterwards.
//
// Set combines the breakers of one run with what the cluster knows about the same routes, and obeys the stricter.
//
// The package is a pure leaf: it imports the standard library and the leaves failure and route, and takes the time and
// any random number as arguments.
package breaker

import (
	"time"

	"belay.dev/belay/internal/runtime/failure"
)

// Position is where a breaker stands at a moment.
type Position string

const (
	// Closed routes are asked.
	Closed Position = "Closed"
	// Cooling routes told when to come back, and are left alone until then.
	Cooling Position = "Cooling"
	// Open routes are broken and left alone until their cooldown is over.
	Open Position = "Open"
	// HalfOpen routes have served their cooldown; one probe decides about them.
	HalfOpen Position = "HalfOpen"
)

const (
	// MaxWaitHint bounds how long a route's own word keeps it cooling, whatever it said.
	MaxWaitHint = 24 * time.Hour

	informedCooldownBase = 2 * time.Second
	informedCooldownMax  = 60 * time.Second
	// A quota without a reset time is tried again at least every hour, so that a topped-up account comes back by itself.
	quotaCooldownBase = 60 * time.Second
	quotaCooldownMax  = time.Hour
)

// Config configures the breakers of a ladder.
type Config struct {
	// FailureThreshold is the number of consecutive blind failures that opens a route. Default 3.
	FailureThreshold int
	// BaseCooldown is how long a route stays open after its first trip; it doubles with every further trip. Default 30 s;
	// 0 disables opening.
	BaseCooldown time.Duration
	// MaxCooldown caps the cooldown. Default 900 s.
	MaxCooldown time.Duration
	// InformedTrips makes rate limits and overload count like blind failures, besides cooling the route. Default false.
	InformedTrips bool
	// ProbeLease is how long a probe holds the only slot of a half-open route before it counts as lost. It must be longer
	// than any attempt. Default 21 min, one minute above the default limit of an attempt.
	ProbeLease time.Duration
}

// DefaultConfig returns the configuration of a ladder that declares none.
func DefaultConfig() Config {
	return Config{
		FailureThreshold: 3,
		BaseCooldown:     30 * time.Second,
		MaxCooldown:      900 * time.Second,
		ProbeLease:       21 * time.Minute,
	}
}

// Cooldown returns how long a route stays open after its n-th trip in a row, counted from 1.
func (c Config) Cooldown(trips int) time.Duration {
	return doubled(c.BaseCooldown, trips, c.MaxCooldown)
}

// doubled returns base·2^(n−1), at most limit.
func doubled(base time.Duration, n int, limit time.Duration) time.Duration {
	d := base
	for i := 1; i < n && d < limit; i++ {
		d *= 2
	}
	return min(d, limit)
}

// State is everything a breaker knows. The zero value is a closed breaker.
type State struct {
	// Generation counts the changes of the breaker. A result is believed only if it was begun in the current one.
	Generation int64 `json:"generation,omitempty"`
	// Failures are the consecutive blind failures.
	Failures int `json:"failures,omitempty"`
	// Trips are the openings since the route last worked.
	Trips int `json:"trips,omitempty"`
	// InformedStreak and QuotaStreak count failures without a wait hint since the route last worked.
	InformedStreak int `json:"informedStreak,omitempty"`
	QuotaStreak    int `json:"quotaStreak,omitempty"`
	// OpenedTime is the time of the last opening.
	OpenedTime time.Time `json:"openedTime,omitzero"`
	// OpenUntil is the end of the cooldown; zero unless the route is open or half-open.
	OpenUntil time.Time `json:"openUntil,omitzero"`
	// CoolUntil is when the route asked to be tried again.
	CoolUntil time.Time `json:"coolUntil,omitzero"`
	// ProbeUntil is the end of the running probe's lease; zero if none runs.
	ProbeUntil time.Time `json:"probeUntil,omitzero"`

	LastFailure     LastFailure `json:"lastFailure,omitzero"`
	LastSuccessTime time.Time   `json:"lastSuccessTime,omitzero"`
}

// LastFailure is the newest failure that says something about a route, its credential or its model. The zero value is none.
type LastFailure struct {
	Kind       failure.Kind `json:"kind,omitempty"`
	HTTPStatus int          `json:"httpStatus,omitempty"`
	Code       string       `json:"code,omitempty"`
	Time       time.Time    `json:"time,omitzero"`
}

// BlamesConfiguration tells that the provider rejected the route's credential or model: waiting does not mend it.
func (f LastFailure) BlamesConfiguration() bool { return f.Kind.Disposition().Flag != failure.FlagNone }

func (r Result) blamesConfiguration() bool { return r.Kind.Disposition().Flag != failure.FlagNone }

func (r Result) seen(now time.Time) LastFailure {
	return LastFailure{Kind: r.Kind, HTTPStatus: r.HTTPStatus, Code: r.Code, Time: now}
}

// Tripped tells that the breaker is open or half-open.
func (s State) Tripped() bool { return !s.OpenUntil.IsZero() }

// Position returns where the breaker stands. Cooldowns end inclusively: at OpenUntil the route is half-open.
func (s State) Position(cfg Config, now time.Time) Position {
	s = s.Observe(cfg, now)
	switch {
	case s.Tripped() && now.Before(s.OpenUntil):
		return Open
	case now.Before(s.CoolUntil):
		return Cooling
	case s.Tripped():
		return HalfOpen
	}
	return Closed
}

// Observe bounds the times of a state by what they can be at now. A clock that jumped back, or a snapshot of a machine
// whose clock ran ahead, therefore never locks a route out for longer than the longest cooldown.
func (s State) Observe(cfg Config, now time.Time) State {
	s.OpenUntil = atMost(s.OpenUntil, now, cfg.MaxCooldown)
	s.CoolUntil = atMost(s.CoolUntil, now, MaxWaitHint)
	s.ProbeUntil = atMost(s.ProbeUntil, now, cfg.ProbeLease)
	return s
}

func atMost(t, now time.Time, d time.Duration) time.Time {
	if t.Sub(now) > d {
		return now.Add(d)
	}
	return t
}

// Verdict says whether a route may be asked now.
type Verdict struct {
	Position Position
	// Allowed tells that one request may be sent.
	Allowed bool
	// Probe tells that the request would be the only one of a half-open route.
	Probe bool
	// Until is when the verdict may change by itself; zero if Allowed, or if no time is known.
	Until time.Time
	// Kind is the last failure of the route.
	Kind failure.Kind
}

// Allow judges a route. It changes nothing: Begin takes the slot of a probe.
func Allow(cfg Config, s State, now time.Time) Verdict {
	s = s.Observe(cfg, now)
	v := Verdict{Position: s.Position(cfg, now), Kind: s.LastFailure.Kind}
	switch v.Position {
	case Closed:
		v.Allowed = true
	case Cooling:
		v.Until = s.CoolUntil
	case Open:
		v.Until = later(s.OpenUntil, s.CoolUntil)
	case HalfOpen:
		if now.Before(s.ProbeUntil) {
			v.Until = s.ProbeUntil
		} else {
			v.Allowed, v.Probe = true, true
		}
	}
	return v
}

// Begin starts a request. It returns the state with the probe's slot taken if the route is half-open, and the generation
// that the result must carry. Call it only after Allow allowed the request.
func Begin(cfg Config, s State, now time.Time) (State, int64) {
	s = s.Observe(cfg, now)
	if s.Tripped() {
		// The new generation discards the late result of a probe whose lease was lost.
		s.Generation++
		s.ProbeUntil = now.Add(cfg.ProbeLease)
	}
	return s, s.Generation
}

// Event is the outcome of one request.
type Event struct {
	Result
	// Generation is what Begin returned for the request.
	Generation int64
}

// Record returns the state after the outcome of a request. Outcomes of another generation change nothing: they were
// begun before the breaker last changed, and tell about a route that no longer is.
func Record(cfg Config, s State, e Event, now time.Time) State {
	s = s.Observe(cfg, now)
	if e.Generation != s.Generation {
		return s
	}
	if e.Outcome != Success && (e.Outcome != Neutral || e.blamesConfiguration()) {
		s.LastFailure = e.seen(now)
	}
	switch e.Outcome {
	case Success:
		return s.succeeded(now)
	case Blind:
		return s.failed(cfg, now)
	case Informed:
		s.InformedStreak++
		s = s.cool(e.Wait, doubled(informedCooldownBase, s.InformedStreak, informedCooldownMax), now)
		if cfg.InformedTrips {
			return s.failed(cfg, now)
		}
	case CredentialCooling:
		s = CoolSibling(s, e.Result, now)
	case Neutral:
	}
	// The route answered, but the answer proves nothing: the slot is free for another probe.
	s.ProbeUntil = time.Time{}
	return s
}

// CoolSibling returns the state of a route whose credential was found spent, be it at this route or at another. A probe in
// flight keeps its slot.
func CoolSibling(s State, r Result, now time.Time) State {
	s.QuotaStreak++
	s.LastFailure = r.seen(now)
	return s.cool(r.Wait, doubled(quotaCooldownBase, s.QuotaStreak, quotaCooldownMax), now)
}

func (s State) succeeded(now time.Time) State {
	if !s.Tripped() {
		s.Failures, s.InformedStreak, s.QuotaStreak = 0, 0, 0
		s.LastSuccessTime = now
		return s
	}
	return State{
		Generation:      s.Generation + 1,
		LastFailure:     s.LastFailure,
		LastSuccessTime: now,
	}
}

func (s State) failed(cfg Config, now time.Time) State {
	s.Failures++
	if cfg.BaseCooldown <= 0 || (!s.Tripped() && s.Failures < cfg.FailureThreshold) {
		s.ProbeUntil = time.Time{}
		return s
	}
	s.Generation++
	s.Trips++
	s.OpenedTime = now
	s.OpenUntil = later(s.OpenUntil, now.Add(cfg.Cooldown(s.Trips)))
	s.ProbeUntil = time.Time{}
	return s
}

// cool extends the cooling to the route's own time, or by the fallback when it named none.
func (s State) cool(wait, fallback time.Duration, now time.Time) State {
	if wait <= 0 {
		wait = fallback
	}
	s.CoolUntil = later(s.CoolUntil, now.Add(min(wait, MaxWaitHint)))
	return s
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
