package runner

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"belay.dev/belay/api/v1alpha1"
	"belay.dev/belay/internal/runtime/breaker"
	"belay.dev/belay/internal/runtime/budget"
	"belay.dev/belay/internal/runtime/ladder"
	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/loop"
	"belay.dev/belay/internal/runtime/route"
	"belay.dev/belay/internal/runtime/tools"
)

const (
	// maxExcerpt is how much of an answer a status may hold, in bytes.
	maxExcerpt = 4096
	// maxMessage is how long a message of a status may be, in bytes.
	maxMessage = 2048
	// resultPath is the whole answer, in the ledger's directory.
	resultPath = "result.txt"
)

// statusOf is the runner's block of an AgentRun's status. It is pure.
func statusOf(epoch int64, p loop.Progress) v1alpha1.RunnerStatus {
	s := p.State
	out := v1alpha1.RunnerStatus{
		Epoch:         epoch,
		Turn:          ptr.To(int32(s.Committed)),
		ReplayedTurns: ptr.To(int32(s.Replayed)),
		Usage:         usageOf(s.Account.Total, requests(s.Account.Legs), s.Retries),
		Ledger:        headOf(p.Head),
		Routes:        routesOf(p.Levels),
		UnusableLegs:  unusable(s.Skipped),
	}
	out.Leg, out.FailoverFrom, out.LegDisplay = s.Asked, s.AskedFor, s.Asked
	if s.AskedFor != "" {
		out.LegDisplay = fmt.Sprintf("%s (from %s)", s.Asked, s.AskedFor)
	}
	if w := p.Waiting; w != nil {
		out.Wake = &v1alpha1.Wake{Reason: wakeReason(w.Reason), Until: microTime(w.Until), Routes: names(w.Routes)}
	}
	return out
}

// unusable are the legs that somebody has to do something about: not those whose route will recover, and not those that
// the run or the ladder's owner chose not to use.
func unusable(skipped []record.Skipped) []v1alpha1.UnusableLeg {
	var out []v1alpha1.UnusableLeg
	for _, s := range skipped {
		switch ladder.SkipReason(s.Reason) {
		case ladder.NotSelected, ladder.DrainedLeg, ladder.RouteOpen, ladder.RouteCooling, ladder.RouteHalfOpen, ladder.UnknownLeg:
		case ladder.ClassTooLow, ladder.MeteredDenied, ladder.NoPrice, ladder.SkipCredentialMissing, ladder.SkipCredentialNotMounted,
			ladder.SkipCredentialInvalid, ladder.SkipCredentialNotForHost, ladder.CapabilityMissing, ladder.WindowTooSmall:
			out = append(out, v1alpha1.UnusableLeg{Name: s.Leg, Reason: s.Reason})
		}
	}
	return out
}

// wakeReason names what a run waits for in the words of its Parked condition.
func wakeReason(reason string) string {
	if reason == string(ladder.ParkCredential) {
		return v1alpha1.ReasonCredentialInvalid
	}
	return v1alpha1.ReasonAllRoutesTripped
}

func names(routes []route.Name) []string {
	out := make([]string, len(routes))
	for i, r := range routes {
		out[i] = string(r)
	}
	return out
}

func requests(legs []budget.LegCharge) int {
	n := 0
	for _, l := range legs {
		n += l.Requests
	}
	return n
}

func usageOf(c budget.Charge, requests, retries int) *v1alpha1.Usage {
	u := c.Usage
	return &v1alpha1.Usage{
		Requests: ptr.To(int64(requests)), Retries: ptr.To(int64(retries)),
		InputTokens: ptr.To(u.InputTokens), CachedInputTokens: ptr.To(u.CachedInputTokens), CacheWriteTokens: ptr.To(u.CacheWriteTokens),
		OutputTokens: ptr.To(u.OutputTokens), ReasoningTokens: ptr.To(u.ReasoningTokens), TotalTokens: ptr.To(u.Tokens()),
		CostMicroUSD: ptr.To(c.CostMicroUSD), Cost: budget.Dollars(c.CostMicroUSD),
	}
}

