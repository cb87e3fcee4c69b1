// Package guard keeps a run from going on without getting anywhere. It watches the tool calls of the turns and says
// when a call is not worth dispatching, when the model should be told something, and when the run is over:
//
//   - the repair budget: turns in which nothing but failed calls came back (repair.go);
//   - the loop guard: the same calls with the same results, once or in a cycle (repetition.go), and the same failure of
//     the same tool again and again (class.go);
//   - recovery hints for failures that another call may cure (kind.go).
//
// Everything is counted in turns, never in calls: a model sees no result before it has finished its answer, so what it
// repeats within one answer says nothing about whether it learns.
//
// State is the fold of what happened and of nothing else. The loop applies an event for each record of the ledger, while
// a run lives and again when it is resumed, and arrives at the same decisions. Times are those of the records; the
// package never asks for the present.
//
// The package is pure: it imports the standard library and the leaf message only.
package guard

import (
	"slices"
	"time"

	"belay.dev/belay/internal/runtime/message"
)

// Limits of the rules, in turns that have tool calls.
const (
	// RepairTurns is the number of failing turns in a row that ends a run; the model gets a directive one turn earlier.
	RepairTurns = 3

	// IdenticalRefused is the number of identical turns in a row after which one more like them is refused.
	IdenticalRefused = 3
	// IdenticalStop is the number of identical turns in a row, refused ones included, that ends a run.
	IdenticalStop = 5

	// MinPeriod and MaxPeriod are the lengths of the cycles that are looked for; PeriodStop is how often in a row a cycle
	// may come before it ends a run.
	MinPeriod  = 2
	MaxPeriod  = 4
	PeriodStop = 3

	// ClassWarning is the number of failures of one class after which the model is warned, ClassStop the number that ends
	// a run. Both count the failures of the last ClassWindow turns.
	ClassWarning = 3
	ClassStop    = 8
	ClassWindow  = 20
)

// Polling names the tools that are declared to be asked again and again while something else makes progress. The value
// is for how long one call may go on to return the same result before it counts as a repetition; a changed result starts
// the time anew.
type Polling map[string]time.Duration

// Event is something that happened: Answer, Result or Noted.
type Event interface{ event() }

// Answer is a committed answer of the model.
type Answer struct {
	// Turn is the number of the turn.
	Turn int
	// Calls are its tool calls, in order; there may be none.
	Calls []Call
}

// Call is a tool call as the model asked for it.
type Call struct {
	// ID is the runtime's id of the call, by which its result is found.
	ID string
	// Tool is the tool as the model named it.
	Tool string
	// Arguments stands for the arguments: equal for equal arguments, such as the digest of their canonical form.
	Arguments string
}

// Result is how a call ended. A turn is over when each of its calls has one.
type Result struct {
	// Result is what the model is told; CallID tells of which call.
	message.Result
	// CommandFailed is set when the call came to a command that ran, ended by itself and reported a failure, by a non-zero
	// exit code or by the signal that it died of: the tool worked and the command failed, as a failing test suite does.
	CommandFailed bool
	// Refusal is set when Refuse kept the call from being dispatched.
	Refusal Refusal
	// At is when the result was recorded.
	At time.Time
}

// Noted tells that a note of Decide was put before the model.
type Noted struct{ Kind NoteKind }

func (Answer) event() {}
func (Result) event() {}
func (Noted) event()  {}

// State is what the rules need to remember of a run. Make one with New; its size is bounded, however long the run is.
type State struct {
	polling Polling

	// turn is the newest turn with calls; closed tells that all its calls have their results.
	turn   turn
	closed bool

	// steps are the newest closed turns, the newest last.
	steps []step
	// ordinal counts the closed turns.
	ordinal int
	// failing are the newest failing turns in a row.
	failing []failingTurn
	// unchanged are the failed calls since the last call that may have changed anything.
	unchanged []failure
	classes   []class
	polls     []poll

	// due are the notes that the newest turn calls for and the model has not been given yet.
	due []NoteKind
}

