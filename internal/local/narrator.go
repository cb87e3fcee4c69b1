package local

import (
	"fmt"
	"io"
	"strings"
	"time"

	"belay.dev/belay/api/v1alpha1"
	"belay.dev/belay/internal/runtime/budget"
	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/ladder"
	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/message"
	"belay.dev/belay/internal/runtime/redact"
)

// narrator tells a person, a line for each event, what the run does and why.
type narrator struct {
	out      io.Writer
	models   map[string]string
	redactor *redact.Redactor
	tools    map[string]string
}

func newNarrator(out io.Writer, legs []v1alpha1.Leg, redactor *redact.Redactor) *narrator {
	n := &narrator{out: out, models: map[string]string{}, redactor: redactor, tools: map[string]string{}}
	for _, l := range legs {
		n.models[l.Name] = l.Model
	}
	return n
}

func (n *narrator) line(format string, args ...any) {
	fmt.Fprintln(n.out, n.redactor.String(fmt.Sprintf(format, args...)))
}

func (n *narrator) opened(j *job, found *ledger.Recovered) {
	if found.Fresh {
		n.line("run %s/%s: new ledger in %s", j.run.Namespace, j.run.Name, j.dir)
	} else {
		n.line("run %s/%s: found %d records of %d epochs in %s", j.run.Namespace, j.run.Name, found.Records, found.NewestEpoch, j.dir)
	}
	for _, t := range found.Torn {
		n.line("ledger: the last record was torn by a crash; its %d bytes are kept in %s", t.Size, t.Saved)
	}
	if found.Terminated {
		n.line("ledger: the last record lacked its line end, which was added")
	}
	for _, f := range found.Fenced {
		n.line("ledger: record %d of the older epoch %d came too late and is ignored", f.Seq, f.Epoch)
	}
	if found.Unlocked {
		n.line("ledger: warning: the file system has no locks; make sure that only one process uses the directory")
	}
}

// observe tells what a record means. What a person would not act on is left out.
func (n *narrator) observe(_ time.Time, payload any) {
	switch p := payload.(type) {
	case *record.EpochStart:
		if p.ReplayedTurns > 0 {
			n.line("resuming after %s that the ledger already has; none of them is asked for again", plural(p.ReplayedTurns, "turn"))
		}
	case *record.TurnPlan:
		for _, s := range p.Skipped {
			if s.Reason != string(ladder.NotSelected) {
				n.line("turn %d: leg %s is left out: %s%s", p.Turn, s.Leg, s.Reason, until(s.Until))
			}
		}
	case *record.LLMAttempt:
		n.attempt(p)
	case *record.RetryScheduled:
		n.retry(p)
	case *record.RouteFallback:
		n.line("turn %d: fallback from leg %s to leg %s: %s%s", p.Turn, p.From, p.To, p.Reason, because(p.Kind))
	case *record.BreakerChanged:
		n.line("breaker of leg %s: %s -> %s%s%s", p.Leg, p.From, p.To, until(p.Until), because(p.Kind))
	case *record.LLMResponse:
		n.response(p)
	case *record.ToolStart:
		n.tools[p.Call] = p.Tool
	case *record.ToolResult:
		n.result(p)
	case *record.Diagnostic:
		n.line("turn %d: %s: %s", p.Turn, p.Reason, p.Text)
	case *record.RunPark:
		n.line("parked: %s: %s", p.Reason, p.Message)
	case *record.RunEnd:
		n.line("ended: %s: %s", p.Reason, p.Message)
	}
}

func (n *narrator) attempt(p *record.LLMAttempt) {
	if p.Failure == nil {
		return
	}
	status := ""
	if p.Failure.HTTPStatus > 0 {
		status = fmt.Sprintf(" (HTTP %d)", p.Failure.HTTPStatus)
	}
	n.line("turn %d: leg %s (%s) failed: %s%s: %s", p.Turn, p.Leg, n.models[p.Leg], p.Failure.Kind, status, p.Failure.Message)
}

func (n *narrator) retry(p *record.RetryScheduled) {
	delay := time.Duration(p.DelayMilliseconds) * time.Millisecond
	switch ladder.WaitReason(p.Reason) {
	case ladder.WaitBackoff, ladder.WaitCooling:
		n.line("turn %d: trying leg %s again in %s%s", p.Turn, p.Leg, delay, because(p.Kind))
	case ladder.WaitRewalk:
		n.line("turn %d: every leg failed; trying all of them again in %s", p.Turn, delay)
	case ladder.WaitRoutes:
		n.line("turn %d: no leg may be asked now; waiting %s for the first", p.Turn, delay)
	}
}

func (n *narrator) response(p *record.LLMResponse) {
	what := "answered"
	if calls := p.Message.Calls(); len(calls) > 0 {
		names := make([]string, len(calls))
		for i, c := range calls {
			names[i] = c.Name
		}
		what = "calls " + strings.Join(names, ", ")
	}
	n.line("turn %d: leg %s (%s) %s", p.Turn, p.Leg, n.models[p.Leg], what)
}

func (n *narrator) result(p *record.ToolResult) {
	r := p.Result
	text := string(r.Status)
	if r.ErrorKind != "" {
		text += " (" + r.ErrorKind + ")"
	}
	if r.Status == message.ResultInDoubt {
		text = "the outcome was lost with the last process; the model is told the facts"
	}
	if p.Recovered && r.Status != message.ResultInDoubt {
		text += ", found in the workspace's record"
	}
	if p.DurationMilliseconds > 0 {
		text += fmt.Sprintf(" after %s", time.Duration(p.DurationMilliseconds)*time.Millisecond)
	}
	n.line("turn %d: %s: %s", p.Turn, r.Name, text)
}

func because(k failure.Kind) string {
	if k == "" {
		return ""
	}
	return " (" + string(k) + ")"
}

func until(t *time.Time) string {
	if t == nil {
		return ""
	}
	return " until " + t.UTC().Format("15:04:05Z")
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Usage is a table of what each leg charged.
func Usage(w io.Writer, account *budget.Account) {
	fmt.Fprintf(w, "%-12s %8s %6s %12s %12s %14s\n", "LEG", "REQUESTS", "FAILED", "INPUT", "OUTPUT", "COST")
	row := func(name string, requests, failed int, c budget.Charge) {
		mark := ""
		if c.Usage.Estimated {
			mark = " (estimated)"
		}
		fmt.Fprintf(w, "%-12s %8d %6d %12d %12d %14s%s\n", name, requests, failed, c.Usage.InputTokens, c.Usage.OutputTokens, budget.USD(c.CostMicroUSD), mark)
	}
	requests, failed := 0, 0
	for _, l := range account.Legs {
		row(l.Leg, l.Requests, l.Failed, l.Charge)
		requests, failed = requests+l.Requests, failed+l.Failed
	}
	row("total", requests, failed, account.Total)
}
