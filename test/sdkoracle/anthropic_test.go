package sdkoracle

import (
	"errors"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/anthropics/anthropic-sdk-go/v2/shared"
)

func anthropicClient(url string) anthropic.Client {
	return anthropic.NewClient(option.WithBaseURL(url+"/c"), option.WithAPIKey("sk-test"), option.WithMaxRetries(0))
}

func anthropicParams() anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model:     "c1",
		MaxTokens: 4096,
		System:    []anthropic.TextBlockParam{{Text: "You work."}},
		Messages:  []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("List the files."))},
		Thinking:  anthropic.ThinkingConfigParamOfEnabled(2048),
		Tools: []anthropic.ToolUnionParam{anthropic.ToolUnionParamOfTool(anthropic.ToolInputSchemaParam{
			Properties: map[string]any{"cmd": map[string]any{"type": "string"}}, Required: []string{"cmd"}}, "shell")},
	}
}

const anthropicScript = `
legs:
  c:
    dialect: AnthropicMessages
    model: c1
    steps:
    - thinking: "I must look, gründlich."
      redactedThinking: "hidden words"
      text: "I look."
      calls: [{name: shell, arguments: {cmd: "ls -l /workspace"}}, {name: shell, arguments: {cmd: pwd}}]
      usage: {input: 50, output: 20, cached: 10}
      chunkSize: 11
      comments: 2
    - expect: {toolResults: [{call: 1, contains: a.txt}, {call: 2, contains: /workspace}], assistantTurns: 1, tools: [shell], systemContains: work}
      answer: "One file."
`

// streamed asks with a stream and returns the message that the SDK puts together.
func streamed(t *testing.T, client anthropic.Client, params anthropic.MessageNewParams) (anthropic.Message, error) {
	t.Helper()
	events := client.Messages.NewStreaming(t.Context(), params)
	defer func() { _ = events.Close() }()
	message := anthropic.Message{}
	for events.Next() {
		if err := message.Accumulate(events.Current()); err != nil {
			t.Fatalf("the SDK cannot use the event %s: %v", events.Current().RawJSON(), err)
		}
	}
	return message, events.Err()
}

func whole(t *testing.T, client anthropic.Client, params anthropic.MessageNewParams) (anthropic.Message, error) {
	t.Helper()
	message, err := client.Messages.New(t.Context(), params)
	if err != nil {
		return anthropic.Message{}, err
	}
	return *message, nil
}

func TestTheAnthropicClientHoldsAToolConversationWithThinking(t *testing.T) {
	for name, ask := range map[string]func(*testing.T, anthropic.Client, anthropic.MessageNewParams) (anthropic.Message, error){"streamed": streamed, "whole": whole} {
		t.Run(name, func(t *testing.T) {
			url, server := serve(t, anthropicScript)
			client := anthropicClient(url)
			params := anthropicParams()
			first, err := ask(t, client, params)
			if err != nil {
				t.Fatal(err)
			}
			var kinds []string
			for _, block := range first.Content {
				kinds = append(kinds, block.Type)
			}
			if got := strings.Join(kinds, " "); got != "thinking redacted_thinking text tool_use tool_use" || first.StopReason != anthropic.StopReasonToolUse {
				t.Fatalf("the SDK read the blocks %s and stop reason %s", got, first.StopReason)
			}
			if got := first.Content[0]; got.Thinking != "I must look, gründlich." || got.Signature == "" {
				t.Errorf("the SDK read the thinking %q, signed %q", got.Thinking, got.Signature)
			}
			if got := first.Content[3]; got.Name != "shell" || string(got.Input) != `{"cmd":"ls -l /workspace"}` {
				t.Errorf("the SDK read the call %s(%s)", got.Name, got.Input)
			}
			if u := first.Usage; u.InputTokens != 40 || u.CacheReadInputTokens != 10 || u.OutputTokens != 20 {
				t.Errorf("the SDK read the usage %+v", u)
			}
			params.Messages = append(params.Messages, first.ToParam(), anthropic.NewUserMessage(
				anthropic.NewToolResultBlock(first.Content[3].ID, "a.txt", false),
				anthropic.NewToolResultBlock(first.Content[4].ID, "/workspace", false)))
			second, err := ask(t, client, params)
			if err != nil || second.Content[0].Text != "One file." || second.StopReason != anthropic.StopReasonEndTurn {
				t.Errorf("the SDK read %+v, %v", second.Content, err)
			}
			if bill := server.Bill()["c"]; bill.Completed != 2 || bill.Rejected != 0 {
				t.Errorf("the bill is %+v", bill)
			}
		})
	}
}

