package chaos

import (
	"encoding/json"
	"strings"
)

func (openAIChat) stopReason(s Step) string {
	switch {
	case s.HalfCall:
		return "length"
	case len(s.Calls) > 0:
		return "tool_calls"
	default:
		return "stop"
	}
}

// openAIErrorType is the API's `type` of an error.
func openAIErrorType(k errorKind) string {
	switch k {
	case kindAuthentication, kindInvalid, kindPermission, kindNotFound, kindConflict, kindTooLarge:
		return "invalid_request_error"
	case kindRateLimit:
		return "rate_limit_error"
	case kindBilling:
		return "insufficient_quota"
	case kindServer, kindOverloaded, kindTimeout, kindScriptExhausted:
		return "server_error"
	}
	return "server_error"
}

type openAIError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

func nullable(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func (openAIChat) errorBody(r rejection, _ string) []byte {
	return indented(map[string]any{"error": openAIError{Message: r.message, Type: orDefault(r.typeName, openAIErrorType(r.kind)), Param: nullable(r.param), Code: nullable(r.code)}})
}

func (openAIChat) inBandError(e InBandError) []byte {
	message := orDefault(e.Message, "The server had an error while it made the answer.")
	if e.Shape == ErrorFlat {
		return []byte("data: " + string(compact(struct {
			Object  string `json:"object"`
			Message string `json:"message"`
			Type    string `json:"type"`
			Param   any    `json:"param"`
			Code    any    `json:"code"`
		}{"error", message, orDefault(e.Type, "InternalServerError"), nullable(e.Param), orNull(e.Code, 500)})) + "\n\ndata: [DONE]\n\n")
	}
	return []byte("data: " + string(compact(map[string]any{
		"error": openAIError{Message: message, Type: orDefault(e.Type, "server_error"), Param: nullable(e.Param), Code: nullable(e.Code)},
	})) + "\n\n")
}

func orNull(s string, otherwise any) any {
	if s == "" {
		return otherwise
	}
	return s
}

func (openAIChat) ping(text string) []byte {
	return []byte(": " + strings.ReplaceAll(orDefault(text, "keep-alive"), "\n", "\n: ") + "\n\n")
}

type openAIChunk struct {
	ID                string             `json:"id"`
	Object            string             `json:"object"`
	Created           int64              `json:"created"`
	Model             string             `json:"model"`
	ServiceTier       string             `json:"service_tier"`
	SystemFingerprint string             `json:"system_fingerprint"`
	Choices           []openAIDeltaEntry `json:"choices"`
	// Usage is absent unless asked for, and then null in every chunk but the last.
	Usage any `json:"usage,omitempty"`
}

type openAIDeltaEntry struct {
	Index        int     `json:"index"`
	Delta        any     `json:"delta"`
	Logprobs     any     `json:"logprobs"`
	FinishReason *string `json:"finish_reason"`
}

type openAIRoleDelta struct {
	Role    string  `json:"role"`
	Content *string `json:"content"`
	Refusal *string `json:"refusal"`
}

type openAIContentDelta struct {
	Content string `json:"content"`
}

type openAIReasoningDelta struct {
	ReasoningContent string `json:"reasoning_content"`
}

type openAICallsDelta struct {
	ToolCalls []openAICallDelta `json:"tool_calls"`
}

type openAICallDelta struct {
	Index    int                 `json:"index"`
	ID       string              `json:"id,omitempty"`
	Type     string              `json:"type,omitempty"`
	Function openAIFunctionDelta `json:"function"`
}

type openAIFunctionDelta struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

type openAIUsage struct {
	PromptTokens            int64            `json:"prompt_tokens"`
	CompletionTokens        int64            `json:"completion_tokens"`
	TotalTokens             int64            `json:"total_tokens"`
	PromptTokensDetails     map[string]int64 `json:"prompt_tokens_details"`
	CompletionTokensDetails map[string]int64 `json:"completion_tokens_details"`
}

func openAIUsageOf(u Usage) openAIUsage {
	return openAIUsage{
		PromptTokens: u.Input, CompletionTokens: u.Output, TotalTokens: u.Input + u.Output,
		PromptTokensDetails:     map[string]int64{"audio_tokens": 0, "cached_tokens": u.Cached},
		CompletionTokensDetails: map[string]int64{"accepted_prediction_tokens": 0, "audio_tokens": 0, "reasoning_tokens": 0, "rejected_prediction_tokens": 0},
	}
}

// openAIFingerprint is the backend configuration that this server claims.
const openAIFingerprint = "fp_belaychaos0"

func (openAIChat) frames(t turn) []frame {
	var out []frame
	chunk := func(choices []openAIDeltaEntry, usage any) []byte {
		c := openAIChunk{ID: t.id, Object: "chat.completion.chunk", Created: t.created, Model: t.model, ServiceTier: "default",
			SystemFingerprint: openAIFingerprint, Choices: choices}
		if t.includeUsage {
			c.Usage = usage
		}
		return []byte("data: " + string(compact(c)) + "\n\n")
	}
	delta := func(d any, content int) {
		out = append(out, frame{data: chunk([]openAIDeltaEntry{{Delta: d}}, json.RawMessage("null")), content: content})
	}
	role := openAIRoleDelta{Role: "assistant"}
	if len(t.calls) == 0 || t.text != "" {
		role.Content = new(string)
	}
	delta(role, 0)
	for _, s := range words(t.thinking, t.deltaCharacters) {
		delta(openAIReasoningDelta{s}, len(s))
	}
	for _, s := range words(t.text, t.deltaCharacters) {
		delta(openAIContentDelta{s}, len(s))
	}
	for i, c := range t.calls {
		delta(openAICallsDelta{[]openAICallDelta{{Index: i, ID: c.id, Type: "function", Function: openAIFunctionDelta{Name: c.name}}}}, len(c.name))
		for _, s := range pieces(c.arguments, orDefault(t.deltaCharacters, argumentCharacters)) {
			delta(openAICallsDelta{[]openAICallDelta{{Index: i, Function: openAIFunctionDelta{Arguments: s}}}}, len(s))
		}
	}
	closing := len(out)
	if t.stop != "" {
		out = append(out, frame{data: chunk([]openAIDeltaEntry{{Delta: struct{}{}, FinishReason: &t.stop}}, json.RawMessage("null"))})
	}
	if t.includeUsage {
		out = append(out, frame{data: chunk([]openAIDeltaEntry{}, openAIUsageOf(t.usage))})
	}
	if !t.omitDone {
		out = append(out, frame{data: []byte("data: [DONE]\n\n")})
	}
	if closing < len(out) {
		out[closing].closing = true
	}
	return out
}

func (openAIChat) whole(t turn) []byte {
	message := map[string]any{"role": "assistant", "content": nullable(t.text), "refusal": nil, "annotations": []any{}}
	if len(t.calls) == 0 {
		message["content"] = t.text
	}
	if t.thinking != "" {
		message["reasoning_content"] = t.thinking
	}
	var calls []map[string]any
	for _, c := range t.calls {
		calls = append(calls, map[string]any{"id": c.id, "type": "function", "function": map[string]any{"name": c.name, "arguments": c.arguments}})
	}
	if calls != nil {
		message["tool_calls"] = calls
	}
	return indented(map[string]any{
		"id": t.id, "object": "chat.completion", "created": t.created, "model": t.model, "service_tier": "default",
		"system_fingerprint": openAIFingerprint,
		"choices":            []any{map[string]any{"index": 0, "message": message, "logprobs": nil, "finish_reason": nullable(t.stop)}},
		"usage":              openAIUsageOf(t.usage),
	})
}
