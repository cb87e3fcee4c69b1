package local

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"belay.dev/belay/api/v1alpha1"
	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/ladder"
	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/loop"
	"belay.dev/belay/internal/runtime/message"
	"belay.dev/belay/internal/runtime/redact"
)

// narrator tells a person, a line for each event, what the run does and why.
type narrator struct {
	out      io.Writer
	job      *job
	models   map[string]string
	redactor *redact.Redactor
	// ended is set once the end of the run has been told.
	ended bool
}

func newNarrator(out io.Writer, j *job) *narrator {
	n := &narrator{out: out, job: j, models: map[string]string{}, redactor: j.redactor}
	for _, l := range j.ladder.Spec.Legs {
		n.models[l.Name] = l.Model
	}
	return n
}

// line writes one line. Names and messages may come from a model or a provider, so that what could move a terminal's
// cursor is replaced.
func (n *narrator) line(format string, args ...any) {
	fmt.Fprintln(n.out, strings.Map(printable, n.redactor.String(fmt.Sprintf(format, args...))))
}

func printable(r rune) rune {
	switch {
	case r == '\n', r == '\t':
		return ' '
	case !unicode.IsGraphic(r):
		return utf8.RuneError
	}
	return r
}

func (n *narrator) opened(found *ledger.Recovered) {
	j := n.job
	if found.Fresh {
		n.line("run %s: new ledger in %s", j.title(), j.dir)
		if inside(j.workspace, j.dir) {
			n.line("ledger: note: it is inside the workspace, where the model's tools can change it; --data-dir puts it elsewhere")
		}
	} else {
		n.line("run %s: found %s of %s in %s", j.title(), plural(found.Records, "record"), plural(int(found.NewestEpoch), "epoch"), j.dir)
	}
	for _, t := range found.Torn {
		n.line("ledger: the last record was torn by a crash; its %s are kept in %s", plural(int(t.Size), "byte"), filepath.Join(j.dir, t.Saved))
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
	if !j.shell && slices.ContainsFunc(j.contract.Tools, func(g record.ToolGrant) bool { return g.Name == string(v1alpha1.WorkspaceToolShell) }) {
		n.line("tools: the run may use shell, but it is offered only with --allow-shell")
	}
}

// inside tells that path is dir or below it.
func inside(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// closed tells what a person has not been told by a record of this invocation, or does not know what to do about.
func (n *narrator) closed(end loop.End) {
	switch {
	case end.Finished != nil && !n.ended:
		n.line("ended before: %s: %s --fresh starts over", end.Finished.Reason, end.Finished.Message)
	case end.Parked != nil && !end.Parked.Until.IsZero():
		n.line("the same command goes on with the run; before %s it would find no leg either", end.Parked.Until.UTC().Format(time.RFC3339))
	case end.Suspended != nil:
		n.line("stopped; the same command goes on with the run")
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
				n.line("turn %d: leg %s is left out: %s%s%s", p.Turn, s.Leg, s.Reason, until(s.Until), n.remedy(s))
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
	case *record.ToolResult:
		n.result(p)
	case *record.Diagnostic:
		n.line("turn %d: %s: %s", p.Turn, p.Reason, p.Text)
	case *record.RunPark:
		n.line("parked: %s: %s", p.Reason, p.Message)
	case *record.RunEnd:
		n.ended = true
		n.line("ended: %s: %s", p.Reason, p.Message)
	}
}

// remedy says what to do about a leg that was left out, where it is the files or flags that must change.
func (n *narrator) remedy(s record.Skipped) string {
	switch ladder.SkipReason(s.Reason) {
	case ladder.SkipCredentialMissing:
		ref := n.credentialOf(s.Leg)
		return fmt.Sprintf(": there is no key %q of a Secret %q; add it with -f, or with --credential %s/%s=ENVVAR", ref.Key, ref.Name, ref.Name, ref.Key)
	case ladder.SkipCredentialInvalid:
		ref := n.credentialOf(s.Leg)
		return fmt.Sprintf(": the provider rejected key %q of Secret %q", ref.Key, ref.Name)
	case ladder.SkipCredentialNotForHost:
		return fmt.Sprintf(": the key allowed-hosts of Secret %q does not name the provider's host", n.credentialOf(s.Leg).Name)
	case ladder.MeteredDenied:
		return ": it costs money; routing.metered: Allow lets the run use it"
	case ladder.NoPrice:
		return ": it costs money and has no price, so that limits.maxCostMicroUSD could not be kept"
	case ladder.ClassTooLow:
		return ": its securityClass is below the run's routing.securityClass"
	case ladder.CapabilityMissing:
		return ": its capabilities lack what the turn needs"
	case ladder.WindowTooSmall:
		return ": the conversation and an answer do not fit into its contextWindow"
	case ladder.NotSelected, ladder.DrainedLeg, ladder.UnknownLeg, ladder.SkipCredentialNotMounted,
		ladder.RouteOpen, ladder.RouteCooling, ladder.RouteHalfOpen:
	}
	return ""
}

func (n *narrator) credentialOf(leg string) v1alpha1.SecretKeyReference {
	for _, l := range n.job.ladder.Spec.Legs {
		for _, p := range n.job.ladder.Spec.Providers {
			if l.Name == leg && l.Provider == p.Name && p.Credential != nil {
				return p.Credential.SecretRef
			}
		}
	}
	return v1alpha1.SecretKeyReference{}
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
