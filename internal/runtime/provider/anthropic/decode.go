package anthropic

import (
	"bytes"
	"encoding/json"
	"strings"

	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/message"
	"belay.dev/belay/internal/runtime/provider"
	"belay.dev/belay/internal/runtime/sse"
)

// maxBlocks bounds the content blocks of one answer.
const maxBlocks = 2048

// decoder assembles one answer from its events.
type decoder struct {
	scope         message.Scope
	acceptMissing bool

	id          string
	blocks      []*block
	stopReason  string
	stopped     bool
	usage       provider.Usage
	outputBytes int
	warnings    []string
}

// block is a content block under assembly.
type block struct {
	index     int64
	kind      string
	text      strings.Builder
	input     strings.Builder
	signature strings.Builder
	data      string
	id        string
	name      string
	// startInput is the input of the block's start, which some servers send whole in place of deltas.
	startInput json.RawMessage
}

const (
	blockText     = "text"
	blockThinking = "thinking"
	blockRedacted = "redacted_thinking"
	blockToolUse  = "tool_use"
)

// Decode consumes one event. The terminal marker is a message_delta with a stop reason; message_stop, which may be cut
// off, adds nothing to it.
func (d *decoder) Decode(e sse.Event) (provider.Step, error) {
	data := bytes.TrimSpace(e.Data)
	if len(data) == 0 {
		return provider.Step{}, nil
	}
	if string(e.Name) == "error" {
		return provider.Step{Failed: true}, nil
	}
	if data[0] != '{' {
		return provider.Step{}, malformed("an event is not a JSON object")
	}
	var event streamEvent
	if err := json.Unmarshal(data, &event); err != nil {
		return provider.Step{}, malformed("an event is not the JSON of a message event")
	}
	kind := string(event.Type)
	if kind == "" {
		kind = string(e.Name)
	}
	if kind == "error" || provider.IsPresent(event.Error) {
		return provider.Step{Failed: true}, nil
	}
	return d.event(kind, &event)
}

func malformed(why string) error {
	return failure.Causef(failure.StreamMalformed, "the answer's stream is malformed: %s", why)
}

func (d *decoder) event(kind string, e *streamEvent) (provider.Step, error) {
	step := provider.Step{}
	var err error
	switch kind {
	case "message_start":
		if e.Message != nil {
			d.id = string(e.Message.ID)
			d.readInput(e.Message.Usage)
		}
	case "content_block_start":
		step.Progress, err = d.start(e)
	case "content_block_delta":
		step.Progress, err = d.delta(e)
	case "message_delta":
		if e.Delta != nil && e.Delta.StopReason != "" {
			d.stopReason = string(e.Delta.StopReason)
		}
		d.readInput(e.Usage)
		if e.Usage != nil {
			d.usage.OutputTokens = int64(e.Usage.OutputTokens)
		}
	case "message_stop":
		d.stopped = true
		step.Done = true
	}
	// Other types, ping and content_block_stop among them, are no progress; the API announces that it will add some.
	step.Complete = d.stopReason != ""
	return step, err
}

// readInput takes input figures, which come at the start, and at the end again. The output figure of the start is not
// read: it counts the first token only.
func (d *decoder) readInput(u *usage) {
	if u == nil || u.InputTokens == 0 && u.CacheReadInputTokens == 0 && u.CacheCreationInputTokens == 0 {
		return
	}
	d.usage.InputTokens = int64(u.InputTokens + u.CacheReadInputTokens + u.CacheCreationInputTokens)
	d.usage.CachedInputTokens = int64(u.CacheReadInputTokens)
	d.usage.CacheWriteTokens = int64(u.CacheCreationInputTokens)
}

func (d *decoder) start(e *streamEvent) (bool, error) {
	in := e.ContentBlock
	if in == nil {
		return false, malformed("a content block starts without its content")
	}
	b, err := d.open(int64(e.Index), string(in.Type))
	if err != nil {
		return false, err
	}
	b.id, b.name, b.data = string(in.ID), string(in.Name), string(in.Data)
	b.text.WriteString(string(in.Text))
	b.text.WriteString(string(in.Thinking))
	b.signature.WriteString(string(in.Signature))
	if len(in.Input) > 2 {
		b.startInput = bytes.Clone(in.Input)
	}
	switch b.kind {
	case blockText, blockThinking, blockRedacted, blockToolUse:
	default:
		d.warn("the answer has a content block of an unknown type, which was left out")
	}
	d.outputBytes += b.text.Len() + len(b.name) + len(b.startInput)
	// A block of redacted thinking comes whole, and the name of a call is content, too.
	return b.text.Len() > 0 || b.kind == blockRedacted || b.kind == blockToolUse, nil
}

func (d *decoder) open(index int64, kind string) (*block, error) {
	if len(d.blocks) == maxBlocks {
		return nil, malformed("an answer has too many content blocks")
	}
	b := &block{index: index, kind: kind}
	d.blocks = append(d.blocks, b)
	return b, nil
}

