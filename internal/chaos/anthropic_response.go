package chaos

import (
	"encoding/json"
)

func (anthropicMessages) stopReason(s Step) string {
	switch {
	case s.HalfCall:
		return "max_tokens"
	case len(s.Calls) > 0:
		return "tool_use"
	default:
		return "end_turn"
	}
}

// anthropicErrorType is the API's `type` of an error.
func anthropicErrorType(k errorKind) string {
	switch k {
	case kindInvalid:
		return "invalid_request_error"
	case kindAuthentication:
		return "authentication_error"
	case kindPermission:
		return "permission_error"
	case kindNotFound:
		return "not_found_error"
	case kindConflict:
		return "conflict_error"
	case kindTooLarge:
		return "request_too_large"
	case kindRateLimit:
		return "rate_limit_error"
	case kindOverloaded:
		return "overloaded_error"
	case kindTimeout:
		return "timeout_error"
	case kindBilling:
		return "billing_error"
	case kindServer, kindScriptExhausted:
		return "api_error"
	}
	return "api_error"
}

type anthropicErrorBody struct {
	Type      string         `json:"type"`
	Error     anthropicError `json:"error"`
	RequestID string         `json:"request_id,omitempty"`
}

type anthropicError struct {
	Type    string            `json:"type"`
	Message string            `json:"message"`
	Details map[string]string `json:"details,omitempty"`
}

func anthropicErrorOf(kind, code, message string) anthropicError {
	e := anthropicError{Type: kind, Message: message}
	if code != "" {
		e.Details = map[string]string{"error_code": code}
	}
	return e
}

func (anthropicMessages) errorBody(r rejection, requestID string) []byte {
	code := r.code
	if r.kind == kindAuthentication && r.typeName == "" {
		code = "" // the other dialect's code for a wrong key
	}
	return compact(anthropicErrorBody{Type: "error", Error: anthropicErrorOf(orDefault(r.typeName, anthropicErrorType(r.kind)), code, r.message), RequestID: requestID})
}

func (anthropicMessages) inBandError(e InBandError) []byte {
	return event("error", anthropicErrorBody{Type: "error",
		Error: anthropicErrorOf(orDefault(e.Type, "overloaded_error"), e.Code, orDefault(e.Message, "Overloaded"))})
}

// ping ignores the text: this API's pings are events without any.
func (anthropicMessages) ping(string) []byte {
	return event("ping", anthropicEvent{Type: "ping"})
}

func event(name string, data any) []byte {
	return []byte("event: " + name + "\ndata: " + string(compact(data)) + "\n\n")
}

// anthropicEvent is one event of a stream; only the fields of its type are set.
type anthropicEvent struct {
	Type         string                 `json:"type"`
	Message      *anthropicMessage      `json:"message,omitempty"`
	Index        *int                   `json:"index,omitempty"`
	ContentBlock any                    `json:"content_block,omitempty"`
	Delta        any                    `json:"delta,omitempty"`
	Usage        *anthropicOutputFigure `json:"usage,omitempty"`
}

type anthropicMessage struct {
	ID           string         `json:"id"`
	Type         string         `json:"type"`
	Role         string         `json:"role"`
	Model        string         `json:"model"`
	Content      []any          `json:"content"`
	StopReason   *string        `json:"stop_reason"`
	StopSequence *string        `json:"stop_sequence"`
	Usage        anthropicUsage `json:"usage"`
}

type anthropicUsage struct {
	InputTokens              int64  `json:"input_tokens"`
	CacheCreationInputTokens int64  `json:"cache_creation_input_tokens"`
	CacheReadInputTokens     int64  `json:"cache_read_input_tokens"`
	OutputTokens             int64  `json:"output_tokens"`
	ServiceTier              string `json:"service_tier"`
}

type anthropicOutputFigure struct {
	InputTokens              int64 `json:"input_tokens"`
	CacheCreationInputTokens int64 `json:"cache_creation_input_tokens"`
	CacheReadInputTokens     int64 `json:"cache_read_input_tokens"`
	OutputTokens             int64 `json:"output_tokens"`
}

type anthropicText struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type anthropicThinking struct {
	Type      string `json:"type"`
	Thinking  string `json:"thinking"`
	Signature string `json:"signature"`
}

type anthropicRedacted struct {
	Type string `json:"type"`
	Data string `json:"data"`
}

type anthropicToolUse struct {
	Type  string          `json:"type"`
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}

type anthropicThinkingDelta struct {
	Type     string `json:"type"`
	Thinking string `json:"thinking"`
}

