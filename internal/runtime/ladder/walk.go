package ladder

import (
	"fmt"
	"slices"
	"time"

	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/route"
)

const (
	rewalkBaseDelay = 2 * time.Second
	// shortWaitTries is the first request and two retries, at a leg that asks for a short wait while another is available.
	shortWaitTries = 3
	// maxPaidPerLeg is how many answers that broke after they had cost something a leg may charge in one turn.
	maxPaidPerLeg = 2
	// maxParks is how often a run parks for its routes without a committed turn in between.
	maxParks = 12
	// maxReductions, maxRepairs and maxRaises bound the amendments of one turn; maxRereads those of one leg in it.
	maxReductions = 2
	maxRepairs    = 1
	maxRaises     = 2
	maxRereads    = 1
)

// Rand returns a random number in [0, 1).
type Rand func() float64

// Counts are what a run has used up before this walk, in this turn or in earlier ones. They are rebuilt from the ledger.
type Counts struct {
	// Retries are the requests after the first of each turn, and the probes, over the whole run.
	Retries int
	// MaxModelRetries bounds them: 0 allows none, nil any number.
	MaxModelRetries *int
	// Parks are the parks for routes since the last committed turn.
	Parks int
	// LastLeg is the leg of the run's last request; it keeps a fallback that stands from being told again every turn.
	LastLeg string
}

// Result is the end of one request.
type Result struct {
	// Failure is nil for a complete answer.
	Failure *failure.Failure
	// Paid tells that the request was charged although its answer was discarded.
	Paid bool
	// Probe repeats Decision.Probe.
	Probe bool
}

// Effect is a consequence of a failure that concerns more than the walk.
type Effect string

const (
	// CredentialRejected means that the leg's credential is bad: it is never passed over silently.
	CredentialRejected Effect = "CredentialInvalid"
	// ModelMissing means that the ladder names a model which the endpoint does not serve.
	ModelMissing Effect = "ModelNotFound"
)

// Walk is the state machine of one turn: Next says what to do, Record is told how a request ended. It is not safe for
// concurrent use.
//
// A walk is not stored. After a restart the same counts are reached by a new walk over a new plan: its Counts as they were
// before the turn, then, in the ledger's order, Record for each receipt of the unfinished turn and Rewalked for each walk
// that was begun again, with the times of the records, and at last Restart. A restart of the process thus earns no leg
// another turn's worth of requests.
type Walk struct {
	ladder Ladder
	plan   Plan
	need   Need
	counts Counts
	legs   []legState

	// at is the leg in use; one walk never returns to an earlier one.
	at int
	// attempts are the requests of the turn without probes, sends those with probes.
	attempts, sends int
	rewalks         int
	// sentInWalk tells that the current walk has sent a request.
	sentInWalk bool
	// current is the leg of the last request of the turn, -1 before the first.
	current int
	// last is the leg of the last request of the run.
	last string
	// minWindow is set by an overflow that the estimate had not foreseen: only a larger window is worth a try.
	minWindow int64
	// reductions, repairs and raises count the amendments of the turn.
	reductions, repairs, raises int

	pending *Decision
	ended   *Decision
	wait    plannedWait
}

// plannedWait is a wait that was decided and is not over.
type plannedWait struct {
	reason      WaitReason
	base, until time.Time
}

// legState is what the turn knows of one leg.
type legState struct {
	Leg
	name route.Name
	// tries are the requests of this walk, total those of the turn.
	tries, total int
	paid         int
	rereads      int
	// repeats are the failures of the turn that are tried again just once.
	repeats int
	// spent legs are left for this walk, out legs for this turn.
	spent, out bool
	left       FallbackReason
	// from is the leg that this one was asked instead of.
	from string
	// drawn tells that the backoff before the next try was decided.
	drawn bool
	// amended tells that the request was changed since the last failure.
	amended  bool
	last     *failure.Failure
	failedAt time.Time
}

// NewWalk begins the walk of one turn over the plan. The legs that the plan skips for a passing reason take part: they
// are asked when that has passed.
func NewWalk(l Ladder, plan Plan, n Need, c Counts) *Walk {
	w := &Walk{ladder: l, plan: plan, need: n, counts: c, current: -1, last: c.LastLeg}
	passing := map[string]bool{}
	for _, s := range plan.Skipped {
		passing[s.Leg] = s.Reason.passing()
	}
	planned := map[string]bool{}
	for _, p := range plan.Legs {
		planned[p.Name] = true
	}
	for _, leg := range l.Legs {
		if planned[leg.Name] || passing[leg.Name] {
			w.legs = append(w.legs, legState{Leg: leg, name: leg.Route.Name()})
		}
	}
	return w
}

