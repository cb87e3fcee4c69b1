package budget

import (
	"fmt"
	"math/bits"
	"slices"
)

// Limits bound a run. 0 sets no limit.
type Limits struct {
	// MaxTurns bounds the committed answers. The API's default is 200.
	MaxTurns int
	// MaxTokens bounds input and output tokens together.
	MaxTokens int64
	// MaxCostMicroUSD bounds the cost.
	MaxCostMicroUSD int64
}

// Charge is tokens and what they cost.
type Charge struct {
	Usage        Usage `json:"usage"`
	CostMicroUSD int64 `json:"costMicroUSD"`
}

func (c Charge) add(o Charge) Charge {
	return Charge{Usage: c.Usage.Add(o.Usage), CostMicroUSD: sum(c.CostMicroUSD, o.CostMicroUSD)}
}

// LegCharge is what one leg was asked and what it charged.
type LegCharge struct {
	Leg string `json:"leg"`
	// Requests are all requests to the leg, and Failed those of them without an answer.
	Requests int    `json:"requests"`
	Failed   int    `json:"failed,omitempty"`
	Charge   Charge `json:"charge"`
}

// Exceeded is a limit that forbids what comes next.
type Exceeded struct {
	// Reason is MaxTurnsReached or BudgetExceeded.
	Reason string
	// Limit names the field of the run that sets the limit, for example limits.maxTurns.
	Limit string
	// Message says for people what was spent and what to raise.
	Message string
}

// The reasons of Exceeded.
const (
	ReasonMaxTurnsReached = "MaxTurnsReached"
	ReasonBudgetExceeded  = "BudgetExceeded"
)

// Account is the books of one run. The zero value is an account without limits and without spending. It is rebuilt from
// the ledger by repeating its calls in order: Reserve for each request, Settle or Lose for its end, Turn for each
// committed answer.
type Account struct {
	Limits Limits
	// Turns are the committed answers.
	Turns int
	// Total is all that was charged, and Legs the same by leg, in the order of their first charge.
	Total Charge
	Legs  []LegCharge
	// Open is what is reserved for the request under way; nil if none is.
	Open *Reservation
}

// Reservation is the most that a request under way can charge.
type Reservation struct {
	Leg    string
	Charge Charge
}

// MayTurn tells whether another turn may begin.
func (a *Account) MayTurn() *Exceeded {
	if a.Limits.MaxTurns > 0 && a.Turns >= a.Limits.MaxTurns {
		return &Exceeded{
			Reason: ReasonMaxTurnsReached,
			Limit:  "limits.maxTurns",
			Message: fmt.Sprintf("the run has used all %d turns of limits.maxTurns without finishing; "+
				"raise limits.maxTurns, or look in the ledger for what it keeps doing", a.Limits.MaxTurns),
		}
	}
	return a.spent()
}

func (a *Account) spent() *Exceeded {
	if a.Limits.MaxTokens > 0 && a.Total.Usage.Tokens() >= a.Limits.MaxTokens {
		return &Exceeded{
			Reason: ReasonBudgetExceeded,
			Limit:  "limits.maxTokens",
			Message: fmt.Sprintf("the run has used %d tokens of the %d of limits.maxTokens; raise the limit to go on",
				a.Total.Usage.Tokens(), a.Limits.MaxTokens),
		}
	}
	if a.Limits.MaxCostMicroUSD > 0 && a.Total.CostMicroUSD >= a.Limits.MaxCostMicroUSD {
		return &Exceeded{
			Reason: ReasonBudgetExceeded,
			Limit:  "limits.maxCostMicroUSD",
			Message: fmt.Sprintf("the run has cost %s of the %s of limits.maxCostMicroUSD; raise the limit to go on",
				USD(a.Total.CostMicroUSD), USD(a.Limits.MaxCostMicroUSD)),
		}
	}
	return nil
}

