package chaos

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"belay.dev/belay/internal/runtime/route"
)

// problem is something wrong with a field of a leg or a step.
type problem struct{ field, text string }

// MissingFinishReason is the value of Step.FinishReason that leaves the stop reason out.
const MissingFinishReason = "Missing"

func oneOf[T ~string](field string, value T, allowed ...T) []problem {
	if slices.Contains(allowed, value) {
		return nil
	}
	words := make([]string, len(allowed))
	for i, a := range allowed {
		words[i] = string(a)
	}
	return []problem{{field, fmt.Sprintf("%q is none of %s", value, strings.Join(words, ", "))}}
}

// problems checks the leg itself, with its defaults set.
func (l Leg) problems() []problem {
	var ps []problem
	ps = append(ps, oneOf("dialect", l.Dialect, route.OpenAIChat, route.AnthropicMessages)...)
	ps = append(ps, oneOf("vendor", l.Vendor, VendorOpenAI, VendorCompatible, VendorMistral, VendorDeepSeek)...)
	ps = append(ps, oneOf("advance", l.Advance, AdvancePerRequest, AdvancePerConversation)...)
	ps = append(ps, oneOf("undeclaredCalls", l.UndeclaredCalls, UndeclaredAccept, UndeclaredReject)...)
	if l.Dialect != route.OpenAIChat && l.Vendor != VendorOpenAI {
		ps = append(ps, problem{"vendor", "only the dialect OpenAIChat has vendors"})
	}
	if l.ContextWindow < 0 {
		ps = append(ps, problem{"contextWindow", "must not be negative"})
	}
	return ps
}

// problems checks one step, with its defaults set, as a step of that leg.
func (s Step) problems(leg Leg) []problem {
	ps := s.kindProblems()
	ps = append(ps, s.turnProblems(leg)...)
	ps = append(ps, s.responseProblems(leg)...)
	ps = append(ps, s.streamProblems(leg)...)
	return ps
}

// isTurn tells whether the step is a model turn.
func (s Step) isTurn() bool {
	return s.Answer != nil || s.Text != "" || s.Thinking != "" || s.RedactedThinking != "" || len(s.Calls) > 0
}

func (s Step) kindProblems() []problem {
	var kinds []string
	for _, k := range []struct {
		name string
		set  bool
	}{
		{"status", s.Status != 0},
		{"redirect", s.Redirect != nil},
		{"reset", s.Reset != nil},
		{"silence", s.Silence != nil},
		{"rawEvents", s.RawEvents != nil},
		{"a model turn (answer, text, thinking, calls)", s.isTurn()},
	} {
		if k.set {
			kinds = append(kinds, k.name)
		}
	}
	switch len(kinds) {
	case 1:
		return nil
	case 0:
		return []problem{{"", "says nothing to do: needs status, redirect, reset, silence, rawEvents, answer, text, thinking or calls"}}
	default:
		return []problem{{"", "says several things to do: " + strings.Join(kinds, " and ")}}
	}
}

func (s Step) turnProblems(leg Leg) []problem {
	var ps []problem
	if s.Answer != nil && s.Text != "" {
		ps = append(ps, problem{"text", "a turn has either answer or text"})
	}
	if s.Answer != nil && len(s.Calls) > 0 {
		ps = append(ps, problem{"answer", "an answer ends the conversation; the text in front of calls is text"})
	}
	if s.Thinking != "" && leg.Dialect == route.OpenAIChat && (leg.Vendor == VendorOpenAI || leg.Vendor == VendorMistral) {
		ps = append(ps, problem{"thinking", fmt.Sprintf("the vendor %s shows no reasoning in this API; set the leg's vendor to Compatible or DeepSeek", leg.Vendor)})
	}
	if s.RedactedThinking != "" && leg.Dialect != route.AnthropicMessages {
		ps = append(ps, problem{"redactedThinking", "only the dialect AnthropicMessages has it"})
	}
	for i, c := range s.Calls {
		field := "calls[" + strconv.Itoa(i) + "]."
		if c.Name == "" {
			ps = append(ps, problem{field + "name", "a call needs a name"})
		}
		if c.ArgumentsRaw != nil && len(c.Arguments) > 0 {
			ps = append(ps, problem{field + "argumentsRaw", "a call has either arguments or argumentsRaw"})
		}
		var object map[string]any
		if len(c.Arguments) > 0 && (json.Unmarshal(c.Arguments, &object) != nil || object == nil) {
			ps = append(ps, problem{field + "arguments", "must be an object; use argumentsRaw for anything else"})
		}
	}
	if s.HalfCall && len(s.Calls) == 0 {
		ps = append(ps, problem{"halfCall", "needs calls"})
	}
	for name, u := range map[string]*Usage{"usage": s.Usage, "billing": s.Billing} {
		if u != nil && (u.Input < 0 || u.Output < 0 || u.Cached < 0 || u.Cached > u.Input) {
			ps = append(ps, problem{name, "figures must not be negative, and cached is a part of input"})
		}
	}
	return ps
}

