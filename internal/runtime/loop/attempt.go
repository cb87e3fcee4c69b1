package loop

import (
	"context"
	"fmt"

	"belay.dev/belay/internal/runtime/breaker"
	"belay.dev/belay/internal/runtime/budget"
	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/ladder"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/message"
	"belay.dev/belay/internal/runtime/provider"
)

// attempt sends one request to the leg that the walk chose, and writes down what came of it. done tells that the turn is
// committed, or the run over.
func (r *runner) attempt(ctx context.Context, t *turn, d ladder.Decision) (done bool, err error) {
	leg, known := t.ladder.Find(d.Leg)
	target, connected := t.ladder.Targets[d.Leg]
	if !known || !connected {
		return false, fmt.Errorf("leg %s of ladder %s has no provider to send to", d.Leg, t.ladder.Name)
	}
	if !t.policy.Allows(leg) {
		// The plan has left the leg out, so that this is a fault of ours. A request sent by mistake cannot be taken back.
		return false, fmt.Errorf("leg %s was about to be asked although the run's policy forbids it", d.Leg)
	}
	target, request := r.amended(t, leg, target)
	prepared, err := r.prepare(t, d.Leg, target, request)
	if err != nil {
		return false, r.refused(t, d, err)
	}
	books := r.state.Account
	reserved, exceeded := books.Reserve(d.Leg, priceOf(leg), prepared.InputEstimate, target.MaxOutputTokens)
	if exceeded != nil {
		return true, r.finish(record.RunEnd{Turn: t.number, Reason: exceeded.Reason, Message: sentence(exceeded.Message), Text: r.state.finalText()})
	}
	permit, granted := r.breakers.Begin(d.Route, r.cfg.Clock.Now())
	if !granted {
		return false, nil // health changed since the decision: the walk decides again
	}
	number := r.state.Attempts + 1
	records := []any{}
	if f := d.Fallback; f != nil {
		records = append(records, record.RouteFallback{Turn: t.number, From: f.From, To: f.To, Kind: f.Kind, Reason: string(f.Reason)})
	}
	records = append(records, record.LLMRequest{
		Turn: t.number, Attempt: number, Leg: d.Leg, Route: d.Route, FailoverFrom: d.FailoverFrom, Try: d.Try, RequestSHA256: prepared.SHA256,
		BodyBytes: int64(prepared.BodyBytes), Reserved: reserved, Probe: permit.Probe,
	})
	if err := r.journal.write(records...); err != nil {
		return false, err
	}
	if err := r.journal.sync(); err != nil {
		return false, err
	}
	out := r.cfg.Models.Do(ctx, target, prepared, provider.Try{Number: d.Try, Probe: permit.Probe})
	return r.receive(ctx, t, d, leg, permit, number, out)
}

// prepare renders the request for a leg once; every try sends the same bytes, until the request is amended.
func (r *runner) prepare(t *turn, leg string, target provider.Target, request provider.Request) (provider.Prepared, error) {
	if p, ok := t.prepared[leg]; ok {
		return p, nil
	}
	p, err := r.cfg.Models.Prepare(target, request)
	if err == nil {
		t.prepared[leg] = p
	}
	return p, err
}

// refused tells the walk about a leg that could not even be asked. Nothing was sent, so nothing is charged and the
// route's health says nothing.
func (r *runner) refused(t *turn, d ladder.Decision, cause error) error {
	out := r.cfg.Models.Refused(cause)
	if out.Failure == nil {
		return fmt.Errorf("prepare the request for leg %s: %w", d.Leg, cause)
	}
	if err := r.journal.write(record.Diagnostic{Turn: t.number, Reason: "LegRefused", Text: fmt.Sprintf("Leg %s was not asked: %s", d.Leg, out.Failure.Message)}); err != nil {
		return err
	}
	t.walk.Record(d.Leg, ladder.Result{Failure: out.Failure, Probe: d.Probe}, r.cfg.Clock.Now())
	return nil
}