func headOf(h ledger.Head) *v1alpha1.LedgerHead {
	if h.Seq == 0 {
		return nil
	}
	return &v1alpha1.LedgerHead{Seq: int64(h.Seq), Hash: h.Hash}
}

// routesOf are the levels that say anything, ordered by name.
func routesOf(levels map[route.Name]breaker.Level) []v1alpha1.RouteLevel {
	var out []v1alpha1.RouteLevel
	for _, name := range slices.Sorted(maps.Keys(levels)) {
		if l := levels[name]; l != (breaker.Level{Generation: l.Generation}) {
			out = append(out, levelOf(name, l))
		}
	}
	return out
}

func levelOf(name route.Name, l breaker.Level) v1alpha1.RouteLevel {
	return v1alpha1.RouteLevel{
		Route: string(name), Generation: ptr.To(l.Generation), ConsecutiveBlind: ptr.To(int32(l.ConsecutiveBlind)),
		LastKind: string(l.LastFailure.Kind), LastHTTPStatus: int32(l.LastFailure.HTTPStatus), LastCode: l.LastFailure.Code,
		LastFailureTime: microTime(l.LastFailure.Time), LastSuccessTime: microTime(l.LastSuccessTime), CoolUntil: microTime(l.CoolUntil),
		ProbeToken: l.ProbeToken, ProbeResult: v1alpha1.ProbeResult(l.ProbeResult),
	}
}

func microTime(t time.Time) *metav1.MicroTime {
	if t.IsZero() {
		return nil
	}
	return &metav1.MicroTime{Time: t.UTC().Truncate(time.Microsecond)}
}

// finalOf is the last report of an epoch that ended in order. It is pure.
func finalOf(end loop.End) v1alpha1.Final {
	s := end.State
	out := v1alpha1.Final{
		Usage: usageOf(s.Account.Total, requests(s.Account.Legs), s.Retries), Legs: legsOf(s.Account.Legs), Head: headOf(end.Head),
	}
	switch {
	case end.Finished != nil:
		f := end.Finished
		out.Outcome, out.Reason, out.Message = outcomeOf(f.Reason), f.Reason, f.Message
		if f.Text != "" {
			sum := sha256.Sum256([]byte(f.Text))
			out.Text = tools.HeadText([]byte(f.Text), maxExcerpt)
			out.Size, out.SHA256, out.Path = ptr.To(int64(len(f.Text))), hex.EncodeToString(sum[:]), resultPath
		}
	case end.Parked != nil:
		out.Outcome, out.Reason, out.Message = v1alpha1.FinalParked, wakeReason(end.Parked.Reason), end.Parked.Message
	default:
		stopped := interrupted()
		out.Outcome, out.Reason, out.Message = stopped.Outcome, stopped.Reason, stopped.Message
	}
	out.Message = tools.HeadText([]byte(out.Message), maxMessage)
	return out
}

// interrupted is the end of an epoch that was asked to stop.
func interrupted() v1alpha1.Final {
	return v1alpha1.Final{
		Outcome: v1alpha1.FinalInterrupted, Reason: v1alpha1.ReasonRunning,
		Message: "The runner was asked to stop; what it did so far is in the ledger.",
	}
}

func outcomeOf(reason string) v1alpha1.FinalOutcome {
	switch reason {
	case v1alpha1.ReasonCompleted:
		return v1alpha1.FinalProduced
	case v1alpha1.ReasonOutcomeUnknown:
		return v1alpha1.FinalUnknown
	default:
		return v1alpha1.FinalFailed
	}
}

func legsOf(legs []budget.LegCharge) []v1alpha1.LegUsage {
	out := make([]v1alpha1.LegUsage, 0, len(legs))
	for _, l := range legs {
		out = append(out, v1alpha1.LegUsage{Name: l.Leg, Usage: usageOf(l.Charge, l.Requests, 0)})
	}
	slices.SortFunc(out, func(a, b v1alpha1.LegUsage) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
