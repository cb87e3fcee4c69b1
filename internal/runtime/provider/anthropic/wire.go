package anthropic

import (
	"encoding/json"

	"belay.dev/belay/internal/runtime/provider/lenient"
)

// streamEvent holds the fields of all event types that are read.
type streamEvent struct {
	Type         lenient.String  `json:"type"`
	Error        json.RawMessage `json:"error"`
	Message      *startMessage   `json:"message"`
	Index        lenient.Int     `json:"index"`
	ContentBlock *contentBlock   `json:"content_block"`
	Delta        *eventDelta     `json:"delta"`
	Usage        *usage          `json:"usage"`
}

type startMessage struct {
	ID    lenient.String `json:"id"`
	Usage *usage         `json:"usage"`
}

type contentBlock struct {
	Type      lenient.String  `json:"type"`
	Text      lenient.String  `json:"text"`
	Thinking  lenient.String  `json:"thinking"`
	Signature lenient.String  `json:"signature"`
	Data      lenient.String  `json:"data"`
	ID        lenient.String  `json:"id"`
	Name      lenient.String  `json:"name"`
	Input     json.RawMessage `json:"input"`
}

type eventDelta struct {
	Type        lenient.String `json:"type"`
	Text        lenient.String `json:"text"`
	PartialJSON lenient.String `json:"partial_json"`
	Thinking    lenient.String `json:"thinking"`
	Signature   lenient.String `json:"signature"`
	StopReason  lenient.String `json:"stop_reason"`
}

type usage struct {
	InputTokens              lenient.Int `json:"input_tokens"`
	CacheCreationInputTokens lenient.Int `json:"cache_creation_input_tokens"`
	CacheReadInputTokens     lenient.Int `json:"cache_read_input_tokens"`
	OutputTokens             lenient.Int `json:"output_tokens"`
}