func (s Step) responseProblems(Leg) []problem {
	var ps []problem
	if s.Status != 0 && (s.Status < 200 || s.Status > 599) {
		ps = append(ps, problem{"status", fmt.Sprintf("%d is no final HTTP status", s.Status)})
	}
	if s.Body != "" && s.Status == 0 {
		ps = append(ps, problem{"body", "needs status"})
	}
	if s.Error != nil && (s.Status == 0 || s.Body != "") {
		ps = append(ps, problem{"error", "needs status, and no body"})
	}
	if s.Redirect != nil {
		if s.Redirect.Location == "" {
			ps = append(ps, problem{"redirect.location", "must not be empty"})
		}
		switch s.Redirect.Status {
		case 0, http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		default:
			ps = append(ps, problem{"redirect.status", fmt.Sprintf("%d is no redirect that names a location", s.Redirect.Status)})
		}
	}
	if s.RetryAfter != nil {
		form := orDefault(s.RetryAfter.Form, RetryAfterSeconds)
		ps = append(ps, oneOf("retryAfter.form", form, RetryAfterSeconds, RetryAfterDate, RetryAfterMilliseconds)...)
	}
	if s.Silence != nil {
		ps = append(ps, oneOf("silence.after", orDefault(s.Silence.After, SilenceAfterAccept), SilenceAfterAccept, SilenceAfterHeaders)...)
	}
	if s.DelayMilliseconds < 0 {
		ps = append(ps, problem{"delayMilliseconds", "must not be negative"})
	}
	if s.FirstByteDelayMilliseconds < 0 {
		ps = append(ps, problem{"firstByteDelayMilliseconds", "must not be negative"})
	}
	return ps
}

func (s Step) streamProblems(leg Leg) []problem {
	var ps []problem
	ps = append(ps, oneOf("cut", s.Cut, CutClose, CutAbort, CutReset, CutSilence)...)
	if s.CutAfterEvents != nil && s.CutAfterBytes != nil {
		ps = append(ps, problem{"cutAfterBytes", "a stream is cut after events or after bytes, not both"})
	}
	for _, n := range []struct {
		field string
		value *int
	}{{"cutAfterEvents", s.CutAfterEvents}, {"cutAfterBytes", s.CutAfterBytes}} {
		if n.value != nil && *n.value < 0 {
			ps = append(ps, problem{n.field, "must not be negative"})
		}
	}
	if s.Cut != CutClose && s.CutAfterEvents == nil && s.CutAfterBytes == nil {
		ps = append(ps, problem{"cut", "needs cutAfterEvents or cutAfterBytes"})
	}
	if s.ChunkSize < 0 {
		ps = append(ps, problem{"chunkSize", "must not be negative"})
	}
	if s.DeltaCharacters < 0 {
		ps = append(ps, problem{"deltaCharacters", "must not be negative"})
	}
	if s.Comments == Forever && s.DelayMilliseconds == 0 {
		ps = append(ps, problem{"comments", "pings without end need delayMilliseconds between them"})
	}
	if e := s.InBandError; e != nil {
		shape := orDefault(e.Shape, ErrorNested)
		ps = append(ps, oneOf("inBandError.shape", shape, ErrorNested, ErrorFlat)...)
		if shape == ErrorFlat && leg.Dialect != route.OpenAIChat {
			ps = append(ps, problem{"inBandError.shape", "only the dialect OpenAIChat has flat errors"})
		}
		if e.AfterEvents != nil && *e.AfterEvents < 0 {
			ps = append(ps, problem{"inBandError.afterEvents", "must not be negative"})
		}
	}
	// Fields of a stream on a step without one would be ignored silently.
	if !s.isTurn() && s.RawEvents == nil {
		for field, set := range map[string]bool{
			"cutAfterEvents": s.CutAfterEvents != nil, "cutAfterBytes": s.CutAfterBytes != nil, "inBandError": s.InBandError != nil,
			"comments": s.Comments != 0, "chunkSize": s.ChunkSize != 0, "deltaCharacters": s.DeltaCharacters != 0,
			"finishReason": s.FinishReason != "", "usage": s.Usage != nil, "omitDone": s.OmitDone, "hangAfterTerminal": s.HangAfterTerminal,
		} {
			if set {
				ps = append(ps, problem{field, "needs a model turn or rawEvents"})
			}
		}
	}
	slices.SortFunc(ps, func(a, b problem) int { return strings.Compare(a.field, b.field) })
	return ps
}
