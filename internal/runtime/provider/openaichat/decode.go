package openaichat

import (
	"bytes"
	"encoding/json"
	"strings"

	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/message"
	"belay.dev/belay/internal/runtime/provider"
	"belay.dev/belay/internal/runtime/sse"
)

// maxCalls bounds the calls of one answer; no model asks for more, and a broken stream must not.
const maxCalls = 512

// decoder assembles one answer from its chunks.
type decoder struct {
	scope         message.Scope
	acceptMissing bool
	outputCap     int64

	id             string
	text           strings.Builder
	thinking       strings.Builder
	thinkingField  string
	refused        bool
	calls          []*call
	finish         string
	done           bool
	usage          provider.Usage
	argumentsBytes int
	warnings       []string
}

// call is a tool call under assembly.
type call struct {
	// index is the server's, or -1 for a call without one.
	index     int
	id        string
	name      string
	arguments strings.Builder
}

var doneMarker = []byte("[DONE]")

// Decode consumes one chunk. The terminal marker is a choice with a finish reason; usage may follow it, then [DONE].
func (d *decoder) Decode(e sse.Event) (provider.Step, error) {
	data := bytes.TrimSpace(e.Data)
	if len(data) == 0 {
		return provider.Step{}, nil
	}
	if bytes.Equal(data, doneMarker) {
		d.done = true
		return provider.Step{Done: true, Complete: d.finish != ""}, nil
	}
	if string(e.Name) == "error" {
		return provider.Step{Failed: true}, nil
	}
	if data[0] != '{' {
		return provider.Step{}, malformed("an event is not a JSON object")
	}
	c := chunk{ID: provider.LenientString(d.id)} // the same in every chunk, and then not allocated again
	if err := json.Unmarshal(data, &c); err != nil {
		return provider.Step{}, malformed("an event is not the JSON of a chat completion chunk")
	}
	if provider.IsPresent(c.Error) || len(c.Choices) == 0 && failure.ReportsError(data) {
		return provider.Step{Failed: true}, nil
	}
	return d.chunk(c)
}

func malformed(why string) error {
	return failure.Causef(failure.StreamMalformed, "the answer's stream is malformed: %s", why)
}

func (d *decoder) chunk(c chunk) (provider.Step, error) {
	if d.id == "" {
		d.id = string(c.ID)
	}
	d.readUsage(c.Usage)
	if c.XGroq != nil {
		d.readUsage(c.XGroq.Usage)
	}
	step := provider.Step{}
	for i := range c.Choices {
		choice := &c.Choices[i]
		if choice.Index != 0 {
			continue
		}
		if provider.IsPresent(choice.Error) {
			return provider.Step{Failed: true}, nil
		}
		if provider.IsPresent(choice.ContentFilterResults.Error) {
			d.warn("the provider's content filter was down and did not check the answer")
		}
		progress, err := d.delta(&choice.Delta)
		if err != nil {
			return provider.Step{}, err
		}
		step.Progress = step.Progress || progress
		if choice.FinishReason != "" {
			d.finish = string(choice.FinishReason)
		}
	}
	step.Complete = d.finish != ""
	return step, nil
}

func (d *decoder) warn(text string) {
	for _, w := range d.warnings {
		if w == text {
			return
		}
	}
	d.warnings = append(d.warnings, text)
}

func (d *decoder) readUsage(u *usage) {
	if u == nil || u.PromptTokens == 0 && u.CompletionTokens == 0 {
		return
	}
	d.usage = provider.Usage{
		InputTokens:       int64(u.PromptTokens),
		CachedInputTokens: int64(max(u.PromptTokensDetails.CachedTokens, u.PromptCacheHit)),
		CacheWriteTokens:  int64(u.PromptTokensDetails.CacheWriteTokens),
		OutputTokens:      int64(u.CompletionTokens),
		ReasoningTokens:   int64(u.CompletionTokensDetails.ReasoningTokens),
	}
}

// delta adds one delta, and tells whether it carried content.
func (d *decoder) delta(in *delta) (bool, error) {
	before := d.OutputBytes()
	d.text.WriteString(in.Content.text)
	if in.Refusal != "" {
		d.refused = true
		d.text.WriteString(string(in.Refusal))
	}
	switch {
	case in.ReasoningContent != "":
		d.thinkingField = reasoningContentField
		d.thinking.WriteString(string(in.ReasoningContent))
	case in.Reasoning != "":
		d.thinkingField = reasoningField
		d.thinking.WriteString(string(in.Reasoning))
	}
	d.thinking.WriteString(in.Content.thinking)
	for i := range in.ToolCalls {
		if err := d.callDelta(&in.ToolCalls[i]); err != nil {
			return false, err
		}
	}
	if in.FunctionCall != nil {
		// The form that preceded tool_calls: one call, without index and id.
		legacy := callDelta{Function: *in.FunctionCall}
		if err := d.callDelta(&legacy); err != nil {
			return false, err
		}
	}
	return d.OutputBytes() > before, nil
}

