package loop

import (
	"fmt"
	"slices"
	"time"

	"belay.dev/belay/internal/runtime/budget"
	"belay.dev/belay/internal/runtime/guard"
	"belay.dev/belay/internal/runtime/ladder"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/message"
	"belay.dev/belay/internal/runtime/route"
	"belay.dev/belay/internal/runtime/tools"
)

// State is everything a run knows about itself. It is the fold of the ledger's records and of nothing else: the loop
// applies each record to it right after the record was written, and a new epoch arrives at the same state by applying
// the records that it finds.
type State struct {
	Started  bool
	RunUID   string
	Contract record.Contract
	Hash     string // of the contract
	Ladder   record.Ladder

	// Epoch is the newest epoch that started; EpochPod is its pod's UID.
	Epoch    uint64
	EpochPod string
	// Epochs counts the epochs that started; Replayed sums up the committed turns that each of them found and did not ask
	// for again.
	Epochs   int
	Replayed int

	// Turn is the newest turn that a request was made for, from 1; Committed is the newest with an answer.
	Turn      int
	Committed int
	Messages  []message.Message
	// Pending are the calls of the committed turn that have no result yet, in order.
	Pending []PendingCall
	// LastLeg served the newest committed turn.
	LastLeg string
	// Asked is the leg of the newest request; AskedFor is the leg that it stands in for, empty for the plan's first.
	Asked    string
	AskedFor string

	// Attempts is the number of the newest request; Open is it while it has no receipt.
	Attempts int
	Open     *OpenRequest
	// Receipts are the attempts of the current, uncommitted turn, in order.
	Receipts []Receipt
	// All receipts of the run feed the breakers of a new epoch.
	History []Receipt
	// Rewalks are the further walks of the current turn.
	Rewalks int
	// Retries counts requests after the first of each turn and probes, over the whole run; RetriesBefore is the same
	// before the current turn.
	Retries       int
	RetriesBefore int
	// Measured is the size of the conversation as the last answer reported it.
	Measured Measured

	// Account is the books of the run; its limits are those of the present epoch.
	Account budget.Account

	// Lessons are what failures have taught about the requests to each leg, by its name.
	Lessons map[string]Lessons
	// Rejected are the fingerprints of the credential values that a route's provider has rejected.
	Rejected map[route.Name]string

	// Parks counts parks for routes since the last committed turn, CredentialParks those for a credential; Parked is set
	// while the newest epoch ended in a park.
	Parks           int
	CredentialParks int
	Parked          *record.RunPark
	// Active is pod time: the sum over the epochs of the time from their first to their newest record.
	Active     time.Duration
	epochSince time.Time
	newest     time.Time

	// LengthStops counts answers of the current chain that the output limit cut.
	LengthStops int
	// ToolTurns judges the newest turn that had calls.
	LastToolTurn ToolTurn

	// Skipped are the legs that the newest plan left out.
	Skipped []record.Skipped

	// Guard watches the run for loops and for calls that the model does not mend.
	Guard *guard.State

	End *record.RunEnd

	callIDs map[string]bool
	results []message.Block
}

// OpenRequest is a request whose outcome is not known.
type OpenRequest struct {
	record.LLMRequest
	At time.Time
}

// Receipt is a finished attempt and when it ended.
type Receipt struct {
	record.LLMAttempt
	At time.Time
	// Rewalks are the further walks that had begun before it.
	Rewalks int
	// RequestSHA256 identifies what was sent.
	RequestSHA256 string
}

// Measured is how many tokens the first Messages of the conversation take.
type Measured struct {
	Tokens   int64
	Messages int
}

// PendingCall is a call that waits for its result, with the starts that are on record for it.
type PendingCall struct {
	message.Call
	Turn   int
	Starts []Start
}

// Start is one dispatch of a call.
type Start struct {
	record.ToolStart
	Epoch uint64
	At    time.Time
}

// ToolTurn is what the results of a turn say, for the outcome of the run.
type ToolTurn struct {
	Turn        int
	Succeeded   int
	Correctable int
}

// Entry is one decoded record.
type Entry struct {
	Seq     uint64
	Epoch   uint64
	At      time.Time
	Payload any
}

