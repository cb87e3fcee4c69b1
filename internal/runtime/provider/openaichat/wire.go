package openaichat

import (
	"bytes"
	"encoding/json"
	"strings"
)

// The wire structs hold only what is read. Fields whose type differs between servers are lenient, so that a detail
// nobody needs does not cost an answer.

type chunk struct {
	ID      lenientString   `json:"id"`
	Object  lenientString   `json:"object"`
	Error   json.RawMessage `json:"error"`
	Choices []choice        `json:"choices"`
	Usage   *usage          `json:"usage"`
	XGroq   *struct {
		Usage *usage `json:"usage"`
	} `json:"x_groq"`
}

type choice struct {
	Index                lenientInt          `json:"index"`
	Delta                delta               `json:"delta"`
	FinishReason         lenientString       `json:"finish_reason"`
	Error                json.RawMessage     `json:"error"`
	ContentFilterResults contentFilterResult `json:"content_filter_results"`
}

type contentFilterResult struct {
	Error json.RawMessage `json:"error"`
}

type delta struct {
	Content          content       `json:"content"`
	Refusal          lenientString `json:"refusal"`
	ReasoningContent lenientString `json:"reasoning_content"`
	Reasoning        lenientString `json:"reasoning"`
	ToolCalls        []callDelta   `json:"tool_calls"`
	FunctionCall     *function     `json:"function_call"`
}

const (
	reasoningContentField = "reasoning_content"
	reasoningField        = "reasoning"
)

type callDelta struct {
	Index    *lenientInt   `json:"index"`
	ID       lenientString `json:"id"`
	Function function      `json:"function"`
}

type function struct {
	Name      lenientString `json:"name"`
	Arguments arguments     `json:"arguments"`
}

type usage struct {
	PromptTokens        lenientInt `json:"prompt_tokens"`
	CompletionTokens    lenientInt `json:"completion_tokens"`
	PromptCacheHit      lenientInt `json:"prompt_cache_hit_tokens"`
	PromptTokensDetails struct {
		CachedTokens     lenientInt `json:"cached_tokens"`
		CacheWriteTokens lenientInt `json:"cache_write_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionTokensDetails struct {
		ReasoningTokens lenientInt `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// lenientString is a JSON string; null and every other type are empty.
type lenientString string

func (s *lenientString) UnmarshalJSON(raw []byte) error {
	if len(raw) == 0 || raw[0] != '"' {
		*s = ""
		return nil
	}
	return json.Unmarshal(raw, (*string)(s))
}

// lenientInt is a JSON number without its fraction; null and every other type are 0.
type lenientInt int64

func (n *lenientInt) UnmarshalJSON(raw []byte) error {
	var f float64
	if json.Unmarshal(raw, &f) != nil || f < 0 || f > 1<<53 {
		*n = 0
		return nil
	}
	*n = lenientInt(f)
	return nil
}

// arguments is a piece of a call's arguments. Some servers send the object itself in place of a string.
type arguments string

func (a *arguments) UnmarshalJSON(raw []byte) error {
	switch {
	case len(raw) > 0 && raw[0] == '"':
		return json.Unmarshal(raw, (*string)(a))
	case bytes.Equal(raw, []byte("null")):
		*a = ""
	default:
		*a = arguments(raw)
	}
	return nil
}

// content is a string, or a list of parts as Mistral sends it, with text and thinking.
type content struct {
	text     string
	thinking string
}

func (c *content) UnmarshalJSON(raw []byte) error {
	*c = content{}
	if len(raw) > 0 && raw[0] == '"' {
		return json.Unmarshal(raw, &c.text)
	}
	if len(raw) == 0 || raw[0] != '[' {
		return nil
	}
	var parts []struct {
		Type     lenientString   `json:"type"`
		Text     lenientString   `json:"text"`
		Thinking json.RawMessage `json:"thinking"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return err
	}
	var text, thinking strings.Builder
	for _, p := range parts {
		text.WriteString(string(p.Text))
		var inner content
		if p.Thinking != nil && inner.UnmarshalJSON(p.Thinking) == nil {
			thinking.WriteString(inner.text)
		}
	}
	c.text, c.thinking = text.String(), thinking.String()
	return nil
}

// present tells whether an error field says anything.
func present(raw json.RawMessage) bool {
	switch string(raw) {
	case "", "null", "false", `""`:
		return false
	}
	return true
}