// receive writes the receipt of a request and, if it was answered, the answer: the commit point of the turn.
func (r *runner) receive(ctx context.Context, t *turn, d ladder.Decision, leg ladder.Leg, permit breaker.Permit, number int, out provider.Attempt) (bool, error) {
	now := r.cfg.Clock.Now()
	charge := budget.Charge{Usage: out.Usage, CostMicroUSD: priceOf(leg).Cost(out.Usage)}
	if out.Answer != nil {
		if out.Failure = r.cut(t, leg, *out.Answer, charge, permit.Probe); out.Failure != nil {
			out.Partial, out.Answer = out.Answer.Text(), nil
		}
	}
	receipt := record.LLMAttempt{
		Turn: t.number, Attempt: number, Leg: d.Leg, Route: d.Route, FailoverFrom: d.FailoverFrom, CircuitState: string(permit.Position),
		Failure: out.Failure, FirstByteMilliseconds: out.FirstByte.Milliseconds(), DurationMilliseconds: out.Duration.Milliseconds(),
		Charge: charge, ResponseID: out.ResponseID, Warnings: out.Warnings, Probe: permit.Probe,
	}
	if blamesCredential(out.Failure) {
		receipt.Credential = fingerprint(r.state.RunUID, t.ladder.Targets[d.Leg])
	}
	if out.Partial != "" {
		blob, err := r.journal.blob([]byte(out.Partial))
		if err != nil {
			return false, err
		}
		receipt.Partial = &blob
	}
	records := []any{receipt}
	if out.Answer != nil {
		records = append(records, record.LLMResponse{Turn: t.number, Attempt: number, Leg: d.Leg, Message: r.mint(*out.Answer, t.number, leg)})
	}
	changes := r.breakers.Finish(permit, breaker.ResultOf(out.Failure), now)
	if err := r.journal.write(append(records, transitionRecords(t.ladder.Ladder, changes)...)...); err != nil {
		return false, err
	}
	if out.Answer != nil {
		return true, nil
	}
	if err := context.Cause(ctx); err != nil && out.Failure.Kind == failure.Cancelled {
		return false, err
	}
	result := ladder.Result{Failure: out.Failure, Paid: paid(charge), Probe: permit.Probe}
	for _, effect := range t.walk.Record(d.Leg, result, now) {
		if err := r.journal.write(record.Diagnostic{Turn: t.number, Reason: string(effect), Text: fmt.Sprintf("Leg %s: %s", d.Leg, out.Failure.Message)}); err != nil {
			return false, err
		}
	}
	return false, nil
}

// paid tells that tokens were charged for an answer that did not come.
func paid(c budget.Charge) bool { return c.Usage.OutputTokens > 0 }

func priceOf(l ladder.Leg) budget.Price {
	if l.Price == nil || l.Billing == ladder.Included {
		return budget.Price{}
	}
	return *l.Price
}

// mint gives each call of an answer its id, unique in the run, and says who issued the answer.
func (r *runner) mint(answer message.Message, turn int, leg ladder.Leg) message.Message {
	blocks := make([]message.Block, len(answer.Blocks))
	copy(blocks, answer.Blocks)
	taken := map[string]bool{}
	index := 0
	for i, b := range blocks {
		if b.Call == nil {
			continue
		}
		call := *b.Call
		for try := 0; ; try++ {
			call.ID = message.CallID(r.state.RunUID, turn, index, try)
			if !r.state.callIDs[call.ID] && !taken[call.ID] {
				break
			}
		}
		taken[call.ID] = true
		blocks[i].Call = &call
		index++
	}
	answer.Blocks = blocks
	if answer.Origin == nil {
		answer.Origin = &message.Scope{Route: string(leg.Route.Name()), Dialect: string(leg.Route.Dialect), Model: leg.Route.Model}
	}
	return answer
}

// lost is how a request counts whose end was never seen: it was sent, and nothing more is known.
func lost() *failure.Failure {
	return &failure.Failure{Kind: failure.Unknown, Message: "the runner was restarted while the request was under way"}
}
