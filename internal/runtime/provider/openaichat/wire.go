package openaichat

import (
	"bytes"
	"encoding/json"
	"strings"

	"belay.dev/belay/internal/runtime/provider"
)

// The wire structs hold only what is read. Fields whose type differs between servers are lenient, so that a detail
// nobody needs does not cost an answer.

type chunk struct {
	ID      provider.LenientString `json:"id"`
	Error   json.RawMessage        `json:"error"`
	Choices []choice               `json:"choices"`
	Usage   *usage                 `json:"usage"`
	XGroq   *struct {
		Usage *usage `json:"usage"`
	} `json:"x_groq"`
}

type choice struct {
	Index                provider.LenientInt    `json:"index"`
	Delta                delta                  `json:"delta"`
	FinishReason         provider.LenientString `json:"finish_reason"`
	Error                json.RawMessage        `json:"error"`
	ContentFilterResults contentFilterResult    `json:"content_filter_results"`
}

type contentFilterResult struct {
	Error json.RawMessage `json:"error"`
}

type delta struct {
	Content          content                `json:"content"`
	Refusal          provider.LenientString `json:"refusal"`
	ReasoningContent provider.LenientString `json:"reasoning_content"`
	Reasoning        provider.LenientString `json:"reasoning"`
	ToolCalls        []callDelta            `json:"tool_calls"`
	FunctionCall     *function              `json:"function_call"`
}

const (
	reasoningContentField = "reasoning_content"
	reasoningField        = "reasoning"
)

type callDelta struct {
	Index    *provider.LenientInt   `json:"index"`
	ID       provider.LenientString `json:"id"`
	Function function               `json:"function"`
}

type function struct {
	Name      provider.LenientString `json:"name"`
	Arguments arguments              `json:"arguments"`
}

type usage struct {
	PromptTokens        provider.LenientInt `json:"prompt_tokens"`
	CompletionTokens    provider.LenientInt `json:"completion_tokens"`
	PromptCacheHit      provider.LenientInt `json:"prompt_cache_hit_tokens"`
	PromptTokensDetails struct {
		CachedTokens     provider.LenientInt `json:"cached_tokens"`
		CacheWriteTokens provider.LenientInt `json:"cache_write_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionTokensDetails struct {
		ReasoningTokens provider.LenientInt `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// arguments is a piece of a call's arguments. Some servers send the object itself in place of a string.
type arguments string

func (a *arguments) UnmarshalJSON(raw []byte) error {
	switch {
	case len(raw) > 0 && raw[0] == '"':
		text, err := provider.UnquoteJSON(raw)
		*a = arguments(text)
		return err
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
		var err error
		c.text, err = provider.UnquoteJSON(raw)
		return err
	}
	if len(raw) == 0 || raw[0] != '[' {
		return nil
	}
	var parts []struct {
		Type     provider.LenientString `json:"type"`
		Text     provider.LenientString `json:"text"`
		Thinking json.RawMessage        `json:"thinking"`
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