func TestTheAnthropicClientUnderstandsTheErrors(t *testing.T) {
	for _, c := range []struct {
		name, script string
		change       func(*anthropic.MessageNewParams)
		status       int
		kind         shared.ErrorType
	}{
		{"an unknown model", anthropicScript, func(p *anthropic.MessageNewParams) { p.Model = "c2" }, 404, shared.ErrorTypeNotFoundError},
		{"an orphan result", anthropicScript, func(p *anthropic.MessageNewParams) {
			p.Messages[0] = anthropic.NewUserMessage(anthropic.NewToolResultBlock("t1", "x", false))
		}, 400, shared.ErrorTypeInvalidRequestError},
		{"an overload", `{legs: {c: {dialect: AnthropicMessages, steps: [{status: 529}]}}}`, func(*anthropic.MessageNewParams) {}, 529, shared.ErrorTypeOverloadedError},
		{"an exhausted script", `{legs: {c: {dialect: AnthropicMessages, steps: []}}}`, func(*anthropic.MessageNewParams) {}, 500, shared.ErrorTypeAPIError},
	} {
		t.Run(c.name, func(t *testing.T) {
			url, _ := serve(t, c.script)
			params := anthropicParams()
			c.change(&params)
			_, err := whole(t, anthropicClient(url), params)
			var apiErr *anthropic.Error
			if !errors.As(err, &apiErr) {
				t.Fatalf("the SDK reports %v", err)
			}
			if apiErr.StatusCode != c.status || apiErr.Type() != c.kind || apiErr.Message == "" || !strings.HasPrefix(apiErr.RequestID, "req_") {
				t.Errorf("the SDK read status %d, type %q, message %q, request %q", apiErr.StatusCode, apiErr.Type(), apiErr.Message, apiErr.RequestID)
			}
		})
	}
}

func TestTheAnthropicClientSeesAnInBandError(t *testing.T) {
	url, _ := serve(t, `{legs: {c: {dialect: AnthropicMessages, steps: [{answer: "one two", inBandError: {}}]}}}`)
	if _, err := streamed(t, anthropicClient(url), anthropicParams()); err == nil || !strings.Contains(err.Error(), "Overloaded") {
		t.Errorf("the SDK reports %v", err)
	}
}

func TestAnotherServersThinkingIsRefused(t *testing.T) {
	url, _ := serve(t, strings.Replace(anthropicScript, "  c:\n", "  d:\n", 1)+"  c: {dialect: AnthropicMessages, steps: [{answer: x}]}\n")
	issuer := anthropic.NewClient(option.WithBaseURL(url+"/d"), option.WithAPIKey("sk-test"), option.WithMaxRetries(0))
	params := anthropicParams()
	first, err := streamed(t, issuer, params)
	if err != nil {
		t.Fatal(err)
	}
	params.Messages = append(params.Messages, first.ToParam(), anthropic.NewUserMessage(
		anthropic.NewToolResultBlock(first.Content[3].ID, "a.txt", false), anthropic.NewToolResultBlock(first.Content[4].ID, "/workspace", false)))
	_, err = streamed(t, anthropicClient(url), params)
	var apiErr *anthropic.Error
	if !errors.As(err, &apiErr) || apiErr.StatusCode != 400 || !strings.Contains(apiErr.Message, "signature") {
		t.Errorf("the SDK reports %v", err)
	}
}