// Retries returns the run's retries, those of this walk included, for the next turn's Counts.
func (w *Walk) Retries() int { return w.counts.Retries }

// Attempts returns the requests of the turn, probes not counted.
func (w *Walk) Attempts() int { return w.attempts }

// Rewalks returns how many times the ladder was walked again in the turn.
func (w *Walk) Rewalks() int { return w.rewalks }

// Record takes in how a request to the leg ended. Tell the breaker as well: a walk learns from health alone that a route
// has opened. Legs that the walk does not know, of a ladder that was edited in mid-turn, count towards the turn only.
func (w *Walk) Record(leg string, r Result, now time.Time) []Effect {
	w.settlePending(leg)
	w.count(leg, r)
	i := slices.IndexFunc(w.legs, func(l legState) bool { return l.Name == leg })
	if i < 0 || r.Failure == nil {
		return nil
	}
	w.at, w.current = i, i
	l := &w.legs[i]
	l.tries++
	l.total++
	l.last, l.failedAt = r.Failure, now
	l.drawn, l.amended = false, false
	if r.Paid {
		l.paid++
	}
	d := r.Failure.Kind.Disposition()
	w.follow(l, r, d)
	switch d.Flag {
	case failure.FlagCredential:
		return []Effect{CredentialRejected}
	case failure.FlagModel:
		return []Effect{ModelMissing}
	case failure.FlagNone:
	}
	return nil
}

func (w *Walk) count(leg string, r Result) {
	if w.sends > 0 || r.Probe {
		w.counts.Retries++
	}
	w.sends++
	w.sentInWalk = true
	w.last = leg
	w.wait = plannedWait{}
	if !r.Probe {
		w.attempts++
	}
}

// settlePending is for a walk that is rebuilt: that the same leg was asked again tells that the request was amended.
func (w *Walk) settlePending(leg string) {
	switch {
	case w.pending == nil:
	case w.pending.Leg == leg:
		w.Amended(w.need)
	default:
		w.CannotAmend()
	}
}

// Rewalked replays that the ladder was walked again, for a walk that is rebuilt from the ledger.
func (w *Walk) Rewalked() { w.rewalk() }

// Restart begins at the top of the plan without counting a walk: after a wait for routes, and in a new epoch.
func (w *Walk) Restart() { w.restart() }

func (w *Walk) rewalk() {
	w.rewalks++
	w.restart()
}

// restart begins at the top with fresh tries for every leg that is not out.
func (w *Walk) restart() {
	w.at, w.sentInWalk = 0, false
	for i := range w.legs {
		l := &w.legs[i]
		l.tries, l.spent, l.drawn, l.left = 0, false, false, ""
	}
}

// follow draws the consequences of a failure that do not depend on the other legs. Next draws the others, since whether
// another leg is available can change until then.
func (w *Walk) follow(l *legState, r Result, d failure.Disposition) {
	f := r.Failure
	if f.Sub == failure.SubConfiguration {
		l.out, l.left = true, FallbackNoRetry
		return
	}
	switch d.SameLeg {
	case failure.SameLegAfterReread:
		w.ask(l, RereadCredential, l.rereads < maxRereads)
	case failure.SameLegAfterRepair:
		w.ask(l, RepairRequest, w.repairs < maxRepairs)
	case failure.SameLegAfterReduction:
		w.ask(l, ReduceContext, w.reductions < maxReductions)
	case failure.SameLegRaiseCap:
		w.ask(l, RaiseOutputCap, w.raises < maxRaises)
	case failure.SameLegNever:
		w.never(l, d)
	case failure.SameLegOnce:
		if l.repeats++; l.repeats > 1 {
			l.out, l.left = true, FallbackTriesSpent
		}
	case failure.SameLegBackoff, failure.SameLegOnlyIfAlone, failure.SameLegShortWait:
	}
	switch {
	case l.spent || l.out || w.pending != nil || w.ended != nil:
	case r.Probe:
		l.spent, l.left = true, FallbackNoRetry
	case f.NoRetry:
		l.spent, l.left = true, FallbackNoRetry
	case r.Paid && l.paid >= maxPaidPerLeg:
		l.spent, l.left = true, FallbackPaidTwice
	}
}

