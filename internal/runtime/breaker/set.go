package breaker

import (
	"maps"
	"slices"
	"time"

	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/route"
)

// Set is what one run knows about the health of its routes: a breaker of its own for each, and what the cluster shares
// about it, where there is a cluster. It obeys the stricter of the two.
//
// A Set has no lock: its owner serialises the calls.
type Set struct {
	cfg     Config
	entries map[route.Name]*entry
}

type entry struct {
	credential string
	local      State
	shared     *Shared
	sharedSeen time.Time
	// Once the shared breaker has been open for much longer than it should, the run probes by itself: see adopt.go.
	away away
	// probeToken and probeResult are the last shared probe that this run began, as published.
	probeToken  string
	probeResult ProbeResult
}

// NewSet returns a set that knows nothing bad about any route.
func NewSet(cfg Config) *Set {
	return &Set{cfg: cfg, entries: map[route.Name]*entry{}}
}

// Configure replaces the configuration, for a ladder that was edited. States are kept.
func (s *Set) Configure(cfg Config) { s.cfg = cfg }

// Config returns the configuration.
func (s *Set) Config() Config { return s.cfg }

// Track makes the routes known, so that a spent quota of one cools all with the same credential. Routes that are known
// already keep their state.
func (s *Set) Track(routes ...route.Route) {
	for _, r := range routes {
		e := s.entry(r.Name())
		if r.SecretName != "" {
			e.credential = r.Credential()
		}
	}
}

func (s *Set) entry(name route.Name) *entry {
	e := s.entries[name]
	if e == nil {
		e = &entry{}
		s.entries[name] = e
	}
	return e
}

// Health judges a route by the stricter of the run's own breaker and the shared one.
func (s *Set) Health(name route.Name, now time.Time) Verdict {
	e := s.entries[name]
	if e == nil {
		return Verdict{Position: Closed, Allowed: true}
	}
	return e.health(s.cfg, now)
}

func (e *entry) health(cfg Config, now time.Time) Verdict {
	local := Allow(cfg, e.local, now)
	if e.shared == nil {
		return local
	}
	shared := e.sharedVerdict(now)
	if shared.Probe && e.grantHolds(now) && local.Position != Cooling {
		// The cluster's only probe was given to this run: it settles the question, whatever the own breaker holds.
		return shared
	}
	return stricter(local, shared)
}

// stricter joins two verdicts: denied beats allowed, and of two denials the later end counts.
func stricter(a, b Verdict) Verdict {
	switch {
	case a.Allowed && b.Allowed:
		if b.Probe {
			return b
		}
		return a
	case a.Allowed:
		return b
	case b.Allowed:
		return a
	}
	v := a
	if severity(b.Position) > severity(a.Position) {
		v = b
	}
	v.Until = later(a.Until, b.Until)
	if a.Until.IsZero() || b.Until.IsZero() {
		v.Until = time.Time{}
	}
	return v
}

func severity(p Position) int {
	switch p {
	case Closed:
		return 0
	case Cooling:
		return 1
	case HalfOpen:
		return 2
	case Open:
		return 3
	}
	return 3
}

// Permit is the right to send one request. Its result must be given back by Finish.
type Permit struct {
	Route route.Name
	// Position is where the route stood when the request began, for the receipt.
	Position Position
	// Probe tells that the request is the only one of a half-open route: it gets 60 s to its first byte, and no second try.
	Probe bool

	generation int64
	token      string
	away       bool
}

// Begin takes the right to send one request, and the slot of a half-open route with it. False means that the route may
// not be asked now.
func (s *Set) Begin(name route.Name, now time.Time) (Permit, bool) {
	e := s.entry(name)
	v := e.health(s.cfg, now)
	if !v.Allowed {
		return Permit{}, false
	}
	p := Permit{Route: name, Position: v.Position, Probe: v.Probe}
	if v.Probe && e.shared != nil && e.grantHolds(now) {
		p.token = e.shared.ProbeToken
		e.probeToken, e.probeResult = p.token, ""
	} else if v.Probe && e.awayOpens(now) {
		p.away = true
		e.away.probing = true
	}
	e.local, p.generation = Begin(s.cfg, e.local, now)
	return p, true
}

// Transition is a change of a route's position that the end of a request caused.
type Transition struct {
	Route    route.Name
	From, To Position
	// Until is the end of the new position, zero if it has none.
	Until time.Time
	Kind  failure.Kind
}

// Finish records how a permitted request ended, and returns what changed: in the route itself, and in every other route
// of the same credential when that is spent.
func (s *Set) Finish(p Permit, r Result, now time.Time) []Transition {
	var changed []Transition
	e := s.entry(p.Route)
	from := e.local.Position(s.cfg, now)
	e.local = Record(s.cfg, e.local, Event{Result: r, Generation: p.generation}, now)
	e.settle(s.cfg, p, r, now)
	changed = s.note(changed, p.Route, from, r.Kind, now)
	if r.Outcome != CredentialCooling || e.credential == "" {
		return changed
	}
	for _, name := range slices.Sorted(maps.Keys(s.entries)) {
		other := s.entries[name]
		if name == p.Route || other.credential != e.credential {
			continue
		}
		from := other.local.Position(s.cfg, now)
		other.local = CoolSibling(other.local, r, now)
		changed = s.note(changed, name, from, r.Kind, now)
	}
	return changed
}

func (s *Set) note(changed []Transition, name route.Name, from Position, kind failure.Kind, now time.Time) []Transition {
	local := s.entries[name].local
	to := local.Position(s.cfg, now)
	if from == to {
		return changed
	}
	return append(changed, Transition{Route: name, From: from, To: to, Until: Allow(s.cfg, local, now).Until, Kind: kind})
}

// Replay applies the outcome of a request that an earlier epoch finished at the given time, so that a resumed run knows
// what the last one had learned. Call it in the order of the receipts.
func (s *Set) Replay(name route.Name, r Result, at time.Time) {
	e := s.entry(name)
	var generation int64
	e.local, generation = Begin(s.cfg, e.local, at)
	s.Finish(Permit{Route: name, generation: generation}, r, at)
}
