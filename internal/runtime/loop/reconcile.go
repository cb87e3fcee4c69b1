package loop

import (
	"context"
	"fmt"
	"strings"
	"time"

	"belay.dev/belay/internal/runtime/tools"
)

// reconcile settles every call that an earlier epoch started and never finished. It is the first act of an epoch, before
// any model call: an unanswered call makes providers refuse the whole conversation, and a guess about it may repeat an
// effect. A call that was never started needs nothing: its start would be on record, since it precedes the dispatch.
func (r *runner) reconcile(ctx context.Context) error {
	for _, call := range append([]PendingCall(nil), r.state.Pending...) {
		if len(call.Starts) == 0 {
			continue
		}
		start := call.Starts[len(call.Starts)-1]
		outcome, err := r.recovered(ctx, call, start)
		if err != nil {
			return err
		}
		if outcome == nil {
			continue
		}
		if err := r.result(call, start.Attempt, *outcome, true); err != nil {
			return err
		}
	}
	return nil
}

// recovered decides by the effect class what became of a started call: an outcome, or nil for a call to dispatch.
func (r *runner) recovered(ctx context.Context, call PendingCall, start Start) (*tools.Outcome, error) {
	switch tools.Effect(start.Effect) {
	case tools.ReadOnly, tools.Keyed:
		return nil, nil
	case tools.Supervised:
		job, err := r.workspace.Inspect(ctx, call.ID)
		if err != nil {
			return nil, fmt.Errorf("ask the workspace what became of call %s (%s): %w", call.ID, call.Name, err)
		}
		return supervised(call, start, job), nil
	case tools.Opaque:
		return inDoubt(call, start, "Nobody else observed it."), nil
	}
	return inDoubt(call, start, "Its effect class is not known to this version."), nil
}

// supervised reads the supervisor's answer.
func supervised(call PendingCall, start Start, job tools.JobState) *tools.Outcome {
	switch job.State {
	case tools.JobFinished:
		return job.Outcome
	case tools.JobRunning:
		return nil // the next dispatch attaches to it
	case tools.JobUnknown:
		if job.SpoolIntact {
			return nil // the spool proves that it never began
		}
		return inDoubt(call, start, "The workspace has lost its record of calls, so it cannot tell whether this one began.")
	case tools.JobDead:
		return inDoubt(call, start, dead(job))
	}
	return inDoubt(call, start, "The workspace gave no answer that this version understands.")
}

func dead(job tools.JobState) string {
	text := "The workspace recorded its start and no end: its processes were ended together with the workspace."
	if tail := strings.TrimRight(job.OutputTail, "\n"); tail != "" {
		text += " What it had written until then ends with:\n" + tail + "\n"
	}
	return text
}

// inDoubt tells the model the facts, and what they call for. It never says that the call failed, nor that it may be
// repeated: neither is known.
func inDoubt(call PendingCall, start Start, evidence string) *tools.Outcome {
	text := fmt.Sprintf("The outcome of this call is not known. %s was started at %s; the runner was restarted before an outcome was observed. %s "+
		"Check the current state before you decide whether anything of it has to be done again.",
		call.Name, start.At.UTC().Format(time.RFC3339), strings.TrimSpace(evidence))
	return &tools.Outcome{Status: tools.InDoubt, ErrorKind: tools.KindInDoubt, Text: tools.SafeText(text)}
}