// Apply folds one record into the state. An error means that the ledger tells a story that cannot be: such a ledger is
// damaged in its content, although its checksums are right.
func (s *State) Apply(e Entry) error {
	s.clock(e)
	switch p := e.Payload.(type) {
	case *record.RunStart:
		return s.runStart(p)
	case *record.EpochStart:
		s.epochStart(e, p)
	case *record.TurnPlan:
		s.Skipped = p.Skipped
	case *record.LLMRequest:
		s.request(e, p)
	case *record.LLMAttempt:
		return s.receipt(e, p)
	case *record.RetryScheduled:
		if p.Reason == string(ladder.WaitRewalk) {
			s.Rewalks++
		}
	case *record.LLMResponse:
		return s.response(p)
	case *record.ToolStart:
		return s.toolStart(e, p)
	case *record.ToolResult:
		return s.toolResult(e, p)
	case *record.Control:
		s.Guard.Apply(guard.Noted{Kind: guard.NoteKind(p.Kind)})
		s.Messages = append(s.Messages, message.Message{
			Role:   message.RoleControl,
			Blocks: []message.Block{{Kind: message.BlockText, Text: p.Text}},
		})
	case *record.RunPark:
		s.Parked = p
		if p.Reason == string(ladder.ParkCredential) {
			s.CredentialParks++
		} else {
			s.Parks++
		}
	case *record.RunEnd:
		s.End = p
	}
	return nil
}

// clock adds up pod time. The wall clock is a label: a step back never makes time negative.
func (s *State) clock(e Entry) {
	if e.Payload == nil {
		return
	}
	if _, ok := e.Payload.(*record.EpochStart); ok || s.epochSince.IsZero() {
		s.epochSince, s.newest = e.At, e.At
		return
	}
	if d := e.At.Sub(s.newest); d > 0 {
		s.Active += d
		s.newest = e.At
	}
}

func (s *State) runStart(p *record.RunStart) error {
	if s.Started {
		return fmt.Errorf("a second %s record", record.TypeRunStart)
	}
	s.Started = true
	s.RunUID, s.Contract, s.Hash, s.Ladder = p.RunUID, p.Contract, p.ContractSHA256, p.Ladder
	s.Messages = []message.Message{{
		Role:   message.RoleUser,
		Blocks: []message.Block{{Kind: message.BlockText, Text: p.Contract.Task}},
	}}
	s.callIDs = map[string]bool{}
	s.Guard = guard.New(nil) // the contract declares no polling tools
	return nil
}

func (s *State) epochStart(e Entry, p *record.EpochStart) {
	s.Epoch, s.EpochPod = e.Epoch, p.PodUID
	s.Epochs++
	s.Replayed += p.ReplayedTurns
	s.Parked = nil
	// A request of the epoch before whose receipt never came was lost in a crash. What was reserved for it is charged.
	s.Account.Lose()
	if s.Open != nil {
		s.keep(Receipt{At: e.At, RequestSHA256: s.Open.RequestSHA256, LLMAttempt: record.LLMAttempt{
			Turn: s.Open.Turn, Attempt: s.Open.Attempt, Leg: s.Open.Leg, Route: s.Open.Route, Probe: s.Open.Probe, Failure: lost(),
		}})
		s.Open = nil
	}
}

func (s *State) request(e Entry, p *record.LLMRequest) {
	if p.Probe || slices.ContainsFunc(s.Receipts, func(r Receipt) bool { return !interrupted(r.Failure) }) {
		s.Retries++
	}
	s.Turn, s.Attempts = p.Turn, p.Attempt
	s.Asked, s.AskedFor = p.Leg, p.FailoverFrom
	s.Open = &OpenRequest{LLMRequest: *p, At: e.At}
	s.Account.Lose()
	s.Account.Open = &budget.Reservation{Leg: p.Leg, Charge: p.Reserved}
}

func (s *State) receipt(e Entry, p *record.LLMAttempt) error {
	if s.Open == nil || s.Open.Attempt != p.Attempt {
		return fmt.Errorf("a receipt for attempt %d, which is not open", p.Attempt)
	}
	s.Account.Charge(p.Leg, p.Charge, p.Failure == nil)
	s.keep(Receipt{LLMAttempt: *p, At: e.At, RequestSHA256: s.Open.RequestSHA256})
	s.Open = nil
	s.judgeCredential(p)
	s.learn(p.Leg, p.Failure)
	return nil
}

