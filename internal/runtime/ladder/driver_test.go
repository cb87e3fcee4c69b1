package ladder

import (
	"testing"
	"time"

	"belay.dev/belay/internal/runtime/breaker"
	"belay.dev/belay/internal/runtime/budget"
	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/route"
)

var t0 = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return t0.Add(time.Duration(seconds * float64(time.Second))) }

// leg is an included, public leg with a window of 128,000 tokens and a credential of its own.
func leg(name string, change ...func(*Leg)) Leg {
	l := Leg{
		Name: name, Provider: name, ContextWindow: 128_000, Billing: Included,
		Route: route.Route{BaseURL: "https://" + name + ".example/v1", Dialect: route.OpenAIChat, Model: "m", SecretName: name, SecretKey: "key"},
	}
	for _, c := range change {
		c(&l)
	}
	return l
}

func window(tokens int64) func(*Leg)          { return func(l *Leg) { l.ContextWindow = tokens } }
func class(c SecurityClass) func(*Leg)        { return func(l *Leg) { l.SecurityClass = c } }
func credential(c CredentialState) func(*Leg) { return func(l *Leg) { l.Credential = c } }
func can(c ...Capability) func(*Leg)          { return func(l *Leg) { l.Capabilities = c } }
func drained(l *Leg)                          { l.State = Drained }
func metered(l *Leg)                          { l.Billing = Metered }
func priced(l *Leg)                           { l.Price = &budget.Price{InputMicroUSDPerMTok: 1} }
func fails(k failure.Kind) *failure.Failure {
	return &failure.Failure{Kind: k, Message: "what " + string(k) + " means"}
}
func failsFor(k failure.Kind, wait time.Duration) *failure.Failure {
	f := fails(k)
	f.Wait = &failure.Wait{Duration: wait, Source: "retry-after"}
	return f
}

// noJitter draws the lower end of every delay, halfJitter its middle.
func noJitter() float64   { return 0 }
func halfJitter() float64 { return 0.5 }

// driver walks a turn the way a loop does: one breaker set, one clock, and a log of what was decided.
type driver struct {
	t      *testing.T
	walk   *Walk
	health *breaker.Set
	now    time.Time
	rnd    Rand
	sent   []string
}

func drive(t *testing.T, l Ladder, counts Counts) *driver {
	t.Helper()
	d := &driver{t: t, health: breaker.NewSet(l.Breaker), now: t0, rnd: halfJitter}
	d.health.Track(l.Routes()...)
	d.begin(l, RunPolicy{}, Need{InputTokens: 1000}, counts)
	return d
}

func (d *driver) begin(l Ladder, p RunPolicy, n Need, counts Counts) {
	d.walk = NewWalk(l, NewPlan(l, p, n, d.health, d.now), n, counts)
}

func (d *driver) next() Decision { return d.walk.Next(d.health, d.now, d.rnd) }

// until sits out waits, and returns the first decision that is none.
func (d *driver) until() Decision {
	d.t.Helper()
	for range 100 {
		dec := d.next()
		if dec.Action != Wait {
			return dec
		}
		d.now = d.now.Add(dec.For)
	}
	d.t.Fatal("a hundred waits in a row")
	return Decision{}
}

// end ends the request that was decided.
func (d *driver) end(dec Decision, f *failure.Failure, paid bool) []Effect {
	d.t.Helper()
	if dec.Action != Send {
		d.t.Fatalf("expected a request, got %+v", dec)
	}
	permit, ok := d.health.Begin(dec.Route, d.now)
	if !ok {
		d.t.Fatalf("the walk asks leg %s although its breaker forbids it", dec.Leg)
	}
	d.sent = append(d.sent, dec.Leg)
	d.health.Finish(permit, breaker.ResultOf(f), d.now)
	return d.walk.Record(dec.Leg, Result{Failure: f, Paid: paid, Probe: dec.Probe}, d.now)
}

// fail sits out waits, sends what is decided and lets it fail.
func (d *driver) fail(want string, f *failure.Failure) Decision {
	d.t.Helper()
	dec := d.until()
	if dec.Action != Send || dec.Leg != want {
		d.t.Fatalf("got %s %q (%s), want a request to %q", dec.Action, dec.Leg, dec.Message, want)
	}
	d.end(dec, f, false)
	return dec
}

func (d *driver) wantStop(reason StopReason) Decision {
	d.t.Helper()
	dec := d.until()
	if dec.Action != Stop || dec.Reason != reason {
		d.t.Fatalf("got %s %s %q, want Stop %s", dec.Action, dec.Reason, dec.Message, reason)
	}
	return dec
}

// open trips the route of a leg before the turn.
func (d *driver) open(l Leg) {
	for range d.health.Config().FailureThreshold {
		p, _ := d.health.Begin(l.Route.Name(), d.now)
		d.health.Finish(p, breaker.ResultOf(fails(failure.ServerError)), d.now)
	}
}
