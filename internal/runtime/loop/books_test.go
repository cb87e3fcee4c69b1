package loop_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"belay.dev/belay/internal/chaos"
	"belay.dev/belay/internal/runtime/budget"
	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/loop"
)

// faults are what a leg may do instead of answering, each with a bill that the client is told or not.
var faults = []string{
	`{status: 503}`,
	`{status: 429, retryAfter: {milliseconds: 1500}}`,
	`{status: 429, error: {type: insufficient_quota, code: insufficient_quota}, retryAfter: {milliseconds: 60000}}`,
	`{status: 500, body: "<html>", contentType: text/html}`,
	`{reset: {}}`,
	`{answer: "broken after some words of text", cutAfterEvents: 1}`,
	`{answer: "broken after some words of text", cutAfterEvents: 4}`,
	`{answer: "broken after some words of text", cutAfterEvents: 4, cut: Reset}`,
	`{thinking: "long and hidden and paid for", answer: "broken", cutAfterEvents: 5, cut: Abort}`,
	`{answer: "words before an overload", cutAfterEvents: 5, inBandError: {type: overloaded_error, message: x}}`,
	`{calls: [{name: act, arguments: {count: 7}}], cutAfterEvents: 3}`,
	`{answer: "cut by its limit", finishReason: length, usage: {input: 60, output: 4096}}`,
	`{answer: "", usage: {input: 50, output: 3}}`,
}

// randomScript is three legs, one of another dialect, that fail at random and answer now and then.
func randomScript(rng *rand.Rand) string {
	steps := func() string {
		var out []string
		for range 40 {
			switch rng.IntN(5) {
			case 0:
				out = append(out, fmt.Sprintf(`{text: "I look.", calls: [{name: look, arguments: {count: %d}}], usage: {input: %d, output: %d, cached: %d}}`,
					rng.IntN(9), 100+rng.IntN(100), 1+rng.IntN(50), rng.IntN(100)))
			case 1:
				out = append(out, `{thinking: "hm", calls: [{name: act, arguments: {count: 1}}]}`)
			default:
				out = append(out, faults[rng.IntN(len(faults))])
			}
		}
		return strings.Join(out, ", ")
	}
	return fmt.Sprintf("legs: {a: {vendor: Compatible, steps: [%s]}, b: {dialect: AnthropicMessages, steps: [%s]}, c: {vendor: Compatible, steps: [%s]}}",
		steps(), steps(), steps())
}

var errKilled = errors.New("killed")

// mortal is a ledger whose writer is killed at some record: before it is written, or right after.
type mortal struct {
	loop.Ledger
	left int
	// late kills after the write.
	late bool
}

func (m *mortal) AppendBatch(records []ledger.Record) ([]ledger.Pos, error) {
	if m.left -= len(records); m.left > 0 {
		return m.Ledger.AppendBatch(records)
	}
	if m.late {
		if _, err := m.Ledger.AppendBatch(records); err != nil {
			return nil, err
		}
	}
	return nil, errKilled
}

// audit adds up the books from the records alone: each receipt, and what was reserved for a request without one.
func audit(t *testing.T, dir string) map[string]budget.LegCharge {
	t.Helper()
	sums := map[string]budget.LegCharge{}
	add := func(leg string, c budget.Charge, failed bool) {
		l := sums[leg]
		l.Leg = leg
		l.Requests++
		if failed {
			l.Failed++
		}
		l.Charge.CostMicroUSD += c.CostMicroUSD
		l.Charge.Usage = l.Charge.Usage.Add(c.Usage)
		sums[leg] = l
	}
	var open *record.LLMRequest
	for e, err := range ledger.Replay(nil, dir) {
		if err != nil {
			t.Fatal(err)
		}
		payload, err := record.Decode(e.Type, e.Data, nil)
		if err != nil {
			t.Fatal(err)
		}
		switch p := payload.(type) {
		case *record.LLMRequest:
			open = p
		case *record.LLMAttempt:
			add(p.Leg, p.Charge, p.Failure != nil)
			open = nil
		case *record.EpochStart:
			if open != nil {
				add(open.Leg, open.Reserved, true)
				open = nil
			}
		}
	}
	if open != nil {
		t.Fatalf("request %d has neither a receipt nor a later epoch", open.Attempt)
	}
	return sums
}