// turn is an answer whose results are coming in.
type turn struct {
	number  int
	calls   []Call
	results []judged
	// looping is set when the calls are those of turns that were identical too often.
	looping bool
}

// judged is a result together with what the rules make of it.
type judged struct {
	call   Call
	digest string
	// worked: the tool did its work, whatever came of it. failed: the call was wrong, and another may be right. Neither
	// holds for what lies with others, such as a crash, a denial or a withdrawn call.
	worked, failed bool
	withdrawn      bool
	exempt         bool // a poll within its time
	refusal        Refusal
	failure        failure // if failed
}

// failure is a failed call.
type failure struct {
	call   Call
	kind   Kind
	digest string
	text   string // an excerpt
}

// New returns the state of a run that has not begun. The polling tools must be the same whenever the run is resumed.
func New(polling Polling) *State { return &State{polling: polling} }

// Apply folds an event into the state. What cannot be, such as a result of an unknown call, is ignored: whether the
// ledger's story holds together is judged elsewhere.
func (s *State) Apply(e Event) {
	switch e := e.(type) {
	case Answer:
		s.answer(e)
	case Result:
		s.result(e)
	case Noted:
		s.due = without(s.due, e.Kind)
	}
}

func (s *State) answer(a Answer) {
	s.due = nil
	s.turn = turn{number: a.Turn, calls: slices.Clone(a.Calls), looping: s.repeats(a.Calls)}
	s.closed = len(a.Calls) == 0
}

func (s *State) result(r Result) {
	at := slices.IndexFunc(s.turn.calls, func(c Call) bool { return c.ID == r.CallID })
	if at < 0 || slices.ContainsFunc(s.turn.results, func(j judged) bool { return j.call.ID == r.CallID }) {
		return
	}
	j := s.judge(s.turn.calls[at], r)
	s.remember(j, r)
	s.turn.results = append(s.turn.results, j)
	if len(s.turn.results) == len(s.turn.calls) {
		s.close()
	}
}

// judge says what a result means. The time of a poll is taken here.
func (s *State) judge(c Call, r Result) judged {
	kind := Kind(r.ErrorKind)
	j := judged{
		call: c, digest: s.digest(c, r), refusal: r.Refusal,
		worked:    r.Status == message.ResultOK || r.CommandFailed,
		withdrawn: r.Status == message.ResultCancelled || kind == kindCancelled,
	}
	j.exempt = s.polled(c, j.digest, r)
	if j.worked || !kind.Correctable() || j.exempt && !kind.rejected() {
		return j
	}
	j.failed = true
	j.failure = failure{call: c, kind: kind, digest: j.digest, text: clip(kind.withoutHint(r.Text), excerptBytes)}
	if first, ok := s.failedBefore(c); ok && r.Refusal == RefusedRepeat {
		j.failure.text = first.text
	}
	return j
}

// remember keeps the failed calls that would fail in the same way again, since nothing has happened in between.
func (s *State) remember(j judged, r Result) {
	if r.Status != message.ResultNotRun && !Kind(r.ErrorKind).harmless() {
		s.unchanged = nil
	}
	if !j.failed {
		return
	}
	s.unchanged = append(s.unchanged, j.failure)
	if len(s.unchanged) > maxUnchanged {
		s.unchanged = slices.Delete(s.unchanged, 0, 1)
	}
}

func (s *State) close() {
	s.closed = true
	s.ordinal++
	s.step()
	s.countFailingTurn()
	warned := s.countClasses()
	if s.chargedNow(RepairTurns - 1) {
		s.due = append(s.due, NoteRepair)
	}
	if warned {
		s.due = append(s.due, NoteLoop)
	}
}

func without(kinds []NoteKind, kind NoteKind) []NoteKind {
	var left []NoteKind
	for _, k := range kinds {
		if k != kind {
			left = append(left, k)
		}
	}
	return left
}

// maxUnchanged bounds the failed calls that are remembered in order to recognise their repetition.
const maxUnchanged = 64
