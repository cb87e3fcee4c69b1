package chaos

import (
	"fmt"
	"sync"
)

// player moves through the steps of one leg. Its methods may be called from any goroutine.
type player struct {
	name string

	mu   sync.Mutex
	leg  Leg
	next int // index of the step to use, for AdvancePerRequest
	used int // how often that step was used
	// seen counts the faults played for a request body, for AdvancePerConversation.
	seen map[string]int
	// served numbers the accepted requests, for ids.
	served uint64
}

func newPlayer(name string, leg Leg) *player {
	return &player{name: name, leg: leg, seen: map[string]int{}}
}

// script returns the leg as it is now.
func (p *player) script() Leg {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leg
}

// replace puts another script in the leg's place and starts at its first step. Ids stay unique.
func (p *player) replace(leg Leg) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leg, p.next, p.used, p.seen = leg, 0, 0, map[string]int{}
}

// played is a step chosen for a request.
type played struct {
	step Step
	// number is the step's number from 1, also when its expectation failed; 0 when the script is exhausted.
	number int
	// ordinal numbers the accepted requests of the leg from 1.
	ordinal uint64
}

// play chooses the step for a request and uses it up, atomically. A request that fails the step's expectation, and one
// that finds the script exhausted, use nothing.
func (p *player) play(c conversation, bodyHash string) (played, *rejection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	index, fault := p.position(c, bodyHash)
	if index < 0 {
		return played{}, &rejection{status: 500, kind: kindScriptExhausted, code: "script_exhausted",
			message: fmt.Sprintf("the script of leg %q has no step left for this request; it has %d", p.name, len(p.leg.Steps))}
	}
	step := p.leg.Steps[index]
	if step.Expect != nil {
		if unmet := step.Expect.unmet(c); len(unmet) > 0 {
			return played{number: index + 1}, &rejection{status: 400, kind: kindInvalid, code: "expectation_failed",
				message: fmt.Sprintf("step %d of leg %q expects otherwise: %s", index+1, p.name, join(unmet))}
		}
	}
	switch {
	case p.leg.Advance != AdvancePerConversation:
		p.used++
	case fault:
		p.seen[bodyHash]++
	}
	p.served++
	return played{step: step, number: index + 1, ordinal: p.served}, nil
}

// position returns the index of the step to play, or -1, and whether it is a fault in front of a turn.
func (p *player) position(c conversation, bodyHash string) (index int, fault bool) {
	if p.leg.Advance == AdvancePerConversation {
		return position(p.leg.Steps, c.assistantTurns, p.seen[bodyHash])
	}
	for p.next < len(p.leg.Steps) {
		if times := p.leg.Steps[p.next].Times; times == Forever || p.used < int(times) {
			return p.next, false
		}
		p.next, p.used = p.next+1, 0
	}
	return -1, false
}

// position finds the step for a conversation of so many assistant turns, whose next turn met so many faults before.
func position(steps []Step, turns, faults int) (index int, fault bool) {
	for i, s := range steps {
		forever, times := s.Times == Forever, int(s.Times)
		switch {
		case s.completesTurn():
			if forever || turns < times {
				return i, false
			}
			turns -= times
		case turns == 0:
			if forever || faults < times {
				return i, true
			}
			faults -= times
		}
	}
	return -1, false
}

// completesTurn tells whether the step gives the client a turn that it can keep: a whole stream with text or calls.
func (s Step) completesTurn() bool {
	if !s.isTurn() || s.CutAfterEvents != nil || s.CutAfterBytes != nil || s.InBandError != nil || s.Comments == Forever {
		return false
	}
	switch s.FinishReason {
	case MissingFinishReason, "content_filter", "refusal":
		return false
	}
	return len(s.Calls) > 0 || s.Text != "" || s.Answer != nil && *s.Answer != ""
}