// ask makes an amendment the next thing to do, or gives it up if the turn has used its share.
func (w *Walk) ask(l *legState, a Amendment, left bool) {
	w.pending = &Decision{Action: Amend, Leg: l.Name, Route: l.name, Amendment: a, Kind: l.last.Kind, Sub: l.last.Sub, Message: l.last.Message}
	if !left {
		w.CannotAmend()
	}
}

// never deals with kinds for which the same leg is not asked again in the turn.
func (w *Walk) never(l *legState, d failure.Disposition) {
	l.left = FallbackNoRetry
	switch d.NextLeg {
	case failure.NextLegNever:
		w.end(StopCancelled, fmt.Sprintf("the request to leg %q was cancelled", l.Name))
	case failure.NextLegByFilterPolicy:
		if w.ladder.Policy.OnContentFiltered != AdvanceOnContentFiltered {
			w.end(StopContentFiltered, fmt.Sprintf("leg %q: the provider's content filter withheld the answer; "+
				"the ladder's policy.onContentFiltered is Fail (Advance would ask the next leg)", l.Name))
			return
		}
		l.out = true
	case failure.NextLegAtOnce:
		// A spent quota comes back by itself: the route's cooling keeps the leg from being asked until then.
		l.spent = true
		l.out = d.Health != failure.HealthCredentialCooling
	case failure.NextLegWhenSpent, failure.NextLegWhenWaitTooLong, failure.NextLegIfWindowFits, failure.NextLegByCredentialPolicy:
		l.spent = true
	}
}

// Amended tells that the request was changed as asked, and what it needs now. The leg is asked again with it.
func (w *Walk) Amended(n Need) {
	p := w.pending
	if p == nil {
		return
	}
	w.pending = nil
	l := w.find(p.Leg)
	switch p.Amendment {
	case RereadCredential:
		l.rereads++
	case RepairRequest:
		w.repairs++
	case ReduceContext:
		w.reductions++
		w.minWindow = 0
	case RaiseOutputCap:
		w.raises++
	}
	w.need = n
	l.amended = true
}

// CannotAmend tells that the request cannot be changed as asked. The walk goes on without, or ends.
func (w *Walk) CannotAmend() {
	p := w.pending
	if p == nil {
		return
	}
	w.pending = nil
	l := w.find(p.Leg)
	switch p.Amendment {
	case RereadCredential:
		w.rejectCredential(l)
	case RepairRequest:
		w.end(StopInvalidRequest, fmt.Sprintf("leg %q refused the request, and another leg would refuse it as well: %s", l.Name, messageOf(l.last)))
	case ReduceContext:
		w.reductions = maxReductions
		if l.last != nil && l.last.Kind == failure.ContextLengthExceeded {
			w.minWindow = max(w.minWindow, l.ContextWindow+1)
		}
	case RaiseOutputCap:
		w.end(StopOutputTruncated, fmt.Sprintf("leg %q cut its answer at its output limit, and neither a higher limit nor a continuation is possible; "+
			"raise the leg's maxOutputTokens", l.Name))
	}
}

func (w *Walk) rejectCredential(l *legState) {
	l.out, l.left = true, FallbackNoRetry
	text := fmt.Sprintf("leg %q: the provider rejected key %q of Secret %q (%s)", l.Name, l.Route.SecretKey, l.Route.SecretName, l.last.Kind)
	switch w.ladder.Policy.OnCredentialFailure {
	case FailOnCredentialFailure:
		w.end(StopCredentialInvalid, text+"; the ladder's policy.onCredentialFailure is Fail")
	case ParkOnCredentialFailure:
		w.ended = &Decision{Action: Park, Parking: ParkCredential, Routes: []route.Name{l.name},
			Message: text + "; the run goes on when the Secret or the ladder has changed"}
	case AdvanceOnCredentialFailure, "":
	}
}

func (w *Walk) find(leg string) *legState {
	i := slices.IndexFunc(w.legs, func(l legState) bool { return l.Name == leg })
	return &w.legs[i]
}

func (w *Walk) end(reason StopReason, message string) {
	w.ended = &Decision{Action: Stop, Reason: reason, Message: message}
}

func messageOf(f *failure.Failure) string {
	if f == nil || f.Message == "" {
		return "no details"
	}
	return f.Message
}