// Reserve sets aside the most that a request can charge, or says which limit it could exceed. A request that was reserved
// before and never settled is charged in full first: nothing is known of it but that it was sent.
func (a *Account) Reserve(leg string, p Price, inputTokens, maxOutputTokens int64) (Charge, *Exceeded) {
	a.Lose()
	c := Charge{
		Usage:        Usage{InputTokens: inputTokens, OutputTokens: maxOutputTokens, Estimated: true},
		CostMicroUSD: p.WorstCase(inputTokens, maxOutputTokens),
	}
	if used, limit := a.Total.Usage.Tokens(), a.Limits.MaxTokens; limit > 0 && sum(used, c.Usage.Tokens()) > limit {
		return Charge{}, &Exceeded{
			Reason: ReasonBudgetExceeded,
			Limit:  "limits.maxTokens",
			Message: fmt.Sprintf("the next request to leg %q may use up to %d tokens, but only %d of the %d of limits.maxTokens are left; "+
				"raise the limit to go on", leg, c.Usage.Tokens(), atLeastZero(limit-used), limit),
		}
	}
	if spent, limit := a.Total.CostMicroUSD, a.Limits.MaxCostMicroUSD; limit > 0 && sum(spent, c.CostMicroUSD) > limit {
		return Charge{}, &Exceeded{
			Reason: ReasonBudgetExceeded,
			Limit:  "limits.maxCostMicroUSD",
			Message: fmt.Sprintf("the next request to leg %q may cost up to %s, but only %s of the %s of limits.maxCostMicroUSD are left; "+
				"raise the limit to go on", leg, USD(c.CostMicroUSD), USD(atLeastZero(limit-spent)), USD(limit)),
		}
	}
	a.Open = &Reservation{Leg: leg, Charge: c}
	return c, nil
}

// Affordable returns the largest answer, in tokens and at most want, that Reserve would grant; 0 if none is.
func (a *Account) Affordable(p Price, inputTokens, want int64) int64 {
	n := atLeastZero(want)
	if limit := a.Limits.MaxTokens; limit > 0 {
		n = min(n, atLeastZero(limit-sum(a.Total.Usage.Tokens(), inputTokens)))
	}
	if limit := a.Limits.MaxCostMicroUSD; limit > 0 && p.OutputMicroUSDPerMTok > 0 {
		left := atLeastZero(limit - sum(a.Total.CostMicroUSD, p.WorstCase(inputTokens, 0)))
		// The input's cost is rounded up by itself, so that this is at most one token less than the exact bound.
		hi, lo := bits.Mul64(uint64(left), tokensPerPrice)
		if price := uint64(p.OutputMicroUSDPerMTok); hi < price {
			if q, _ := bits.Div64(hi, lo, price); q < uint64(n) {
				n = int64(q)
			}
		}
	} else if limit > 0 && sum(a.Total.CostMicroUSD, p.WorstCase(inputTokens, 0)) > limit {
		return 0
	}
	return n
}

// Settle replaces the reservation by what the request charged, at the price of the leg that served it. answered tells
// whether it brought a complete answer.
func (a *Account) Settle(leg string, p Price, u Usage, answered bool) Charge {
	c := Charge{Usage: u, CostMicroUSD: p.Cost(u)}
	a.Charge(leg, c, answered)
	return c
}

// Charge settles the request under way with a charge that is known already, for example from a receipt in the ledger.
func (a *Account) Charge(leg string, c Charge, answered bool) {
	a.Open = nil
	i := slices.IndexFunc(a.Legs, func(l LegCharge) bool { return l.Leg == leg })
	if i < 0 {
		a.Legs = append(a.Legs, LegCharge{Leg: leg})
		i = len(a.Legs) - 1
	}
	l := &a.Legs[i]
	l.Requests++
	if !answered {
		l.Failed++
	}
	l.Charge = l.Charge.add(c)
	a.Total = a.Total.add(c)
}

// Lose charges the whole reservation of a request whose end was never seen. Without one it does nothing.
func (a *Account) Lose() {
	if a.Open != nil {
		a.Charge(a.Open.Leg, a.Open.Charge, false)
	}
}

// Turn counts a committed answer.
func (a *Account) Turn() { a.Turns++ }
