package anthropic

import (
	"encoding/json"

	"belay.dev/belay/internal/runtime/provider"
)

// streamEvent holds the fields of all event types that are read.
type streamEvent struct {
	Type         provider.LenientString `json:"type"`
	Error        json.RawMessage        `json:"error"`
	Message      *startMessage          `json:"message"`
	Index        provider.LenientInt    `json:"index"`
	ContentBlock *contentBlock          `json:"content_block"`
	Delta        *eventDelta            `json:"delta"`
	Usage        *usage                 `json:"usage"`
}

type startMessage struct {
	ID    provider.LenientString `json:"id"`
	Usage *usage                 `json:"usage"`
}

type contentBlock struct {
	Type      provider.LenientString `json:"type"`
	Text      provider.LenientString `json:"text"`
	Thinking  provider.LenientString `json:"thinking"`
	Signature provider.LenientString `json:"signature"`
	Data      provider.LenientString `json:"data"`
	ID        provider.LenientString `json:"id"`
	Name      provider.LenientString `json:"name"`
	Input     json.RawMessage        `json:"input"`
}

type eventDelta struct {
	Type        provider.LenientString `json:"type"`
	Text        provider.LenientString `json:"text"`
	PartialJSON provider.LenientString `json:"partial_json"`
	Thinking    provider.LenientString `json:"thinking"`
	Signature   provider.LenientString `json:"signature"`
	StopReason  provider.LenientString `json:"stop_reason"`
}

type usage struct {
	InputTokens              provider.LenientInt `json:"input_tokens"`
	CacheCreationInputTokens provider.LenientInt `json:"cache_creation_input_tokens"`
	CacheReadInputTokens     provider.LenientInt `json:"cache_read_input_tokens"`
	OutputTokens             provider.LenientInt `json:"output_tokens"`
}
