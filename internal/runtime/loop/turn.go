package loop

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"belay.dev/belay/internal/runtime/breaker"
	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/ladder"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/message"
	"belay.dev/belay/internal/runtime/provider"
	"belay.dev/belay/internal/runtime/tools"
)

// turn is the work on one answer: the plan, the walk over it, and the requests as they were rendered.
type turn struct {
	number  int
	ladder  Ladder
	policy  ladder.RunPolicy
	request provider.Request
	plan    ladder.Plan
	walk    *ladder.Walk
	// prepared holds the rendered request of each leg, so that a retry sends identical bytes.
	prepared map[string]provider.Prepared
}

// turn gets one answer committed. stopped tells that the run ended or parked instead.
func (r *runner) turn(ctx context.Context) (stopped bool, err error) {
	t, err := r.plan(ctx)
	if err != nil {
		return false, err
	}
	if r.state.Committed == 0 && len(r.state.Receipts) == 0 {
		if conflicts := ladder.Conflicts(t.ladder.Ladder, t.policy); len(conflicts) > 0 {
			return true, r.finish(record.RunEnd{Turn: t.number, Reason: string(PolicyConflict), Message: sentence(ladder.ConflictMessage(conflicts))})
		}
	}
	if stopped, err := r.credentialStop(t); err != nil || stopped {
		return stopped, err
	}
	for {
		if err := context.Cause(ctx); err != nil {
			return false, err
		}
		if end, ok := r.state.exceeded(r.cfg.Limits); ok {
			return true, r.finish(end)
		}
		r.adopt()
		d := t.walk.Next(r.breakers, r.cfg.Clock.Now(), r.cfg.Random)
		switch d.Action {
		case ladder.Send:
			done, err := r.attempt(ctx, t, d)
			if err != nil || done {
				return r.state.End != nil, err
			}
		case ladder.Wait:
			if err := r.wait(ctx, t, d); err != nil {
				return false, err
			}
		case ladder.Amend:
			if err := r.amend(ctx, t, d); err != nil {
				return false, err
			}
		case ladder.Park:
			return true, r.park(t, d)
		case ladder.Stop:
			return true, r.stop(t, d)
		}
	}
}

// stop ends the run as the walk says.
func (r *runner) stop(t *turn, d ladder.Decision) error {
	message := sentence(d.Message)
	if d.Reason == ladder.StopContextIrreducible {
		message += " " + sentence(r.shares(t))
	}
	return r.finish(record.RunEnd{Turn: t.number, Reason: string(d.Reason), Message: message, Text: r.state.finalText()})
}

// plan chooses the legs of the next turn and writes the choice down. A turn that an earlier epoch left unfinished goes on
// with the counts that it had.
func (r *runner) plan(ctx context.Context) (*turn, error) {
	current, err := r.cfg.Ladders.Current(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the ladder: %w", err)
	}
	r.breakers.Configure(current.Breaker)
	r.breakers.Track(current.Routes()...)
	r.adopt()
	current.Targets = maps.Clone(current.Targets)
	current = r.withRejected(current)

	t := &turn{
		number: r.state.Committed + 1, ladder: current, prepared: map[string]provider.Prepared{},
		policy: ladder.RunPolicy{
			SecurityClass: ladder.SecurityClass(r.state.Contract.Routing.SecurityClass),
			Metered:       ladder.MeteredPolicy(r.state.Contract.Routing.Metered),
			Legs:          r.state.Contract.Routing.Legs,
			CostLimited:   r.cfg.Limits.MaxCostMicroUSD > 0,
		},
		request: provider.Request{System: r.state.Contract.System, Messages: r.state.Messages, Tools: offered(r.tools)},
	}
	if err := r.loadMedia(t.request.Messages); err != nil {
		return nil, err
	}
	need := r.need(t.request)
	plan := ladder.NewPlan(current.Ladder, t.policy, need, r.breakers, r.cfg.Clock.Now())
	t.plan = plan
	t.walk = ladder.NewWalk(current.Ladder, plan, need, ladder.Counts{
		Retries: r.state.RetriesBefore, MaxModelRetries: r.cfg.Limits.MaxModelRetries, Parks: r.state.Parks, LastLeg: r.state.LastLeg,
	})
	r.replay(t.walk, need)
	return t, r.journal.write(planRecord(t.number, plan))
}

