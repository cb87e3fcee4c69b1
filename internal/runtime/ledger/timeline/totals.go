package timeline

import (
	"fmt"
	"slices"

	"belay.dev/belay/internal/runtime/budget"
)

// totals is what the summary counts.
type totals struct {
	epochs, turns, requests, failures, lost int
	fallbacks, waits, breakers, parks       int
	calls, failedCalls, inDoubt             int
	ended                                   string
	legs                                    []legTotal
}

type legTotal struct {
	leg   string
	usage budget.Usage
	cost  int64
}

func (t *totals) charge(leg string, c budget.Charge) {
	i := slices.IndexFunc(t.legs, func(l legTotal) bool { return l.leg == leg })
	if i < 0 {
		i = len(t.legs)
		t.legs = append(t.legs, legTotal{leg: leg})
	}
	t.legs[i].usage = t.legs[i].usage.Add(c.Usage)
	t.legs[i].cost += c.CostMicroUSD
}

// summary ends a timeline.
func (n *narrator) summary() error {
	t := n.total
	if t.epochs == 0 && t.requests == 0 {
		return n.err
	}
	state := "not ended"
	if t.ended != "" {
		state = t.ended
	}
	text := fmt.Sprintf("%s: %s in %s; %s, %d failed", state, count(t.turns, "turn"), count(t.epochs, "epoch"), count(t.requests, "request"), t.failures)
	for _, part := range []struct {
		n    int
		text string
	}{
		{t.lost, fmt.Sprintf(", %d lost", t.lost)},
		{t.fallbacks, "; " + count(t.fallbacks, "fallback")},
		{t.waits, "; " + count(t.waits, "wait")},
		{t.parks, "; parked " + count(t.parks, "time")},
		{t.calls, "; " + count(t.calls, "call")},
		{t.failedCalls, fmt.Sprintf(", %d failed", t.failedCalls)},
		{t.inDoubt, fmt.Sprintf(", %d in doubt", t.inDoubt)},
		{len(n.open), fmt.Sprintf(", %d unanswered", len(n.open))},
	} {
		if part.n > 0 {
			text += part.text
		}
	}
	var cost, tokens int64
	for _, l := range t.legs {
		cost += l.cost
		tokens += l.usage.Tokens()
	}
	n.print("")
	for _, line := range wrap(text, n.opts.Width, n.opts.Width) {
		n.print(line)
	}
	n.print(fmt.Sprintf("cost %s, %d tokens", "$"+budget.Dollars(cost), tokens))
	for _, l := range t.legs {
		n.print(excerpt(fmt.Sprintf("%s: %s, %d in + %d out tokens", l.leg, "$"+budget.Dollars(l.cost), l.usage.InputTokens, l.usage.OutputTokens), n.opts.Width))
	}
	return n.err
}
