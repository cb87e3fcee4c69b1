package guard

import (
	"fmt"
	"slices"
)

// Refusal is why the guard kept a call from being dispatched.
type Refusal string

const (
	// NotRefused is for a call that the guard had no objection to.
	NotRefused Refusal = ""
	// RefusedRepeat: the call failed, nothing that could help has happened since, and it came again.
	RefusedRepeat Refusal = "Repeat"
	// RefusedLoop: the turn's calls had the same results IdenticalRefused times in a row.
	RefusedLoop Refusal = "Loop"
)

// Refused is the answer to a call that is not dispatched.
type Refused struct {
	Refusal Refusal
	// Kind is what the call's result is to be recorded with. A repeated failure keeps its kind and is one more failed
	// call; a repeated success is Denied, which nobody can cure by other arguments and which charges no repair budget.
	Kind Kind
	// Text is what the model is told.
	Text string
}

// Refuse tells whether a call of the newest answer is not worth dispatching. It must be asked before the call's start is
// recorded, and not at all for a call that has a start on record: what began is not refused afterwards.
//
// Two rules apply. A call that failed correctably is refused when it comes again and nothing has happened in between
// that could change its outcome; what could is every call that ran, whether it succeeded or not. And when the calls of
// the last three turns were the same and had the same results, a fourth turn of the same calls is refused as a whole.
func (s *State) Refuse(c Call) (Refused, bool) {
	if s.turn.looping {
		return Refused{Refusal: RefusedLoop, Kind: Denied, Text: loopText(trailing(s.steps))}, true
	}
	f, ok := s.failedBefore(c)
	if !ok {
		return Refused{}, false
	}
	return Refused{Refusal: RefusedRepeat, Kind: f.kind, Text: fmt.Sprintf(
		"Not executed: this is the call that failed before with %s, unchanged, and nothing has happened since that could change its outcome. The failure was:\n%s\n%s",
		f.kind, f.text, f.kind.Hint())}, true
}

func loopText(times int) string {
	rest := "If the next turn is the same again, the run is stopped."
	if times >= IdenticalStop-1 {
		rest = "The run is stopped."
	}
	return fmt.Sprintf("Not executed: the same calls had the same results %d times in a row, so there is nothing new to learn from them. "+
		"Use the results that you have, do something else, or say what keeps you from going on. %s", times, rest)
}

// failedBefore finds the call among those that would fail again.
func (s *State) failedBefore(c Call) (failure, bool) {
	at := slices.IndexFunc(s.unchanged, func(f failure) bool { return f.call.same(c) })
	if at < 0 {
		return failure{}, false
	}
	return s.unchanged[at], true
}

// same reports whether two calls ask for the same.
func (c Call) same(other Call) bool { return c.Tool == other.Tool && c.Arguments == other.Arguments }

// step is a closed turn as the loop rules see it. Turns are compared as sets: neither the order of their calls matters
// nor how often an answer repeats one of them.
type step struct {
	turn int
	// calls stands for what was called, outcome for that together with the results. An empty outcome equals no other.
	calls, outcome string
	tools          string // their names, for messages
}

const maxSteps = MaxPeriod * PeriodStop

// digest stands for the result of a call. That of a refused repetition is that of the failure it would have repeated.
func (s *State) digest(c Call, r Result) string {
	if r.Refusal == RefusedRepeat {
		if f, ok := s.failedBefore(c); ok {
			return f.digest
		}
	}
	parts := []string{string(r.Status), r.ErrorKind, r.Text}
	for _, m := range r.Media {
		parts = append(parts, m.MIMEType, m.Blob.SHA256)
	}
	return fingerprint(parts...)
}

// repeats reports whether the calls are those of the last turns, which were identical too often.
func (s *State) repeats(calls []Call) bool {
	return len(calls) > 0 && trailing(s.steps) >= IdenticalRefused && s.steps[len(s.steps)-1].calls == signature(calls)
}

func signature(calls []Call) string {
	ids := make([]string, len(calls))
	for i, c := range calls {
		ids[i] = fingerprint(c.Tool, c.Arguments)
	}
	return fingerprintSet(ids)
}

// step takes the closed turn into the window.
func (s *State) step() {
	next := step{turn: s.turn.number, calls: signature(s.turn.calls)}
	tools := make([]string, len(s.turn.calls))
	for i, c := range s.turn.calls {
		tools[i] = toolName(c.Tool)
	}
	next.tools = names(tools, maxNamedTools)
	next.outcome = s.outcome(next)
	s.steps = append(s.steps, next)
	if len(s.steps) > maxSteps {
		s.steps = slices.Delete(s.steps, 0, 1)
	}
}

func (s *State) outcome(next step) string {
	exempt := true
	pairs := make([]string, len(s.turn.results))
	for i, j := range s.turn.results {
		switch {
		case j.withdrawn:
			return "" // what was never seen to end compares to nothing
		case j.refusal == RefusedLoop:
			// A refused turn is one more like those before it.
			if n := len(s.steps); n > 0 && s.steps[n-1].calls == next.calls {
				return s.steps[n-1].outcome
			}
			return ""
		}
		exempt = exempt && j.exempt
		pairs[i] = fingerprint(j.call.Tool, j.call.Arguments, j.digest)
	}
	if exempt {
		return ""
	}
	return fingerprintSet(pairs)
}

// trailing is the number of identical turns at the end of the window.
func trailing(steps []step) int {
	n := 0
	for i := len(steps) - 1; i >= 0; i-- {
		if steps[i].outcome == "" || steps[i].outcome != steps[len(steps)-1].outcome {
			break
		}
		n++
	}
	return n
}

// period is the length of the shortest cycle that fills the end of the window PeriodStop times, or 0.
func period(steps []step) int {
	for p := MinPeriod; p <= MaxPeriod; p++ {
		if len(steps) >= p*PeriodStop && cyclic(steps[len(steps)-p*PeriodStop:], p) {
			return p
		}
	}
	return 0
}

func cyclic(steps []step, p int) bool {
	for i, st := range steps {
		if st.outcome == "" || i >= p && st.outcome != steps[i-p].outcome {
			return false
		}
	}
	return true
}

// loopStop is the stop for identical turns or a cycle of turns.
func (s *State) loopStop() *Stop {
	if n := trailing(s.steps); n >= IdenticalStop {
		last := s.steps[len(s.steps)-n:]
		return stopped(LoopDetected, fmt.Sprintf("The same calls (%s) had the same results in %d turns in a row (turns %d to %d); the last of them were refused.",
			last[0].tools, n, last[0].turn, last[n-1].turn))
	}
	if p := period(s.steps); p > 0 {
		cycle := s.steps[len(s.steps)-p*PeriodStop:]
		tools := make([]string, p)
		for i := range tools {
			tools[i] = cycle[i].tools
		}
		return stopped(LoopDetected, fmt.Sprintf("The same %d turns of calls (%s) came %d times in a row with the same results (turns %d to %d).",
			p, names(tools, p), PeriodStop, cycle[0].turn, cycle[len(cycle)-1].turn))
	}
	return nil
}