// replay brings a new walk to where the last epoch left the turn.
func (r *runner) replay(w *ladder.Walk, need ladder.Need) {
	rewalked := 0
	for i, receipt := range r.state.Receipts {
		for ; rewalked < receipt.Rewalks; rewalked++ {
			w.Rewalked()
		}
		if interrupted(receipt.Failure) {
			continue
		}
		leg := receipt.Leg
		if blamesCredential(receipt.Failure) {
			// Either the leg is left out of the plan for it, or it has another credential by now, which this says nothing about:
			// the request counts, and no more.
			leg = ""
		}
		w.Record(leg, ladder.Result{Failure: receipt.Failure, Paid: paid(receipt.Charge), Probe: receipt.Probe}, receipt.At)
		if i+1 < len(r.state.Receipts) && teaches(receipt.Failure) {
			// The turn went on, so that the request was amended; whether the same leg was asked next says nothing, since its
			// route may have opened in between.
			w.Amended(need)
		}
	}
	if len(r.state.Receipts) > 0 {
		w.Restart()
	}
}

// interrupted tells that a request was cut because its epoch was asked to stop. That says nothing about the leg, is no retry,
// and brings no run nearer to its end; what it cost is charged.
func interrupted(f *failure.Failure) bool { return f != nil && f.Kind == failure.Cancelled }

