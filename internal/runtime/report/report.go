// Package report shares what runs learn about a route, without a bus and without memory. A run publishes levels: what is
// true for it now. One keeper folds the levels of all runs into the shared breaker; since levels are no events, it does not
// matter whether a report is seen once, twice, late or never, nor how often the keeper restarts.
//
// The package is a pure leaf: it imports the standard library and the leaves breaker, failure and route, and takes the
// time as an argument.
package report

import (
	"time"

	"belay.dev/belay/internal/runtime/breaker"
	"belay.dev/belay/internal/runtime/route"
)

// Report is the level of one route at one run, as published.
type Report struct {
	Route route.Name
	breaker.Level
}

// Due tells whether a run should publish its levels of a route, given what it published last; nil is nothing. A level is
// published when it leaves or returns to zero, when the route trips, when its cooling begins or is extended, when a probe
// is sent or has a result, when the provider rejects the credential or the model and when it accepts them again, and once
// more whenever a new shared generation has voided what was published. Everything else waits for the next report that is
// due anyway.
func Due(published *Report, now Report, threshold int) bool {
	if published == nil {
		return now.ConsecutiveBlind > 0 || !now.CoolUntil.IsZero() || now.ProbeToken != "" || Rejected(now.LastFailure, now.LastSuccessTime)
	}
	was, is := published.Level, now.Level
	switch {
	case (was.ConsecutiveBlind == 0) != (is.ConsecutiveBlind == 0):
		return true
	case was.ConsecutiveBlind < threshold && is.ConsecutiveBlind >= threshold:
		return true
	case is.CoolUntil.After(was.CoolUntil):
		return true
	case was.ProbeToken != is.ProbeToken || was.ProbeResult != is.ProbeResult:
		return true
	case Rejected(was.LastFailure, was.LastSuccessTime) != Rejected(is.LastFailure, is.LastSuccessTime):
		return true
	case was.Generation != is.Generation:
		return is.ConsecutiveBlind > 0 || was.ConsecutiveBlind > 0 || !is.CoolUntil.IsZero()
	}
	return false
}

// Rejected tells that the newest word of a provider about a route was to reject its credential or model.
func Rejected(last breaker.LastFailure, success time.Time) bool {
	return last.BlamesConfiguration() && last.Time.After(success)
}

// Status is the shared breaker of a route. The keeper holds it and nothing else.
type Status struct {
	State breaker.Position
	// Generation counts the transitions and the changes of the override.
	Generation int64
	// Failures are the consecutive blind failures over all runs; while open, those that opened the route.
	Failures        int
	Trips           int
	OpenedTime      time.Time
	OpenUntil       time.Time
	CoolUntil       time.Time
	LastFailure     breaker.LastFailure
	LastSuccessTime time.Time
	Probe           *Probe
	// Override is the operator's decision that State follows; empty for none.
	Override Override
}

// Probe is the lease of the one run that tries a half-open route.
type Probe struct {
	RunName string
	RunUID  string
	// Epoch is the epoch that the probe was given to; for a parked run it is the one that it wakes into.
	Epoch int64
	Token string
	// ExpiresAt ends the lease of a probe that was sent; one that was not is given to another much earlier.
	ExpiresAt time.Time
}

// Override is an operator's decision about a route.
type Override string

const (
	// NoOverride leaves the route to the breaker.
	NoOverride Override = ""
	// ForcedOpen keeps all runs away from the route.
	ForcedOpen Override = "ForcedOpen"
	// ForcedClosed lets all runs use the route, whatever they see.
	ForcedClosed Override = "ForcedClosed"
)

// Wish is what an operator asks for.
type Wish struct {
	Override Override
	// Until ends the override; zero keeps it until it is withdrawn.
	Until time.Time
}

// at returns the override that holds at now.
func (w Wish) at(now time.Time) Override {
	if !w.Until.IsZero() && !now.Before(w.Until) {
		return NoOverride
	}
	return w.Override
}

// Run is what the keeper knows of one unfinished run whose allowed legs include the route.
type Run struct {
	Name string
	UID  string
	// Created orders runs by age.
	Created time.Time
	// Epoch is the run's epoch, and ReportEpoch the one that wrote Report.
	Epoch       int64
	ReportEpoch int64
	// Live tells that the run has a pod that works.
	Live bool
	// Parked tells that the run has no pod and waits for routes.
	Parked bool
	// Waiting tells that the run waits for this route, in place or parked.
	Waiting bool
	// Prefers tells that the run would ask this route first if it could.
	Prefers bool
	// Report is the run's level of the route; nil if it has published none.
	Report *Report
}

// Config configures the fold.
type Config struct {
	breaker.Config
	// ProbeStart is how long a run may take to send a probe that it was given, a parked one its new pod included. A probe
	// that was sent in time has breaker.Config.ProbeLease beyond that. Default 3 min.
	ProbeStart time.Duration
	// InformedCap and QuotaCap bound the cooling that one report can cause. Defaults 15 min and 1 h.
	InformedCap time.Duration
	QuotaCap    time.Duration
}

// DefaultConfig returns the configuration for a ladder that declares none.
func DefaultConfig() Config {
	return Config{
		Config:      breaker.DefaultConfig(),
		ProbeStart:  3 * time.Minute,
		InformedCap: 15 * time.Minute,
		QuotaCap:    time.Hour,
	}
}