// callDelta finds the call that a piece belongs to. The index names it; but some servers leave the index out, and some
// send all parallel calls, each whole, under index 0. An id that the call does not have yet begins a new one.
func (d *decoder) callDelta(in *callDelta) error {
	index := -1
	if in.Index != nil {
		index = int(*in.Index)
	}
	current := d.find(index, string(in.ID))
	if current == nil {
		if len(d.calls) == maxCalls {
			return malformed("an answer has too many tool calls")
		}
		current = &call{index: index, id: string(in.ID)}
		d.calls = append(d.calls, current)
	}
	if current.id == "" {
		current.id = string(in.ID)
	}
	if name := string(in.Function.Name); name != current.name {
		// A name comes whole in the first piece, repeated in each, or in pieces.
		current.name += name
		d.argumentsBytes += len(name)
	}
	current.arguments.WriteString(string(in.Function.Arguments))
	d.argumentsBytes += len(in.Function.Arguments)
	return nil
}

func (d *decoder) find(index int, id string) *call {
	for i := len(d.calls) - 1; i >= 0; i-- {
		c := d.calls[i]
		sameID := id == "" || c.id == "" || c.id == id
		switch {
		case index >= 0 && c.index == index && sameID:
			return c
		case index < 0 && sameID && (id != "" || i == len(d.calls)-1):
			return c
		}
	}
	return nil
}

// Finish returns the answer. A turn cut by its output limit is an answer with StopLength; the walk decides about it, and
// none of its calls may be executed.
func (d *decoder) Finish() (*message.Message, error) {
	stop, err := d.stop()
	if err != nil {
		return nil, err
	}
	m := &message.Message{Role: message.RoleAssistant, Stop: stop, Origin: &d.scope}
	if d.thinking.Len() > 0 {
		block := message.Block{Kind: message.BlockThinking, Text: d.thinking.String()}
		if d.thinkingField != "" {
			block.Credentials = []message.Credential{{Scope: d.scope, Kind: credentialReasoning, Data: []byte(d.thinkingField)}}
		}
		m.Blocks = append(m.Blocks, block)
	}
	if strings.TrimSpace(d.text.String()) != "" {
		m.Blocks = append(m.Blocks, message.Block{Kind: message.BlockText, Text: d.text.String()})
	}
	for _, c := range d.calls {
		m.Blocks = append(m.Blocks, d.callBlock(c))
	}
	return m, nil
}

func (d *decoder) callBlock(c *call) message.Block {
	block := message.Block{Kind: message.BlockCall, Call: provider.NewCall(c.name, c.arguments.String())}
	if c.id != "" {
		block.Credentials = []message.Credential{{Scope: d.scope, Kind: credentialCallID, Data: []byte(c.id)}}
	}
	return block
}

// stop maps the finish reason, and finds what is no answer.
func (d *decoder) stop() (message.StopReason, error) {
	switch d.finish {
	case "":
		hasContent := strings.TrimSpace(d.text.String()) != "" || len(d.calls) > 0
		if !d.acceptMissing || !d.done || !hasContent {
			return "", d.truncated()
		}
	case "content_filter":
		return "", failure.Causef(failure.ContentFiltered, "the provider's content filter stopped the answer")
	case "error":
		return "", failure.Causef(failure.ServerError, "the provider ended the answer with an error and gave no reason")
	case "insufficient_system_resource":
		return "", failure.Causef(failure.Overloaded, "the provider ended the answer for lack of resources")
	case "length", "max_tokens", "model_length":
		return message.StopLength, nil
	case "stop", "tool_calls", "function_call":
	default:
		d.warn("the answer has an unknown finish reason and was taken as a natural end")
	}
	return d.naturalStop()
}

func (d *decoder) naturalStop() (message.StopReason, error) {
	switch {
	case d.cutAtCap():
		return message.StopLength, nil
	case len(d.calls) > 0:
		return message.StopCalls, nil
	case strings.TrimSpace(d.text.String()) == "":
		return "", failure.Causef(failure.EmptyResponse, "the answer has neither text nor tool calls")
	case d.refused:
		return message.StopRefusal, nil
	}
	return message.StopEnd, nil
}

// cutAtCap finds a cut turn that a router in between has renamed: the output is as long as its cap, and the last call
// does not parse.
func (d *decoder) cutAtCap() bool {
	if d.outputCap <= 0 || d.usage.OutputTokens < d.outputCap || len(d.calls) == 0 {
		return false
	}
	return !provider.IsJSONObject([]byte(d.calls[len(d.calls)-1].arguments.String()))
}

func (d *decoder) truncated() error {
	if d.done {
		return failure.Causef(failure.StreamTruncated,
			"the stream ended with [DONE] and without a finish reason; if this server never sends one, set missingFinishReason to Accept")
	}
	return failure.Causef(failure.StreamTruncated, "the stream ended before a finish reason")
}

// Usage is what the server reported so far; zero until then.
func (d *decoder) Usage() provider.Usage { return d.usage }

// OutputBytes is the size of text, reasoning and calls so far.
func (d *decoder) OutputBytes() int { return d.text.Len() + d.thinking.Len() + d.argumentsBytes }

// Text is the visible text so far.
func (d *decoder) Text() string { return d.text.String() }

// ResponseID is the id of the completion.
func (d *decoder) ResponseID() string { return d.id }

// Warnings are facts worth a record.
func (d *decoder) Warnings() []string { return d.warnings }
