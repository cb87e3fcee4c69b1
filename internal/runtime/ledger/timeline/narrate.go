package timeline

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"belay.dev/belay/internal/runtime/budget"
	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/message"
)

// narrator writes the lines of a timeline.
type narrator struct {
	w    io.Writer
	opts Options
	err  error

	at    time.Time
	day   string
	turn  int
	total totals
	// pending is the request whose receipt has not come.
	pending *record.LLMRequest
	// open holds the calls that were started and not answered.
	open map[string]record.ToolStart
}

func newNarrator(w io.Writer, opts Options) *narrator {
	if opts.Width == 0 {
		opts.Width = DefaultWidth
	}
	opts.Width = max(opts.Width, minWidth)
	if opts.Location == nil {
		opts.Location = time.UTC
	}
	return &narrator{w: w, opts: opts, open: map[string]record.ToolStart{}}
}

const timeWidth = len("15:04:05  ")

// say writes text at a depth, with the time before its first line. Further lines are
// one step deeper.
func (n *narrator) say(depth int, format string, args ...any) {
	n.write(depth, wrap(clean(fmt.Sprintf(format, args...)), n.room(depth), n.room(depth+1)))
}

// brief is say for text of any length: one line of it.
func (n *narrator) brief(depth int, format string, args ...any) {
	n.write(depth, []string{excerpt(fmt.Sprintf(format, args...), n.room(depth))})
}

func (n *narrator) room(depth int) int { return n.opts.Width - timeWidth - len(indent(depth)) }

func (n *narrator) write(depth int, lines []string) {
	at := n.at.In(n.opts.Location)
	if day := at.Format("2006-01-02"); day != n.day {
		n.day = day
		n.print(day)
	}
	margin := at.Format("15:04:05  ") + indent(depth)
	for _, line := range lines {
		n.print(margin + line)
		margin = strings.Repeat(" ", timeWidth) + indent(depth+1)
	}
}

func (n *narrator) print(line string) {
	if n.err == nil {
		_, n.err = fmt.Fprintln(n.w, line)
	}
}

// entry narrates one record.
func (n *narrator) entry(e ledger.Entry) error {
	n.at = e.At
	payload, err := decode(e, n.opts.Blob)
	switch {
	case err != nil:
		n.say(0, "record %d (%s) cannot be read: %v", e.Seq, e.Type, err)
	case payload != nil:
		n.run(e, payload)
	default:
		n.foreign(e)
	}
	return n.err
}

// foreign narrates the types of package ledger, and names those that nobody here
// knows.
func (n *narrator) foreign(e ledger.Entry) {
	switch e.Type {
	case "segment.start":
	case "recovered":
		var torn ledger.TornTail
		if err := json.Unmarshal(e.Data, &torn); err != nil {
			n.say(0, "record %d (%s) cannot be read: %v", e.Seq, e.Type, err)
			return
		}
		n.say(0, "recovered: a crash tore record %d; its %d bytes are kept in %s", torn.Seq, torn.Size, torn.Saved)
	default:
		n.say(0, "record %d has the type %s, which this version does not know", e.Seq, e.Type)
	}
}

// run narrates what belongs to the run as a whole.
func (n *narrator) run(e ledger.Entry, payload any) {
	switch p := payload.(type) {
	case *record.RunStart:
		n.say(0, "run %s/%s, ladder %s (generation %d)", p.Namespace, p.Name, p.Ladder.Name, p.Ladder.Generation)
		n.brief(1, "task: %s", p.Contract.Task)
		for _, warning := range p.Warnings {
			n.say(1, "warning: %s", warning)
		}
	case *record.EpochStart:
		n.epoch(e.Epoch, p)
	case *record.RunPark:
		n.total.parks++
		until := ""
		if !p.Until.IsZero() {
			until = " until " + n.clock(p.Until)
		}
		n.say(0, "parked%s (%s)%s", until, p.Reason, after(": ", p.Message))
	case *record.RunSuspend:
		n.say(0, "suspended: %s", p.Reason)
	case *record.RunEnd:
		n.total.ended = p.Reason
		n.say(0, "ended: %s%s", p.Reason, after(": ", p.Message))
		if p.Text != "" {
			n.brief(1, "answer: %s", p.Text)
		}
	default:
		n.model(payload)
	}
}

