package loop

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"belay.dev/belay/internal/runtime/guard"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/message"
	"belay.dev/belay/internal/runtime/tools"
)

// Workspace runs tool calls and remembers what it ran.
type Workspace interface {
	// BootID is random for each start of the workspace's supervisor.
	BootID() string
	// Call dispatches a call and waits for its outcome. A second dispatch of a call that the supervisor knows returns the
	// stored outcome, or waits for the running one; it never runs it again.
	Call(ctx context.Context, call tools.Call) tools.Outcome
	// Inspect tells what the supervisor knows of a call. An error means that it could not be asked.
	Inspect(ctx context.Context, callID string) (tools.JobState, error)
}

const (
	// maxParallelCalls bounds the read-only calls of one turn that run at the same time.
	maxParallelCalls = 8
	// defaultCallTimeout bounds a call whose tool and grant name no limit.
	defaultCallTimeout = 120 * time.Second
)

// answerCalls answers every pending call of the committed turn and closes the turn. Read-only neighbours run in parallel
// behind one barrier; every other call has a barrier of its own, so that at most one call can be in doubt after a crash.
func (r *runner) answerCalls(ctx context.Context) error {
	cut := r.state.LengthStops > 0
	for len(r.state.Pending) > 0 {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		call := r.state.Pending[0]
		tool, refusal := r.admit(call, cut)
		if refusal != nil {
			if err := r.refuse(call, *refusal); err != nil {
				return err
			}
			continue
		}
		if err := r.dispatch(ctx, r.batch(tool)); err != nil {
			return err
		}
	}
	return r.journal.write(record.TurnEnd{Turn: r.state.Committed})
}

// planned is a call together with its tool.
type planned struct {
	PendingCall
	tool tools.Tool
}

// batch takes the first pending call and, if it only reads, the read-only calls that follow it directly.
func (r *runner) batch(first tools.Tool) []planned {
	batch := []planned{{PendingCall: r.state.Pending[0], tool: first}}
	if first.Effect != tools.ReadOnly {
		return batch
	}
	for _, call := range r.state.Pending[1:] {
		tool, refusal := r.admit(call, false)
		if refusal != nil || tool.Effect != tools.ReadOnly || len(batch) == maxParallelCalls {
			break
		}
		batch = append(batch, planned{PendingCall: call, tool: tool})
	}
	return batch
}

// refusal is why a call is answered without being dispatched.
type refusal struct {
	tools.Outcome
	// by is the guard's rule, empty if it is not the guard that refuses.
	by guard.Refusal
}

// admit finds the tool of a call, or the reason why the call is answered without being dispatched.
func (r *runner) admit(call PendingCall, cut bool) (tools.Tool, *refusal) {
	refuse := func(kind tools.ErrorKind, format string, args ...any) *refusal {
		return &refusal{Outcome: tools.Refusal(kind, fmt.Sprintf(format, args...))}
	}
	if cut {
		return tools.Tool{}, refuse(tools.KindCancelled,
			"Not executed: the answer with this call was cut by the output limit, so its arguments may be incomplete. Send it again, in smaller pieces if it is large.")
	}
	// A call that was started before must be seen through: it is no news that it repeats another.
	if len(call.Starts) == 0 {
		if no, refused := r.state.Guard.Refuse(guardedCall(call.Call)); refused {
			return tools.Tool{}, &refusal{Outcome: tools.Refusal(tools.ErrorKind(no.Kind), no.Text), by: no.Refusal}
		}
	}
	at := slices.IndexFunc(r.tools, func(t tools.Tool) bool { return t.Name == call.Name })
	if at < 0 {
		return tools.Tool{}, refuse(tools.KindUnknownTool, "There is no tool named %q. The tools are: %s.", call.Name, r.toolNames())
	}
	tool := r.tools[at]
	if call.RawArguments != "" {
		return tools.Tool{}, refuse(tools.KindInvalidArguments, "The arguments are not a JSON object, so %s was not called. Send the call again with valid JSON.", call.Name)
	}
	if err := r.validator.Validate(tool, call.Arguments); err != nil {
		return tools.Tool{}, refuse(tools.KindInvalidArguments, "The arguments do not fit the schema of %s: %v.", call.Name, err)
	}
	return tool, nil
}

func (r *runner) toolNames() string {
	names := make([]string, len(r.tools))
	for i, t := range r.tools {
		names[i] = t.Name
	}
	return strings.Join(names, ", ")
}

