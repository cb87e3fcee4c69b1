package guard

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"belay.dev/belay/internal/runtime/message"
)

var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// offered is what the model of these tests is given.
var offered = []Tool{
	{Name: "read", Schema: `{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}`},
	{Name: "write", Schema: `{"type":"object","required":["path","content"]}`},
	{Name: "shell", Schema: `{"type":"object","required":["command"]}`},
	{Name: "status", Schema: `{"type":"object"}`},
}

// move is a call that the model makes, and what comes of it if it is dispatched.
type move struct {
	tool, arguments string
	result          Result
}

func ok(tool, arguments, text string) move {
	return move{tool, arguments, Result{Result: message.Result{Status: message.ResultOK, Text: text}}}
}

func fails(tool, arguments string, kind Kind) move {
	status := message.ResultError
	if kind.rejected() {
		status = message.ResultNotRun
	}
	return move{tool, arguments, Result{Result: message.Result{Status: status, ErrorKind: string(kind), Text: string(kind) + " of " + arguments}}}
}

// other is a call that ends in a way that no other call would cure.
func other(tool, arguments string, status message.ResultStatus, kind string) move {
	return move{tool, arguments, Result{Result: message.Result{Status: status, ErrorKind: kind, Text: "it is " + kind}}}
}

// exits is a command that ended by itself with a failure.
func exits(arguments, output string) move {
	return move{"shell", arguments, Result{CommandFailed: true, Result: message.Result{
		Status: message.ResultError, ErrorKind: string(ExecutionFailed), Text: output + "[exit code 1]"}}}
}

// run plays a model against the guard as the loop does, and keeps the events as the ledger does.
type run struct {
	state  *State
	turns  int
	now    time.Time
	pace   time.Duration
	events []Event
	// refused are the refusals of the newest turn, one for each call.
	refused []Refused
	noted   []Note
	stop    *Stop
}

func newRun(polling Polling) *run {
	return &run{state: New(polling), now: began, pace: time.Second}
}

func (r *run) apply(e Event) {
	r.events = append(r.events, e)
	r.state.Apply(e)
}

// turn plays one answer and returns in a word what came of it: the refusals of its calls and what was decided.
func (r *run) turn(moves ...move) string {
	r.turns++
	calls := make([]Call, len(moves))
	for i, m := range moves {
		calls[i] = Call{ID: fmt.Sprintf("%d-%d", r.turns, i), Tool: m.tool, Arguments: m.arguments}
	}
	r.apply(Answer{Turn: r.turns, Calls: calls})
	var words []string
	r.refused = nil
	for i, m := range moves {
		r.now = r.now.Add(r.pace)
		result := m.result
		refused, isRefused := r.state.Refuse(calls[i])
		if isRefused {
			result = Result{Refusal: refused.Refusal, Result: message.Result{
				Status: message.ResultNotRun, ErrorKind: string(refused.Kind), Text: refused.Text}}
			words = append(words, strings.ToLower(string(refused.Refusal)))
		}
		r.refused = append(r.refused, refused)
		result.CallID, result.At = calls[i].ID, r.now
		r.apply(result)
	}
	d := r.state.Decide(offered)
	r.stop, r.noted = d.Stop, d.Notes
	for _, n := range d.Notes {
		words = append(words, string(n.Kind))
		r.apply(Noted{Kind: n.Kind})
	}
	if d.Stop != nil {
		words = append(words, string(d.Stop.Reason))
	}
	if len(words) == 0 {
		return "-"
	}
	return strings.Join(words, " ")
}

// story plays turns and checks what comes of each.
func (r *run) story(t *testing.T, turns []played) {
	t.Helper()
	for i, p := range turns {
		if got := r.turn(p.moves...); got != p.want {
			t.Errorf("turn %d (%s): got %q, want %q", i+1, shown(p.moves), got, p.want)
		}
	}
}

type played struct {
	want  string
	moves []move
}

// then is a turn and what comes of it.
func then(want string, moves ...move) played { return played{want, moves} }

func shown(moves []move) string {
	var all []string
	for _, m := range moves {
		all = append(all, fmt.Sprintf("%s(%s)=%s%s", m.tool, m.arguments, m.result.Status, m.result.ErrorKind))
	}
	return strings.Join(all, ", ")
}

func contains(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in:\n%s", want, text)
		}
	}
}