func (n *narrator) epoch(epoch uint64, p *record.EpochStart) {
	n.lost()
	n.total.epochs++
	text := fmt.Sprintf("epoch %d", epoch)
	if p.PodName != "" {
		text += " in pod " + p.PodName
	}
	if n.total.epochs > 1 {
		text += fmt.Sprintf(", resumed: %s replayed", count(p.ReplayedTurns, "turn"))
	}
	n.say(0, "%s (belay %s)", text, p.Version)
	n.turn = 0
}

// lost names a request that a crash cut off from its receipt.
func (n *narrator) lost() {
	if n.pending == nil {
		return
	}
	n.total.lost++
	n.total.charge(n.pending.Leg, n.pending.Reserved)
	n.say(1, "request %d to %s was lost with its process; %s reserved for it are charged",
		n.pending.Attempt, n.pending.Leg, "$"+budget.Dollars(n.pending.Reserved.CostMicroUSD))
	n.pending = nil
}

func (n *narrator) enter(turn int) {
	if turn != n.turn && turn > 0 {
		n.turn = turn
		n.say(0, "turn %d", turn)
	}
}

// model narrates what happens between the run and its legs.
func (n *narrator) model(payload any) {
	switch p := payload.(type) {
	case *record.TurnPlan:
		n.enter(p.Turn)
		n.plan(p)
	case *record.LLMRequest:
		n.enter(p.Turn)
		n.lost()
		n.pending = p
		n.total.requests++
	case *record.LLMAttempt:
		n.enter(p.Turn)
		n.attempt(p)
	case *record.RetryScheduled:
		n.enter(p.Turn)
		n.total.waits++
		what := "all legs again"
		if p.Leg != "" {
			what = p.Leg + " again"
		}
		n.say(1, "wait %s, then %s (%s%s)", milliseconds(p.DelayMilliseconds), what, p.Reason, kind(p.Kind))
	case *record.RouteFallback:
		n.enter(p.Turn)
		n.total.fallbacks++
		n.say(1, "fallback %s -> %s (%s%s)", p.From, p.To, p.Reason, kind(p.Kind))
	case *record.BreakerChanged:
		text := fmt.Sprintf("breaker of %s: %s -> %s", p.Leg, p.From, p.To)
		if p.Until != nil {
			text += " until " + n.clock(*p.Until)
		}
		n.total.breakers++
		n.say(1, "%s%s", text, bracketed(joined(p.Reason, string(p.Kind))))
	case *record.LLMResponse:
		n.enter(p.Turn)
		n.response(p)
	default:
		n.tools(payload)
	}
}

func (n *narrator) plan(p *record.TurnPlan) {
	text := "plan " + strings.Join(p.Legs, ", ")
	if len(p.Legs) == 0 {
		text = "plan is empty"
	}
	for i, s := range p.Skipped {
		lead := ", "
		if i == 0 {
			lead = "; skipped "
		}
		text += lead + s.Leg + " (" + s.Reason
		if s.Until != nil {
			text += " until " + n.clock(*s.Until)
		}
		text += ")"
	}
	n.say(1, "%s", text)
}

func (n *narrator) attempt(p *record.LLMAttempt) {
	if n.pending != nil && n.pending.Attempt == p.Attempt {
		n.pending = nil
	}
	n.total.charge(p.Leg, p.Charge)
	leg := p.Leg
	if p.FailoverFrom != "" {
		leg += " (from " + p.FailoverFrom + ")"
	}
	if p.Probe {
		leg += " (probe)"
	}
	cost := ""
	if u := p.Charge.Usage; u.Tokens() > 0 || p.Charge.CostMicroUSD > 0 {
		estimated := ""
		if u.Estimated {
			estimated = "about "
		}
		cost = fmt.Sprintf(", %s%d in + %d out tokens, %s", estimated, u.InputTokens, u.OutputTokens, "$"+budget.Dollars(p.Charge.CostMicroUSD))
	}
	if p.Failure == nil {
		n.say(1, "%s answered in %s%s", leg, milliseconds(p.DurationMilliseconds), cost)
	} else {
		n.total.failures++
		n.say(1, "%s failed in %s: %s%s%s%s", leg, milliseconds(p.DurationMilliseconds), p.Failure.Kind, status(p.Failure), after(": ", p.Failure.Message), cost)
	}
	for _, warning := range p.Warnings {
		n.say(2, "warning: %s", warning)
	}
}

