package loop

import (
	"context"
	"fmt"
	"strings"

	"belay.dev/belay/internal/runtime/budget"
	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/ladder"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/message"
	"belay.dev/belay/internal/runtime/provider"
)

const (
	// raiseFactor is how far an output cap is raised after it cut an answer, where the window has room.
	raiseFactor = 2
	// worthRaising is the least growth of a cap, in percent, for which a paid answer is thrown away and asked for again.
	worthRaising = 25
	// minRoom is the least output, in tokens, for which a request is sent into what a window has left.
	minRoom = 256
)

// Lessons are what the failures of a run have taught about the requests to one leg.
type Lessons struct {
	// Raised tells that the leg's output cap cut an answer and is higher since. RaiseRefused tells that the provider did not
	// take the higher cap; it is not tried again.
	Raised, RaiseRefused bool
	// BareBefore is how many messages of the conversation go to the leg without thinking and credentials, because it
	// refused them in another shape.
	BareBefore int
	// Room is how many tokens of output fit beside the input, and Input how many the input has, where the provider said so
	// in the current turn.
	Room, Input int64
}

// learn draws the lesson of a receipt.
func (s *State) learn(leg string, f *failure.Failure) {
	if f == nil {
		return
	}
	l := s.Lessons[leg]
	switch f.Kind {
	case failure.OutputTruncated:
		l.Raised = true
	case failure.InvalidRequest:
		if f.Sub == failure.SubHistoryShape {
			l.BareBefore = len(s.Messages)
		} else {
			l.RaiseRefused = l.Raised
		}
	case failure.ContextLengthExceeded:
		room := f.Limit - f.Requested
		switch {
		case f.Sub == failure.SubOutputReservation && room >= minRoom:
			l.Room, l.Input = room, f.Requested
		default:
			l.RaiseRefused = l.Raised
		}
	case failure.Network, failure.Timeout, failure.ServerError, failure.StreamTruncated, failure.StreamMalformed, failure.StreamStalled,
		failure.RateLimited, failure.Overloaded, failure.QuotaExhausted, failure.Billing, failure.ModelNotFound, failure.AuthError,
		failure.PermissionDenied, failure.ContentFiltered, failure.EmptyResponse, failure.Unknown, failure.Cancelled:
		return
	}
	if s.Lessons == nil {
		s.Lessons = map[string]Lessons{}
	}
	s.Lessons[leg] = l
}

// teaches tells failures after which a turn goes on with an amended request or not at all.
func teaches(f *failure.Failure) bool {
	if f == nil {
		return false
	}
	return f.Kind == failure.OutputTruncated || f.Kind == failure.InvalidRequest ||
		f.Kind == failure.ContextLengthExceeded && f.Sub == failure.SubOutputReservation && f.Limit-f.Requested >= minRoom
}

// forgetTurn drops the lessons that hold for one turn only.
func (s *State) forgetTurn() {
	for leg, l := range s.Lessons {
		l.Room, l.Input = 0, 0
		s.Lessons[leg] = l
	}
}

// outputCap is the cap of the next answer of a leg whose own cap is base, for a request that needs n.
func (l Lessons) outputCap(leg ladder.Leg, base int64, n ladder.Need) int64 {
	left := leg.ContextWindow - n.InputTokens
	limit := base
	if raised := min(raiseFactor*base, left); l.Raised && !l.RaiseRefused && raised >= base+base*worthRaising/100 {
		limit = raised
	}
	if n.OutputTokens > 0 {
		// The turn makes do with less than the cap, so that it fits.
		limit = min(limit, max(left, n.OutputTokens))
	}
	if l.Room > 0 {
		limit = min(limit, l.Room)
	}
	return limit
}

// amended is the request for a leg as the lessons of the run demand it.
func (r *runner) amended(t *turn, leg ladder.Leg, target provider.Target) (provider.Target, provider.Request) {
	lessons := r.state.Lessons[leg.Name]
	if target.MaxOutputTokens > 0 {
		target.MaxOutputTokens = lessons.outputCap(leg, target.MaxOutputTokens, r.need(t.request))
	}
	request := t.request
	request.Messages = bare(request.Messages, lessons.BareBefore)
	return target, request
}

// bare returns the messages with the first n of them in the shape that every provider takes: text, calls and results, and
// nothing that a provider could tell from its own. The messages themselves are not changed.
func bare(messages []message.Message, n int) []message.Message {
	if n == 0 {
		return messages
	}
	out := make([]message.Message, len(messages))
	copy(out, messages)
	for i := range out[:min(n, len(out))] {
		m := &out[i]
		m.Origin = nil
		blocks := make([]message.Block, 0, len(m.Blocks))
		for _, b := range m.Blocks {
			if b.Kind != message.BlockThinking {
				b.Credentials = nil
				blocks = append(blocks, b)
			}
		}
		m.Blocks = blocks
	}
	return out
}