type anthropicSignatureDelta struct {
	Type      string `json:"type"`
	Signature string `json:"signature"`
}

type anthropicInputDelta struct {
	Type        string `json:"type"`
	PartialJSON string `json:"partial_json"`
}

type anthropicStopDelta struct {
	StopReason   string  `json:"stop_reason"`
	StopSequence *string `json:"stop_sequence"`
}

// message is the answer without its content. Input tokens exclude the cached ones in this API.
func (anthropicMessages) message(t turn, output int64) *anthropicMessage {
	return &anthropicMessage{ID: t.id, Type: "message", Role: "assistant", Model: t.model, Content: []any{},
		Usage: anthropicUsage{InputTokens: t.usage.Input - t.usage.Cached, CacheReadInputTokens: t.usage.Cached, OutputTokens: output, ServiceTier: "standard"}}
}

// anthropicStream builds the events of one stream.
type anthropicStream struct {
	out   []frame
	index int
}

func (s *anthropicStream) add(name string, e anthropicEvent, content int) {
	e.Type = name
	s.out = append(s.out, frame{data: event(name, e), content: content})
}

// block adds one content block: its start, its deltas and its stop. A ping follows the start of the first.
func (s *anthropicStream) block(start any, startContent int, deltas func(delta func(d any, content int))) {
	index := s.index
	s.index++
	s.add("content_block_start", anthropicEvent{Index: &index, ContentBlock: start}, startContent)
	if index == 0 {
		s.out = append(s.out, frame{data: anthropicMessages{}.ping(""), ping: true})
	}
	deltas(func(d any, content int) {
		s.add("content_block_delta", anthropicEvent{Index: &index, Delta: d}, content)
	})
	s.add("content_block_stop", anthropicEvent{Index: &index}, 0)
}

func (a anthropicMessages) frames(t turn) []frame {
	s := &anthropicStream{}
	s.add("message_start", anthropicEvent{Message: a.message(t, 1)}, 0)
	if t.thinking != "" {
		s.block(anthropicThinking{Type: "thinking"}, 0, func(delta func(any, int)) {
			for _, text := range words(t.thinking, t.deltaCharacters) {
				delta(anthropicThinkingDelta{"thinking_delta", text}, len(text))
			}
			delta(anthropicSignatureDelta{"signature_delta", t.signature}, 0)
		})
	}
	if t.redacted != "" {
		s.block(anthropicRedacted{"redacted_thinking", t.redacted}, len(t.redacted), func(func(any, int)) {})
	}
	if t.text != "" {
		s.block(anthropicText{Type: "text"}, 0, func(delta func(any, int)) {
			for _, text := range words(t.text, t.deltaCharacters) {
				delta(anthropicText{"text_delta", text}, len(text))
			}
		})
	}
	for _, c := range t.calls {
		s.block(anthropicToolUse{"tool_use", c.id, c.name, json.RawMessage("{}")}, len(c.name), func(delta func(any, int)) {
			delta(anthropicInputDelta{Type: "input_json_delta"}, 0)
			for _, text := range pieces(c.arguments, orDefault(t.deltaCharacters, argumentCharacters)) {
				delta(anthropicInputDelta{"input_json_delta", text}, len(text))
			}
		})
	}
	closing := len(s.out)
	if t.stop != "" {
		s.add("message_delta", anthropicEvent{Delta: anthropicStopDelta{StopReason: t.stop},
			Usage: &anthropicOutputFigure{InputTokens: t.usage.Input - t.usage.Cached, CacheReadInputTokens: t.usage.Cached, OutputTokens: t.usage.Output}}, 0)
	}
	if !t.omitDone {
		s.add("message_stop", anthropicEvent{}, 0)
	}
	if closing < len(s.out) {
		s.out[closing].closing = true
	}
	return s.out
}

func (a anthropicMessages) whole(t turn) []byte {
	m := a.message(t, t.usage.Output)
	m.StopReason = nullable(t.stop)
	if t.thinking != "" {
		m.Content = append(m.Content, anthropicThinking{"thinking", t.thinking, t.signature})
	}
	if t.redacted != "" {
		m.Content = append(m.Content, anthropicRedacted{"redacted_thinking", t.redacted})
	}
	if t.text != "" {
		m.Content = append(m.Content, anthropicText{"text", t.text})
	}
	for _, c := range t.calls {
		input := json.RawMessage(c.arguments)
		if !json.Valid(input) {
			input = json.RawMessage("{}") // a whole document cannot hold half a call
		}
		m.Content = append(m.Content, anthropicToolUse{"tool_use", c.id, c.name, input})
	}
	return compact(m)
}