func planRecord(number int, p ladder.Plan) record.TurnPlan {
	out := record.TurnPlan{
		Turn: number, PlannerVersion: p.PlannerVersion, Legs: p.Names(),
		Ladder: record.Ladder{Name: p.Ladder, UID: p.LadderUID, Generation: p.Generation},
	}
	for _, s := range p.Skipped {
		out.Skipped = append(out.Skipped, record.Skipped{Leg: s.Leg, Reason: string(s.Reason), Until: timeOrNil(s.Until)})
	}
	return out
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// need says what the next answer asks of a leg.
func (r *runner) need(req provider.Request) ladder.Need {
	n := ladder.Need{InputTokens: r.state.estimate(req)}
	for _, l := range r.state.Lessons {
		if l.Room > 0 && (n.OutputTokens == 0 || l.Room < n.OutputTokens || l.Room == n.OutputTokens && l.Input < n.InputTokens) {
			n.InputTokens, n.OutputTokens = l.Input, l.Room
		}
	}
	if len(req.Tools) > 0 {
		n.Capabilities = append(n.Capabilities, ladder.Tools)
	}
	if slices.ContainsFunc(req.Messages, hasMedia) {
		n.Capabilities = append(n.Capabilities, ladder.Images)
	}
	return n
}

func hasMedia(m message.Message) bool {
	return slices.ContainsFunc(m.Blocks, func(b message.Block) bool {
		return b.Media != nil || b.Result != nil && len(b.Result.Media) > 0
	})
}

// bytesPerToken is below what tokenizers reach on prose, so that an estimate is rather too high than too low.
const bytesPerToken = 3

// estimate is the likely size of the request in tokens: what the last answer reported, and the bytes that came since.
func (s *State) estimate(req provider.Request) int64 {
	var bytes int64
	from := 0
	if s.Measured.Tokens > 0 {
		from = s.Measured.Messages
	} else {
		bytes = int64(len(req.System))
		for _, t := range req.Tools {
			bytes += int64(len(t.Name) + len(t.Description) + len(t.InputSchema))
		}
	}
	return s.Measured.Tokens + tokens(bytes+contentBytes(req.Messages[from:]))
}

// tokens is the likely number of tokens in a text of so many bytes.
func tokens(bytes int64) int64 { return (bytes + bytesPerToken - 1) / bytesPerToken }

// contentBytes is the size of what a model reads of the messages, images aside.
func contentBytes(messages []message.Message) int64 {
	var bytes int64
	for _, m := range messages {
		for _, b := range m.Blocks {
			bytes += int64(len(b.Text))
			if b.Call != nil {
				bytes += int64(len(b.Call.Name) + len(b.Call.Arguments))
			}
			if b.Result != nil {
				bytes += int64(len(b.Result.Text))
			}
		}
	}
	return bytes
}

// loadMedia fetches the content of media that only name their blob.
func (r *runner) loadMedia(messages []message.Message) error {
	load := func(m *message.Media) error {
		if m.Data != nil || m.Blob.SHA256 == "" {
			return nil
		}
		data, err := r.journal.fetch(m.Blob)
		m.Data = data
		return err
	}
	for i := range messages {
		for j := range messages[i].Blocks {
			b := &messages[i].Blocks[j]
			if b.Media != nil {
				if err := load(b.Media); err != nil {
					return err
				}
			}
			if b.Result == nil {
				continue
			}
			for k := range b.Result.Media {
				if err := load(&b.Result.Media[k]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// adopt takes in what others know about the routes.
func (r *runner) adopt() {
	if r.cfg.Health == nil {
		return
	}
	now := r.cfg.Clock.Now()
	for name, shared := range r.cfg.Health.Shared() {
		r.breakers.Adopt(name, shared, now, r.cfg.Random())
	}
}

// publishedWait is the length from which on a wait in place is shown to others.
const publishedWait = 5 * time.Second

// wait waits in place, until the time is up, something changes in the routes' health, or the run is asked to stop.
func (r *runner) wait(ctx context.Context, t *turn, d ladder.Decision) error {
	if !d.Announced {
		if err := r.journal.write(record.RetryScheduled{
			Turn: t.number, Leg: d.Leg, Kind: d.Kind, DelayMilliseconds: d.For.Milliseconds(), Reason: string(d.Waiting),
		}); err != nil {
			return err
		}
	}
	if d.For >= publishedWait {
		r.waiting = &Waiting{Until: r.cfg.Clock.Now().Add(d.For), Reason: string(d.Waiting), Routes: d.Routes}
		defer func() { r.waiting = nil }()
		if err := r.journal.sync(); err != nil {
			return err
		}
	}
	var changed <-chan struct{}
	if r.cfg.Health != nil {
		changed = r.cfg.Health.Changed()
	}
	timer := r.cfg.Clock.NewTimer(d.For)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-changed:
	case <-timer.C():
	}
	return nil
}

func (r *runner) park(t *turn, d ladder.Decision) error {
	if d.Parking == ladder.ParkCredential {
		d.Until = r.credentialWake()
	}
	if err := r.journal.write(record.RunPark{
		Turn: t.number, Reason: string(d.Parking), Until: d.Until.UTC(), Routes: d.Routes, Message: sentence(d.Message),
	}); err != nil {
		return err
	}
	return r.journal.sync()
}

func offered(ts []tools.Tool) []provider.Tool {
	out := make([]provider.Tool, len(ts))
	for i, t := range ts {
		out[i] = provider.Tool{Name: t.Name, Description: t.Description, InputSchema: t.InputSchema}
	}
	return out
}

// transitionRecords says which routes changed, by the legs that use them.
func transitionRecords(l ladder.Ladder, changes []breaker.Transition) []any {
	var out []any
	for _, c := range changes {
		leg := ""
		if i := slices.IndexFunc(l.Legs, func(leg ladder.Leg) bool { return leg.Route.Name() == c.Route }); i >= 0 {
			leg = l.Legs[i].Name
		}
		out = append(out, record.BreakerChanged{
			Route: c.Route, Leg: leg, From: string(c.From), To: string(c.To), Until: timeOrNil(c.Until), Kind: c.Kind,
		})
	}
	return out
}