// dispatch records the starts of a batch, makes them durable, and only then runs the calls.
func (r *runner) dispatch(ctx context.Context, batch []planned) error {
	starts := make([]any, len(batch))
	calls := make([]tools.Call, len(batch))
	for i, p := range batch {
		call := tools.Call{ID: p.ID, Attempt: nextAttempt(p.PendingCall), Tool: p.Name, Arguments: p.Arguments, Timeout: r.callTimeout(p.tool)}
		digest, err := tools.ArgumentsDigest(p.Arguments)
		if err != nil {
			return fmt.Errorf("digest of the arguments of call %s: %w", p.ID, err)
		}
		calls[i] = call
		starts[i] = record.ToolStart{
			Turn: p.Turn, Call: p.ID, Attempt: call.Attempt, Tool: p.Name, Effect: string(p.tool.Effect),
			ArgsSHA256: digest, BootID: r.workspace.BootID(), Deadline: r.cfg.Clock.Now().Add(call.Timeout),
		}
	}
	if err := r.journal.write(starts...); err != nil {
		return err
	}
	if err := r.journal.sync(); err != nil {
		return err
	}
	outcomes := make([]tools.Outcome, len(batch))
	var wait sync.WaitGroup
	for i := range calls {
		wait.Go(func() { outcomes[i] = r.workspace.Call(ctx, calls[i]) })
	}
	wait.Wait()
	for i, p := range batch {
		if err := context.Cause(ctx); err != nil && !final(outcomes[i]) {
			// The call was ended because the runner is. Its outcome is left to the next epoch, which asks the supervisor.
			return err
		}
		if err := r.result(p.PendingCall, calls[i].Attempt, outcomes[i], false); err != nil {
			return err
		}
	}
	return nil
}

// final reports whether the outcome is the tool's own and not that of our cancellation.
func final(o tools.Outcome) bool {
	return o.Status == tools.OK || o.Status == tools.Error && o.ErrorKind != tools.KindProcessCrashed && o.ErrorKind != tools.KindCancelled
}

// nextAttempt is 1 for a call that never began, and one more than the newest start for a call that may run again.
func nextAttempt(p PendingCall) int {
	if n := len(p.Starts); n > 0 {
		last := p.Starts[n-1]
		if repeatable(tools.Effect(last.Effect)) {
			return last.Attempt + 1
		}
		return last.Attempt
	}
	return 1
}

// repeatable reports whether a call of the class may run again after its outcome was lost.
func repeatable(e tools.Effect) bool {
	switch e {
	case tools.ReadOnly, tools.Keyed:
		return true
	case tools.Supervised, tools.Opaque:
		return false
	}
	return false
}

func (r *runner) callTimeout(t tools.Tool) time.Duration {
	for _, grant := range r.state.Contract.Tools {
		if grant.Name == t.Name && grant.Timeout > 0 {
			return grant.Timeout
		}
	}
	if t.Timeout > 0 {
		return t.Timeout
	}
	return defaultCallTimeout
}

// result writes down how a call ended, as the model will be told.
func (r *runner) result(p PendingCall, attempt int, o tools.Outcome, recovered bool) error {
	if attempt == 0 {
		attempt = nextAttempt(p)
	}
	media := make([]message.Media, 0, len(o.Media))
	for _, m := range o.Media {
		blob, err := r.journal.blob(m.Data)
		if err != nil {
			return err
		}
		media = append(media, message.Media{MIMEType: m.MIMEType, Blob: blob})
	}
	text := o.Text
	failed := commandFailed(o)
	if !failed {
		text = guard.Kind(o.ErrorKind).WithHint(text)
	}
	return r.journal.write(record.ToolResult{
		Turn: p.Turn, Attempt: attempt, Recovered: recovered, CommandFailed: failed, DurationMilliseconds: o.Duration.Milliseconds(),
		Result: message.Result{
			CallID: p.ID, Name: p.Name, Status: resultStatus(o.Status), ErrorKind: string(o.ErrorKind), Text: text, Media: media,
		},
	})
}

// refuse answers a call that is not dispatched.
func (r *runner) refuse(p PendingCall, why refusal) error {
	text := why.Text
	if why.by == "" {
		text = guard.Kind(why.ErrorKind).WithHint(text)
	}
	return r.journal.write(record.ToolResult{
		Turn: p.Turn, Attempt: nextAttempt(p), Refusal: string(why.by),
		Result: message.Result{
			CallID: p.ID, Name: p.Name, Status: resultStatus(why.Status), ErrorKind: string(why.ErrorKind), Text: text,
		},
	})
}

// commandFailed tells that the tool worked and the command that it ran reported a failure, as a failing test suite does.
func commandFailed(o tools.Outcome) bool {
	return o.Status == tools.Error && o.ErrorKind == tools.KindExecutionFailed && (o.ExitCode != nil || o.Signal != "")
}

// guarded is how the guard sees calls: by the digest of their arguments.
func guarded(calls []message.Call) []guard.Call {
	out := make([]guard.Call, len(calls))
	for i, c := range calls {
		out[i] = guardedCall(c)
	}
	return out
}

func guardedCall(c message.Call) guard.Call {
	out := guard.Call{ID: c.ID, Tool: c.Name, Arguments: "raw:" + c.RawArguments}
	if c.RawArguments == "" {
		// Arguments of a committed call are a JSON object, so they have a digest.
		out.Arguments, _ = tools.ArgumentsDigest(c.Arguments)
	}
	return out
}

func resultStatus(s tools.Status) message.ResultStatus {
	switch s {
	case tools.OK:
		return message.ResultOK
	case tools.Error:
		return message.ResultError
	case tools.Timeout:
		return message.ResultTimeout
	case tools.Cancelled:
		return message.ResultCancelled
	case tools.InDoubt:
		return message.ResultInDoubt
	case tools.NotRun:
		return message.ResultNotRun
	}
	return message.ResultError
}
