package breaker

import (
	"maps"
	"slices"
	"time"

	"belay.dev/belay/internal/runtime/route"
)

// Snapshot is the knowledge of a set at a moment, for the ledger. Its order is stable.
type Snapshot struct {
	Routes []RouteSnapshot `json:"routes,omitempty"`
}

// RouteSnapshot is the knowledge about one route.
type RouteSnapshot struct {
	Route route.Name `json:"route"`
	State State      `json:"state"`
	// Shared is the last view of the shared breaker; nil outside a cluster.
	Shared *Shared `json:"shared,omitempty"`
}

// Snapshot returns what the set knows.
func (s *Set) Snapshot() Snapshot {
	var snap Snapshot
	for _, name := range slices.Sorted(maps.Keys(s.entries)) {
		e := s.entries[name]
		r := RouteSnapshot{Route: name, State: e.local}
		if e.shared != nil {
			shared := *e.shared
			r.Shared = &shared
		}
		snap.Routes = append(snap.Routes, r)
	}
	return snap
}

// Restore takes over a snapshot of an earlier epoch. Its requests are lost with it, so that no probe of it holds a slot
// any more; a probe that the cluster gave it was given to that epoch and is void. The shared view stands until Adopt
// brings a newer one; with it missing, a run that lost sight of the cluster still obeys what it last saw.
func (s *Set) Restore(snap Snapshot) {
	for _, r := range snap.Routes {
		e := s.entry(r.Route)
		e.local = r.State
		e.local.Generation++
		e.local.ProbeUntil = time.Time{}
		if r.Shared != nil {
			shared := *r.Shared
			shared.ProbeToken = ""
			e.shared = &shared
		}
	}
}
