package report

import (
	"fmt"
	"testing"
	"time"

	"belay.dev/belay/internal/runtime/breaker"
	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/route"
)

// simulatedRun is a run whose turns all prefer one dead route: it asks whenever its breakers allow, and publishes its
// levels when they are due.
type simulatedRun struct {
	set       *breaker.Set
	published *Report
	inFlight  *breaker.Permit
	ends      time.Time
	requests  int
	probes    int
	facts     Run
}

// TestADeadRouteCostsTheClusterLittle plays many runs, one keeper and the delays between them, against a route that fails
// every request, and holds the promise: whatever is under way when the trip becomes visible, then one probe per cooldown in
// the whole cluster, and no run ever sends more than the threshold on its own.
func TestADeadRouteCostsTheClusterLittle(t *testing.T) {
	const (
		tick     = 100 * time.Millisecond
		duration = 300 * time.Millisecond // of a request
		delay    = 200 * time.Millisecond // from a status to whoever watches it
		hour     = time.Hour
	)
	dead := route.Route{BaseURL: "https://dead.example/v1", Dialect: route.OpenAIChat, Model: "m", SecretName: "s", SecretKey: "k"}
	name := dead.Name()
	for _, runs := range []int{1, 2, 5, 21} {
		t.Run(fmt.Sprintf("%d runs", runs), func(t *testing.T) {
			cfg := DefaultConfig()
			fleet := make([]*simulatedRun, runs)
			for i := range fleet {
				fleet[i] = &simulatedRun{set: breaker.NewSet(cfg.Config), facts: Run{
					Name: fmt.Sprint(i), UID: fmt.Sprint(i), Created: at(i), Epoch: 1, ReportEpoch: 1, Live: true, Prefers: true,
				}}
				fleet[i].set.Track(dead)
			}
			shared, views := Status{State: breaker.Closed}, []Status{}
			visible := time.Time{}
			afterTrip := 0
			for now := t0; now.Before(t0.Add(hour)); now = now.Add(tick) {
				for _, r := range fleet {
					// What the run sees is what the keeper wrote a moment ago.
					if lag := int(delay / tick); len(views) >= lag {
						r.adopt(name, views[len(views)-lag], now)
					}
					r.step(t, name, now, duration)
				}
				if visible.IsZero() && shared.State == breaker.Open {
					visible = now.Add(delay)
				}
				var reports []Run
				for _, r := range fleet {
					reports = append(reports, r.facts)
				}
				shared = Fold(shared, reports, Wish{}, cfg, now).Status
				views = append(views, shared)
				if !visible.IsZero() && now.Equal(visible) {
					for _, r := range fleet {
						afterTrip -= r.requests
					}
				}
			}
			probes := 0
			for i, r := range fleet {
				probes += r.probes
				afterTrip += r.requests
				if r.requests > cfg.FailureThreshold {
					t.Errorf("run %d sent %d requests besides probes, more than the threshold", i, r.requests)
				}
			}
			if visible.IsZero() {
				t.Fatal("the route never opened for all")
			}
			if afterTrip != 0 {
				t.Errorf("%d requests began after the trip was visible", afterTrip)
			}
			// Cooldowns of 30, 60, 120, 240, 480, 900 and 900 s end within the hour, the next one does not.
			if probes != 7 {
				t.Errorf("%d probes in an hour, want 7", probes)
			}
		})
	}
}

func (r *simulatedRun) adopt(name route.Name, s Status, now time.Time) {
	view := breaker.Shared{UID: "x", Generation: s.Generation, Position: s.State, Trips: s.Trips, OpenUntil: s.OpenUntil, CoolUntil: s.CoolUntil}
	if p := s.Probe; p != nil {
		view.ProbeExpires = p.ExpiresAt
		if p.RunUID == r.facts.UID {
			view.ProbeToken = p.Token
		}
	}
	r.set.Adopt(name, view, now, 0.5)
}

func (r *simulatedRun) step(t *testing.T, name route.Name, now time.Time, duration time.Duration) {
	t.Helper()
	if r.inFlight != nil && !now.Before(r.ends) {
		r.set.Finish(*r.inFlight, breaker.Result{Outcome: breaker.Blind, Kind: failure.Timeout}, now)
		r.inFlight = nil
	}
	if r.inFlight == nil {
		if permit, ok := r.set.Begin(name, now); ok {
			r.inFlight, r.ends = &permit, now.Add(duration)
			if permit.Probe {
				r.probes++
			} else {
				r.requests++
			}
		}
	}
	level := Report{Route: name, Level: r.set.Level(name)}
	if Due(r.published, level, r.set.Config().FailureThreshold) {
		r.published = &level
		r.facts.Report = &level
	}
}