func (n *narrator) response(p *record.LLMResponse) {
	n.total.turns = max(n.total.turns, p.Turn)
	if text := p.Message.Text(); text != "" {
		n.brief(1, "says: %s", text)
	}
	for _, call := range p.Message.Calls() {
		arguments := string(call.Arguments)
		if call.RawArguments != "" {
			arguments = call.RawArguments
		}
		n.brief(1, "calls %s %s %s", call.ID, call.Name, arguments)
	}
	if p.Message.Stop == message.StopLength || p.Message.Stop == message.StopRefusal {
		n.say(1, "stopped: %s", p.Message.Stop)
	}
}

// tools narrates tool calls and the runtime's own words.
func (n *narrator) tools(payload any) {
	switch p := payload.(type) {
	case *record.ToolStart:
		n.enter(p.Turn)
		n.open[p.Call] = *p
		again := ""
		if p.Attempt > 1 {
			again = fmt.Sprintf(", attempt %d", p.Attempt)
		}
		n.say(1, "start %s %s (%s%s)", p.Call, p.Tool, p.Effect, again)
	case *record.ToolResult:
		n.enter(p.Turn)
		n.result(p)
	case *record.Control:
		n.enter(p.Turn)
		n.brief(1, "control %s: %s", p.Kind, p.Text)
	case *record.Diagnostic:
		n.enter(p.Turn)
		n.say(1, "%s: %s", p.Reason, p.Text)
	case *record.TurnEnd:
	default:
		n.say(1, "a %T has no line in the timeline", payload)
	}
}

func (n *narrator) result(p *record.ToolResult) {
	r := p.Result
	delete(n.open, r.CallID)
	n.total.calls++
	text := fmt.Sprintf("%s %s: %s%s", r.CallID, r.Name, r.Status, bracketed(r.ErrorKind))
	if p.DurationMilliseconds > 0 {
		text += " in " + milliseconds(p.DurationMilliseconds)
	}
	if p.Recovered {
		text += ", recovered"
	}
	switch r.Status {
	case message.ResultOK:
		n.say(1, "%s", text)
	case message.ResultInDoubt:
		n.total.inDoubt++
		n.say(1, "%s", text)
	case message.ResultError, message.ResultTimeout, message.ResultCancelled, message.ResultNotRun:
		n.total.failedCalls++
		n.say(1, "%s", text)
		n.brief(2, "%s", r.Text)
	}
}

func (n *narrator) clock(t time.Time) string {
	t = t.In(n.opts.Location)
	if t.Format("2006-01-02") == n.at.In(n.opts.Location).Format("2006-01-02") {
		return t.Format("15:04:05")
	}
	return t.Format("2006-01-02 15:04:05")
}

// status is what the message of a failure does not say already.
func status(f *failure.Failure) string {
	switch {
	case f.HTTPStatus > 0 && strings.Contains(f.Message, fmt.Sprintf("(HTTP %d)", f.HTTPStatus)):
		return ""
	case f.HTTPStatus > 0 && f.Code != "":
		return fmt.Sprintf(" (HTTP %d %s)", f.HTTPStatus, f.Code)
	case f.HTTPStatus > 0:
		return fmt.Sprintf(" (HTTP %d)", f.HTTPStatus)
	default:
		return bracketed(f.Code)
	}
}

func kind(k failure.Kind) string { return after(", ", string(k)) }

func after(lead, text string) string {
	if text == "" {
		return ""
	}
	return lead + text
}

func bracketed(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

func joined(a, b string) string {
	if a == "" || b == "" || a == b {
		return a + strings.TrimPrefix(b, a)
	}
	return a + ", " + b
}