func (s *State) keep(r Receipt) {
	r.Rewalks = s.Rewalks
	s.Receipts = append(s.Receipts, r)
	s.History = append(s.History, r)
}

func (s *State) response(p *record.LLMResponse) error {
	if len(s.Pending) > 0 {
		return fmt.Errorf("turn %d is answered while turn %d has %d calls without a result", p.Turn, s.Committed, len(s.Pending))
	}
	if p.Turn != s.Turn || p.Turn == s.Committed {
		return fmt.Errorf("turn %d is answered out of order: the newest request is of turn %d, the newest answer of turn %d", p.Turn, s.Turn, s.Committed)
	}
	s.Messages = append(s.Messages, p.Message)
	s.Committed, s.LastLeg = p.Turn, p.Leg
	if n := len(s.Receipts); n > 0 {
		if u := s.Receipts[n-1].Charge.Usage; !u.Estimated {
			s.Measured = Measured{Tokens: u.InputTokens + u.OutputTokens, Messages: len(s.Messages)}
		}
	}
	s.Receipts, s.Rewalks, s.Parks, s.CredentialParks, s.RetriesBefore = nil, 0, 0, 0, s.Retries
	s.forgetTurn()
	s.Account.Turn()
	if p.Message.Stop == message.StopLength {
		s.LengthStops++
	} else {
		s.LengthStops = 0
	}
	calls := p.Message.Calls()
	s.Guard.Apply(guard.Answer{Turn: p.Turn, Calls: guarded(calls)})
	if len(calls) == 0 {
		return nil
	}
	s.LastToolTurn, s.results = ToolTurn{Turn: p.Turn}, nil
	for _, c := range calls {
		if s.callIDs[c.ID] {
			return fmt.Errorf("call id %s of turn %d was used before", c.ID, p.Turn)
		}
		s.callIDs[c.ID] = true
		s.Pending = append(s.Pending, PendingCall{Call: c, Turn: p.Turn})
	}
	return nil
}

func (s *State) toolStart(e Entry, p *record.ToolStart) error {
	for i := range s.Pending {
		if s.Pending[i].ID == p.Call {
			s.Pending[i].Starts = append(s.Pending[i].Starts, Start{ToolStart: *p, Epoch: e.Epoch, At: e.At})
			return nil
		}
	}
	return fmt.Errorf("call %s is started, but no call of that id waits for a result", p.Call)
}

// toolResult takes a call's result. The results of a turn become one message when the last of them is in, in the order
// of the calls, whatever the order in which they came.
func (s *State) toolResult(e Entry, p *record.ToolResult) error {
	at := -1
	for i := range s.Pending {
		if s.Pending[i].ID == p.Result.CallID {
			at = i
		}
	}
	if at < 0 {
		return fmt.Errorf("a result for call %s, which does not wait for one", p.Result.CallID)
	}
	s.Pending = append(s.Pending[:at:at], s.Pending[at+1:]...)
	result := p.Result
	s.results = append(s.results, message.Block{Kind: message.BlockResult, Result: &result})
	s.judge(result)
	s.Guard.Apply(guard.Result{Result: result, CommandFailed: p.CommandFailed, Refusal: guard.Refusal(p.Refusal), At: e.At})
	if len(s.Pending) > 0 {
		return nil
	}
	s.Messages = append(s.Messages, message.Message{Role: message.RoleTool, Blocks: inCallOrder(s.Messages[len(s.Messages)-1], s.results)})
	s.results = nil
	return nil
}

func inCallOrder(turn message.Message, results []message.Block) []message.Block {
	byID := make(map[string]message.Block, len(results))
	for _, b := range results {
		byID[b.Result.CallID] = b
	}
	ordered := make([]message.Block, 0, len(results))
	for _, c := range turn.Calls() {
		ordered = append(ordered, byID[c.ID])
	}
	return ordered
}

func (s *State) judge(r message.Result) {
	switch {
	case r.Status == message.ResultOK:
		s.LastToolTurn.Succeeded++
	case tools.ErrorKind(r.ErrorKind).Correctable():
		s.LastToolTurn.Correctable++
	}
}

// endsCut tells that the newest words are an answer without calls that the output limit cut.
func (s *State) endsCut() bool {
	last := s.Messages[len(s.Messages)-1]
	return last.Role == message.RoleAssistant && last.Stop == message.StopLength
}
