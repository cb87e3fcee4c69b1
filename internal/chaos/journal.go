package chaos

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Outcome is how the answer to a request ended.
type Outcome string

const (
	// OutcomeOpen is an answer that has not ended yet.
	OutcomeOpen Outcome = "Open"
	// OutcomeCompleted is a model turn delivered whole.
	OutcomeCompleted Outcome = "Completed"
	// OutcomeStatus is a scripted HTTP status or redirect.
	OutcomeStatus Outcome = "Status"
	// OutcomeRejected is a request refused by the dialect's rules, by an expectation or by an exhausted script.
	OutcomeRejected Outcome = "Rejected"
	// OutcomeInBandError is a stream that ended in a scripted error.
	OutcomeInBandError Outcome = "InBandError"
	// OutcomeCut is a stream ended before its time by the script.
	OutcomeCut Outcome = "Cut"
	// OutcomeReset is a connection reset by the script.
	OutcomeReset Outcome = "Reset"
	// OutcomeSilence is a scripted silence that the client, or the end of the server, ended.
	OutcomeSilence Outcome = "Silence"
	// OutcomeClientGone is a client that left before its answer was whole.
	OutcomeClientGone Outcome = "ClientGone"
)

// Request is what the server remembers of one request. It holds no key and no text of the conversation.
type Request struct {
	// Sequence numbers the requests to all legs, from 1.
	Sequence int `json:"sequence"`
	// Leg is the leg's name.
	Leg string `json:"leg"`
	// Step is the number of the step used, from 1. For a failed expectation it is the step that expected; 0 for every
	// other rejected request.
	Step int `json:"step"`
	// Time is when the request was read.
	Time time.Time `json:"time"`
	// Model is the model asked for.
	Model string `json:"model,omitempty"`
	// Stream tells whether a stream was asked for.
	Stream bool `json:"stream"`
	// BodySHA256 is the hash of the request's body, in hex.
	BodySHA256 string `json:"bodySHA256"`
	// BodyBytes is its length.
	BodyBytes int `json:"bodyBytes"`
	// Messages and AssistantTurns count the conversation.
	Messages       int `json:"messages"`
	AssistantTurns int `json:"assistantTurns"`
	// Status is the HTTP status sent; 0 if none was.
	Status int `json:"status"`
	// Outcome is how the answer ended.
	Outcome Outcome `json:"outcome"`
	// Events is how many events of a stream were sent, pings and comments not counted.
	Events int `json:"events"`
	// Problems are all reasons for a rejection; the client is told the first.
	Problems []string `json:"problems,omitempty"`
	// Billed is what a provider would bill: nothing for an error, the prompt and what was generated for a stream.
	Billed Usage `json:"billed"`
}

// Bill is what one leg would have billed.
type Bill struct {
	// Requests are all requests; Rejected the refused part of them; Completed those whose turn was delivered whole.
	Requests  int `json:"requests"`
	Rejected  int `json:"rejected"`
	Completed int `json:"completed"`
	// Usage is the sum of all billed tokens.
	Usage Usage `json:"usage"`
	// Discarded is the part of Usage spent on answers that were not delivered whole.
	Discarded Usage `json:"discarded"`
}

// journalLimit bounds the remembered requests; the bill is exact beyond it.
const journalLimit = 20_000

// journal remembers requests and adds up the bill. Its methods may be called from any goroutine.
type journal struct {
	mu       sync.Mutex
	sequence int
	// resets counts the resets, so that answers still open then change nothing afterwards.
	resets   int
	requests []*entry // ascending by Sequence
	bill     map[string]Bill
}

// entry is a request in the journal. Only the journal's methods touch it after it was opened.
type entry struct {
	request Request
	resets  int
}

func newJournal() *journal { return &journal{bill: map[string]Bill{}} }

// open remembers a request.
func (j *journal) open(r Request) *entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.sequence++
	r.Sequence, r.Outcome = j.sequence, OutcomeOpen
	e := &entry{request: r, resets: j.resets}
	if len(j.requests) == journalLimit {
		j.requests = slices.Delete(j.requests, 0, journalLimit/10)
	}
	j.requests = append(j.requests, e)
	b := j.bill[r.Leg]
	b.Requests++
	j.bill[r.Leg] = b
	return e
}

// note changes a remembered request. The function must not change Leg, Outcome or Billed.
func (j *journal) note(e *entry, change func(*Request)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	change(&e.request)
}

// settle records how the answer to a request ended, and bills it. It is called before the answer's last byte, so that a
// client that has the whole answer finds it settled; a second call replaces the first.
func (j *journal) settle(e *entry, outcome Outcome, billed Usage, events int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if e.resets == j.resets {
		b := j.bill[e.request.Leg]
		b.count(e.request.Outcome, e.request.Billed, -1)
		b.count(outcome, billed, 1)
		j.bill[e.request.Leg] = b
	}
	e.request.Outcome, e.request.Billed, e.request.Events = outcome, billed, events
}

// count adds a settled request to the bill, or takes it off.
func (b *Bill) count(outcome Outcome, billed Usage, sign int) {
	if sign < 0 {
		billed = Usage{Input: -billed.Input, Output: -billed.Output, Cached: -billed.Cached}
	}
	b.Usage = b.Usage.plus(billed)
	switch outcome {
	case OutcomeCompleted:
		b.Completed += sign
		return
	case OutcomeRejected:
		b.Rejected += sign
	case OutcomeOpen, OutcomeStatus, OutcomeInBandError, OutcomeCut, OutcomeReset, OutcomeSilence, OutcomeClientGone:
	}
	b.Discarded = b.Discarded.plus(billed)
}

// reset forgets everything but the numbering.
func (j *journal) reset() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.resets++
	j.requests, j.bill = nil, map[string]Bill{}
}

func (j *journal) list() []Request {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := make([]Request, len(j.requests))
	for i, e := range j.requests {
		out[i] = e.request
		out[i].Problems = slices.Clone(e.request.Problems)
	}
	return out
}

func (j *journal) bills() map[string]Bill {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.bill)
}

func (u Usage) plus(v Usage) Usage {
	return Usage{Input: u.Input + v.Input, Output: u.Output + v.Output, Cached: u.Cached + v.Cached}
}

func join(texts []string) string { return strings.Join(texts, "; ") }