// TestTheBooksAreNeverBelowTheBill lets three legs fail at random and kills the runner at random records. In the end the
// books equal the receipts, and what the providers billed: to the token where a leg reported all of its usage, and
// otherwise flagged as an estimate and not below.
func TestTheBooksAreNeverBelowTheBill(t *testing.T) {
	exact, estimated, kills := 0, 0, 0
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 5))
		s := newScene(t, randomScript(rng), "a", "b", "c")
		s.ladder.Waits.ParkAfter = time.Hour
		s.contract.Limits.MaxTurns = 12
		s.random = rng.Float64
		if seed%3 > 0 {
			s.disk = func(l loop.Ledger) loop.Ledger {
				return &mortal{Ledger: l, left: 3 + rng.IntN(60), late: rng.IntN(2) == 0}
			}
		}
		var end loop.End
		for {
			var err error
			if end, err = s.run(); err == nil && end.Finished != nil {
				break
			} else if err != nil && !errors.Is(err, errKilled) {
				t.Fatalf("seed %d: %v", seed, err)
			} else if err == nil {
				t.Fatalf("seed %d: ended as %+v", seed, end)
			}
			kills++
			if kills > 5000 {
				t.Fatalf("seed %d: the run gets nowhere", seed)
			}
		}
		end, err := s.run() // the books as the ledger alone has them
		if err != nil {
			t.Fatal(err)
		}
		// A request is on record before it is sent, and not billed before it arrives.
		if s.disk == nil {
			s.compareEach(seed)
		}
		s.compare(seed, end.State.Account, s.providers.Bill(), &exact, &estimated)
	}
	t.Logf("%d legs with exact books, %d with estimates, %d kills", exact, estimated, kills)
	if exact == 0 || estimated == 0 || kills == 0 {
		t.Errorf("nothing was tested of one sort: %d exact, %d estimated, %d kills", exact, estimated, kills)
	}
}

func (s *scene) compare(seed uint64, books budget.Account, bills map[string]chaos.Bill, exact, estimated *int) {
	s.t.Helper()
	sums := audit(s.t, s.dir)
	var total budget.Charge
	for _, l := range books.Legs {
		if sums[l.Leg] != l {
			s.t.Errorf("seed %d: the books of %s say %+v, its receipts %+v", seed, l.Leg, l, sums[l.Leg])
		}
		total.Usage = total.Usage.Add(l.Charge.Usage)
		total.CostMicroUSD += l.Charge.CostMicroUSD
		bill := bills[l.Leg]
		u, b := l.Charge.Usage, bill.Usage
		// 1 USD for a million tokens of input, cached or not, and 2 USD for output; receipts are rounded up one by one.
		if cost := b.Input + 2*b.Output; l.Charge.CostMicroUSD < cost {
			s.t.Errorf("seed %d: leg %s cost %d micro-USD in the books, %d on the bill", seed, l.Leg, l.Charge.CostMicroUSD, cost)
		}
		if u.Estimated {
			*estimated++
			if u.InputTokens < b.Input || u.OutputTokens < b.Output {
				s.t.Errorf("seed %d: leg %s has books of %+v, below its bill of %+v", seed, l.Leg, u, b)
			}
			continue
		}
		*exact++
		if u.InputTokens != b.Input || u.OutputTokens != b.Output || u.CachedInputTokens != b.Cached || l.Requests != bill.Requests {
			s.t.Errorf("seed %d: leg %s has books of %d requests and %+v, a bill of %d and %+v", seed, l.Leg, l.Requests, u, bill.Requests, b)
		}
	}
	if total != books.Total {
		s.t.Errorf("seed %d: the legs add up to %+v, the total is %+v", seed, total, books.Total)
	}
	if len(sums) != len(books.Legs) {
		s.t.Errorf("seed %d: %d legs in the receipts, %d in the books", seed, len(sums), len(books.Legs))
	}
}

// compareEach compares the receipts of a run that was never killed with the requests that arrived, one by one.
func (s *scene) compareEach(seed uint64) {
	s.t.Helper()
	arrived := map[string][]chaos.Request{}
	for _, r := range s.providers.Requests() {
		arrived[r.Leg] = append(arrived[r.Leg], r)
	}
	for e, err := range ledger.Replay(nil, s.dir) {
		if err != nil {
			s.t.Fatal(err)
		}
		payload, err := record.Decode(e.Type, e.Data, nil)
		if err != nil {
			s.t.Fatal(err)
		}
		p, ok := payload.(*record.LLMAttempt)
		if !ok {
			continue
		}
		if len(arrived[p.Leg]) == 0 {
			s.t.Fatalf("seed %d: receipt %d of leg %s is for a request that never arrived", seed, p.Attempt, p.Leg)
		}
		billed := arrived[p.Leg][0].Billed
		arrived[p.Leg] = arrived[p.Leg][1:]
		u := p.Charge.Usage
		want := budget.Usage{InputTokens: billed.Input, OutputTokens: billed.Output, CachedInputTokens: billed.Cached}
		if u.Estimated {
			if u.InputTokens < want.InputTokens || u.OutputTokens < want.OutputTokens {
				s.t.Errorf("seed %d: receipt %d of leg %s estimates %+v, the bill is %+v", seed, p.Attempt, p.Leg, p.Charge.Usage, billed)
			}
			continue
		}
		if u != want {
			s.t.Errorf("seed %d: receipt %d of leg %s says %+v, the bill %+v", seed, p.Attempt, p.Leg, u, billed)
		}
	}
	for leg, rest := range arrived {
		if len(rest) > 0 {
			s.t.Errorf("seed %d: %d requests to leg %s have no receipt", seed, len(rest), leg)
		}
	}
}
