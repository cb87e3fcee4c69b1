package providerhealth

import (
	"time"

	"belay.dev/belay/api/v1alpha1"
	"belay.dev/belay/internal/runtime/report"
)

// retention is how long an object outlives the last ladder that names its route.
const retention = 24 * time.Hour

// decision is what a pass does.
type decision struct {
	// create is the object to create first; nil for none.
	create *v1alpha1.RouteIdentity
	// remove deletes the object; nothing else is done then.
	remove bool
	// ignore leaves everything as it is.
	ignore bool

	status      v1alpha1.ProviderHealthStatus
	transitions []report.Transition
	// next is when the next pass is due by time alone; zero for never.
	next time.Time
}

// decide is pure.
func decide(f *facts) decision {
	if f.health != nil && f.health.DeletionTimestamp != nil {
		return decision{ignore: true}
	}
	d := decision{}
	var old v1alpha1.ProviderHealthStatus
	wish := report.Wish{}
	if f.health == nil {
		if d.create = f.wanted(); d.create == nil {
			return decision{ignore: true}
		}
	} else {
		old = f.health.Status
		wish = wishOf(f.health.Spec.Override)
	}
	if due := f.removeAt(wish); !due.IsZero() {
		if !f.now.Before(due) {
			return decision{remove: true}
		}
		d.next = due
	}
	out := report.Fold(sharedOf(&old), f.runs, wish, f.config(), f.now)
	d.status = f.statusOf(&old, out.Status, wish)
	d.transitions = out.Transitions
	if d.next.IsZero() || (!out.Next.IsZero() && out.Next.Before(d.next)) {
		d.next = out.Next
	}
	return d
}

// wanted is the identity of a route that an accepted leg names; nil if there is none.
func (f *facts) wanted() *v1alpha1.RouteIdentity {
	for i := range f.ladders {
		if f.ladders[i].accepted {
			return &f.ladders[i].identity
		}
	}
	return nil
}

// removeAt is when the object is to be deleted; zero as long as a ladder names its route or an override stands.
func (f *facts) removeAt(wish report.Wish) time.Time {
	if f.health == nil || len(f.ladders) > 0 {
		return time.Time{}
	}
	since := f.now
	if t := f.health.Status.UnreferencedTime; t != nil {
		since = t.Time
	}
	due := since.Add(retention)
	switch {
	case wish.Override == report.NoOverride:
		return due
	case wish.Until.IsZero():
		return time.Time{}
	case wish.Until.After(due):
		return wish.Until
	}
	return due
}

// config is how the route's breaker works. Ladders that share a route may ask for different things. The shared breaker
// takes the most lenient of them, so that no ladder locks the runs of another out of a route sooner or for longer than
// theirs would; each run's own breaker keeps to its own ladder. A ladder whose breaker is disabled has no say.
func (f *facts) config() report.Config {
	cfg := report.DefaultConfig()
	if len(f.ladders) == 0 {
		return cfg
	}
	lenient := false
	for _, l := range f.ladders {
		b := l.chain.Breaker
		switch {
		case b.BaseCooldown <= 0:
		case !lenient:
			lenient = true
			cfg.FailureThreshold, cfg.BaseCooldown = b.FailureThreshold, b.BaseCooldown
		default:
			cfg.FailureThreshold = max(cfg.FailureThreshold, b.FailureThreshold)
			cfg.BaseCooldown = min(cfg.BaseCooldown, b.BaseCooldown)
		}
	}
	if !lenient {
		cfg.BaseCooldown = 0
	}
	return cfg
}

func wishOf(o *v1alpha1.HealthOverride) report.Wish {
	if o == nil {
		return report.Wish{}
	}
	w := report.Wish{}
	if o.Until != nil {
		w.Until = o.Until.Time
	}
	switch o.State {
	case v1alpha1.OverrideForcedOpen:
		w.Override = report.ForcedOpen
	case v1alpha1.OverrideForcedClosed:
		w.Override = report.ForcedClosed
	case v1alpha1.OverrideAuto:
	}
	return w
}