func (d *decoder) delta(e *streamEvent) (bool, error) {
	if e.Delta == nil {
		return false, malformed("a content block delta has no delta")
	}
	b, err := d.blockFor(int64(e.Index), string(e.Delta.Type))
	if err != nil || b == nil {
		return false, err
	}
	var piece string
	switch string(e.Delta.Type) {
	case "text_delta":
		piece = string(e.Delta.Text)
		b.text.WriteString(piece)
	case "thinking_delta":
		piece = string(e.Delta.Thinking)
		b.text.WriteString(piece)
	case "input_json_delta":
		piece = string(e.Delta.PartialJSON)
		b.input.WriteString(piece)
	case "signature_delta":
		b.signature.WriteString(string(e.Delta.Signature))
		return e.Delta.Signature != "", nil
	}
	d.outputBytes += len(piece)
	return piece != "", nil
}

// blockFor finds the block of a delta. Some compatible servers leave out the start of a text block; a piece of a call
// without its start has no name, and is broken.
func (d *decoder) blockFor(index int64, deltaType string) (*block, error) {
	for i := len(d.blocks) - 1; i >= 0; i-- {
		if d.blocks[i].index == index {
			return d.blocks[i], nil
		}
	}
	switch deltaType {
	case "text_delta":
		return d.open(index, blockText)
	case "thinking_delta", "signature_delta":
		return d.open(index, blockThinking)
	case "input_json_delta":
		return nil, malformed("a piece of a tool call came before its start")
	}
	return nil, nil
}

func (d *decoder) warn(text string) {
	for _, w := range d.warnings {
		if w == text {
			return
		}
	}
	d.warnings = append(d.warnings, text)
}

// Finish returns the answer. A turn cut by its output limit is an answer with StopLength; the walk decides about it, and
// none of its calls may be executed.
func (d *decoder) Finish() (*message.Message, error) {
	m := &message.Message{Role: message.RoleAssistant, Origin: &d.scope}
	for _, b := range d.blocks {
		if out, ok := d.finished(b); ok {
			m.Blocks = append(m.Blocks, out)
		}
	}
	stop, err := d.stop(*m)
	if err != nil {
		return nil, err
	}
	m.Stop = stop
	return m, nil
}

func (d *decoder) finished(b *block) (message.Block, bool) {
	switch b.kind {
	case blockText:
		return message.Block{Kind: message.BlockText, Text: b.text.String()}, !blank(b.text.String())
	case blockThinking:
		out := message.Block{Kind: message.BlockThinking, Text: b.text.String()}
		out.Credentials = d.credential(credentialSignature, b.signature.String())
		return out, out.Text != "" || len(out.Credentials) > 0
	case blockRedacted:
		out := message.Block{Kind: message.BlockThinking, Credentials: d.credential(credentialRedacted, b.data)}
		return out, len(out.Credentials) > 0
	case blockToolUse:
		input := b.input.String()
		if blank(input) {
			input = string(b.startInput)
		}
		out := message.Block{Kind: message.BlockCall, Call: provider.NewCall(b.name, input)}
		out.Credentials = d.credential(credentialCallID, b.id)
		return out, true
	}
	return message.Block{}, false
}

func (d *decoder) credential(kind, data string) []message.Credential {
	if data == "" {
		return nil
	}
	return []message.Credential{{Scope: d.scope, Kind: kind, Data: []byte(data)}}
}

// stop maps the stop reason, and finds what is no answer.
func (d *decoder) stop(m message.Message) (message.StopReason, error) {
	hasContent := m.Text() != "" || len(m.Calls()) > 0
	switch d.stopReason {
	case "":
		if !d.acceptMissing || !d.stopped || !hasContent {
			return "", failure.Causef(failure.StreamTruncated, "the stream ended before a stop reason")
		}
	case "max_tokens":
		return message.StopLength, nil
	case "refusal":
		return message.StopRefusal, nil
	case "model_context_window_exceeded":
		return "", failure.Causef(failure.ContextLengthExceeded, "the answer ran into the end of the model's context window")
	case "pause_turn":
		if hasContent {
			return message.StopPaused, nil
		}
	case "end_turn", "stop_sequence", "tool_use":
	default:
		d.warn("the answer has an unknown stop reason and was taken as a natural end")
	}
	switch {
	case len(m.Calls()) > 0:
		return message.StopCalls, nil
	case hasContent:
		return message.StopEnd, nil
	}
	return "", failure.Causef(failure.EmptyResponse, "the answer has neither text nor tool calls")
}

// Usage is what the API reported so far; zero until then.
func (d *decoder) Usage() provider.Usage { return d.usage }

// OutputBytes is the size of text, thinking and calls so far.
func (d *decoder) OutputBytes() int { return d.outputBytes }

// Text is the visible text so far.
func (d *decoder) Text() string {
	var text strings.Builder
	for _, b := range d.blocks {
		if b.kind == blockText {
			text.WriteString(b.text.String())
		}
	}
	return text.String()
}

// ResponseID is the id of the message.
func (d *decoder) ResponseID() string { return d.id }

// Warnings are facts worth a record.
func (d *decoder) Warnings() []string { return d.warnings }