// cut is the failure of an answer that its output limit cut, if asking again with a higher cap is better than to keep it;
// nil for an answer to keep. An answer without text and calls is never kept: the whole of it went into reasoning.
func (r *runner) cut(t *turn, leg ladder.Leg, answer message.Message, charge budget.Charge, probe bool) *failure.Failure {
	if answer.Stop != message.StopLength {
		return nil
	}
	empty := strings.TrimSpace(answer.Text()) == "" && len(answer.Calls()) == 0
	if !empty && (probe || !r.mayRaise(t, leg, charge)) {
		return nil
	}
	target, _ := r.amended(t, leg, t.ladder.Targets[leg.Name])
	return &failure.Failure{Kind: failure.OutputTruncated, HTTPStatus: 200,
		Message: fmt.Sprintf("the answer was cut by its output limit of %d tokens", target.MaxOutputTokens)}
}

// mayRaise tells that the leg's output cap can be raised, and that the run can pay for the answer again.
func (r *runner) mayRaise(t *turn, leg ladder.Leg, charge budget.Charge) bool {
	target := t.ladder.Targets[leg.Name]
	lessons := r.state.Lessons[leg.Name]
	retry := t.ladder.Retry
	switch most := r.cfg.Limits.MaxModelRetries; {
	case lessons.Raised, lessons.Room > 0, target.MaxOutputTokens <= 0:
		return false
	case t.walk.Attempts()+1 >= retry.MaxAttemptsPerTurn, most != nil && t.walk.Retries()+1 >= *most:
		return false // the cut answer is all that the run can have
	}
	base := target.MaxOutputTokens
	lessons.Raised = true
	target.MaxOutputTokens = lessons.outputCap(leg, base, r.need(t.request))
	if target.MaxOutputTokens <= base {
		return false
	}
	_, request := r.amended(t, leg, target)
	raised, err := r.cfg.Models.Prepare(target, request)
	if err != nil || raised.SHA256 == t.prepared[leg.Name].SHA256 {
		return false // the leg's own parameters set the cap
	}
	books := r.state.Account
	books.Legs = append([]budget.LegCharge(nil), books.Legs...)
	books.Charge(leg.Name, charge, false)
	return books.Affordable(priceOf(leg), raised.InputEstimate, target.MaxOutputTokens) >= target.MaxOutputTokens
}

// amend changes the request as the walk asks, where that is possible.
func (r *runner) amend(ctx context.Context, t *turn, d ladder.Decision) error {
	possible := false
	var err error
	switch d.Amendment {
	case ladder.RereadCredential:
		possible, err = r.reread(ctx, t, d)
	case ladder.RepairRequest, ladder.ReduceContext, ladder.RaiseOutputCap:
		possible = r.rerender(t, d.Leg)
	}
	if err != nil {
		return err
	}
	if !possible {
		t.walk.CannotAmend()
		return nil
	}
	if err := r.journal.write(record.Diagnostic{Turn: t.number, Reason: "RequestAmended",
		Text: fmt.Sprintf("The request to leg %s was amended (%s) after %s.", d.Leg, d.Amendment, d.Kind)}); err != nil {
		return err
	}
	t.walk.Amended(r.need(t.request))
	return nil
}

// rerender renders the request for a leg anew, by the lessons that the run has learned by now. False means that nothing
// has changed: the leg would be sent what it has refused.
func (r *runner) rerender(t *turn, name string) bool {
	refused := ""
	for _, receipt := range r.state.Receipts {
		if receipt.Leg == name {
			refused = receipt.RequestSHA256
		}
	}
	leg, known := t.ladder.Find(name)
	target, connected := t.ladder.Targets[name]
	if refused == "" || !known || !connected {
		return false
	}
	delete(t.prepared, name)
	target, request := r.amended(t, leg, target)
	prepared, err := r.prepare(t, leg.Name, target, request)
	return err == nil && prepared.SHA256 != refused
}

// shares says what a conversation that fits nowhere is made of: nothing in it can be left out.
func (r *runner) shares(t *turn) string {
	messages := t.request.Messages
	newest := len(messages)
	for newest > 1 && messages[newest-1].Role != message.RoleAssistant {
		newest--
	}
	newest = max(newest-1, 1)
	var tools int64
	for _, tool := range t.request.Tools {
		tools += int64(len(tool.Name) + len(tool.Description) + len(tool.InputSchema))
	}
	text := fmt.Sprintf("It holds about %d tokens of system prompt, %d of tools, %d of task",
		tokens(int64(len(t.request.System))), tokens(tools), tokens(contentBytes(messages[:1])))
	if newest < len(messages) {
		text += fmt.Sprintf(", %d of earlier turns and %d of the newest turn and its results",
			tokens(contentBytes(messages[1:newest])), tokens(contentBytes(messages[newest:])))
	}
	return text + ", none of which can be left out"
}
