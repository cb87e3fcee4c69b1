package sdkoracle

import (
	"errors"
	"net/http/httptest"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"

	"belay.dev/belay/internal/chaos"
)

// serve starts a scripted provider for the length of a test.
func serve(t *testing.T, script string) (url string, server *chaos.Server) {
	t.Helper()
	parsed, err := chaos.ParseScript([]byte(script))
	if err != nil {
		t.Fatal(err)
	}
	server = chaos.NewServer(parsed, chaos.Options{Seed: 1})
	hs := httptest.NewServer(server.Handler())
	t.Cleanup(hs.Close)
	return hs.URL, server
}

func openAIClient(url string) openai.Client {
	return openai.NewClient(option.WithBaseURL(url+"/a/v1"), option.WithAPIKey("sk-test"), option.WithMaxRetries(0))
}

func openAIParams() openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:               "m1",
		MaxCompletionTokens: openai.Int(1000),
		Messages:            []openai.ChatCompletionMessageParamUnion{openai.SystemMessage("You work."), openai.UserMessage("List the files.")},
		Tools: []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
			Name: "shell", Description: openai.String("Runs a command."),
			Parameters: shared.FunctionParameters{"type": "object", "properties": map[string]any{"cmd": map[string]any{"type": "string"}}},
		})},
	}
}

const openAIScript = `
legs:
  a:
    model: m1
    steps:
    - text: "Two calls at once."
      calls: [{name: shell, arguments: {cmd: "ls -l /workspace"}}, {name: shell, arguments: {cmd: pwd}}]
      usage: {input: 50, output: 20, cached: 10}
      chunkSize: 11
    - expect: {toolResults: [{call: 1, contains: a.txt}, {call: 2, contains: /workspace}], assistantTurns: 1, tools: [shell]}
      answer: "One file, größer als nichts."
`

func TestTheOpenAIClientStreamsAToolConversation(t *testing.T) {
	url, server := serve(t, openAIScript)
	client := openAIClient(url)
	params := openAIParams()
	params.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}

	stream := func() openai.ChatCompletion {
		t.Helper()
		events := client.Chat.Completions.NewStreaming(t.Context(), params)
		defer func() { _ = events.Close() }()
		acc := openai.ChatCompletionAccumulator{}
		for events.Next() {
			if !acc.AddChunk(events.Current()) {
				t.Fatalf("the SDK refuses the chunk %s", events.Current().RawJSON())
			}
		}
		if err := events.Err(); err != nil {
			t.Fatalf("the SDK reports %v", err)
		}
		return acc.ChatCompletion
	}

	first := stream()
	choice := first.Choices[0]
	if choice.Message.Content != "Two calls at once." || choice.FinishReason != "tool_calls" || len(choice.Message.ToolCalls) != 2 {
		t.Fatalf("the SDK read %+v", choice)
	}
	if got := choice.Message.ToolCalls[0].Function; got.Name != "shell" || got.Arguments != `{"cmd":"ls -l /workspace"}` {
		t.Errorf("the SDK read the call %s(%s)", got.Name, got.Arguments)
	}
	if u := first.Usage; u.PromptTokens != 50 || u.CompletionTokens != 20 || u.TotalTokens != 70 || u.PromptTokensDetails.CachedTokens != 10 {
		t.Errorf("the SDK read the usage %+v", u)
	}
	params.Messages = append(params.Messages, choice.Message.ToParam(),
		openai.ToolMessage("a.txt", choice.Message.ToolCalls[0].ID), openai.ToolMessage("/workspace", choice.Message.ToolCalls[1].ID))
	if got := stream().Choices[0]; got.Message.Content != "One file, größer als nichts." || got.FinishReason != "stop" {
		t.Errorf("the SDK read %+v", got)
	}
	if bill := server.Bill()["a"]; bill.Completed != 2 || bill.Rejected != 0 {
		t.Errorf("the bill is %+v", bill)
	}
}

func TestTheOpenAIClientReadsWholeAnswers(t *testing.T) {
	url, _ := serve(t, openAIScript)
	client := openAIClient(url)
	params := openAIParams()
	first, err := client.Chat.Completions.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	message := first.Choices[0].Message
	if len(message.ToolCalls) != 2 || first.Usage.TotalTokens != 70 {
		t.Fatalf("the SDK read %s", first.RawJSON())
	}
	params.Messages = append(params.Messages, message.ToParam(), openai.ToolMessage("a.txt", message.ToolCalls[0].ID), openai.ToolMessage("/workspace", message.ToolCalls[1].ID))
	second, err := client.Chat.Completions.New(t.Context(), params)
	if err != nil || second.Choices[0].Message.Content != "One file, größer als nichts." {
		t.Errorf("got %v, %v", second, err)
	}
}

func TestTheOpenAIClientUnderstandsTheErrors(t *testing.T) {
	for _, c := range []struct {
		name, script string
		change       func(*openai.ChatCompletionNewParams)
		status       int
		kind, code   string
	}{
		{"an unknown model", openAIScript, func(p *openai.ChatCompletionNewParams) { p.Model = "m2" }, 404, "invalid_request_error", "model_not_found"},
		{"an orphan result", openAIScript, func(p *openai.ChatCompletionNewParams) {
			p.Messages = append(p.Messages, openai.ToolMessage("x", "call_1"))
		}, 400, "invalid_request_error", ""},
		{"a rate limit", `{legs: {a: {steps: [{status: 429, error: {type: requests, code: rate_limit_exceeded, message: m}}]}}}`, func(*openai.ChatCompletionNewParams) {}, 429, "requests", "rate_limit_exceeded"},
		{"an exhausted script", `{legs: {a: {steps: []}}}`, func(*openai.ChatCompletionNewParams) {}, 500, "server_error", "script_exhausted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			url, _ := serve(t, c.script)
			client := openAIClient(url)
			params := openAIParams()
			c.change(&params)
			_, err := client.Chat.Completions.New(t.Context(), params)
			var apiErr *openai.Error
			if !errors.As(err, &apiErr) {
				t.Fatalf("the SDK reports %v", err)
			}
			if apiErr.StatusCode != c.status || apiErr.Type != c.kind || apiErr.Code != c.code || apiErr.Message == "" {
				t.Errorf("the SDK read status %d, type %q, code %q, message %q", apiErr.StatusCode, apiErr.Type, apiErr.Code, apiErr.Message)
			}
		})
	}
}

func TestTheOpenAIClientSeesAnInBandErrorAndAReset(t *testing.T) {
	url, _ := serve(t, `{legs: {a: {steps: [{answer: "one two", inBandError: {message: Broken, code: server_error}}, {reset: {}}]}}}`)
	client := openAIClient(url)
	for range 2 {
		events := client.Chat.Completions.NewStreaming(t.Context(), openAIParams())
		for events.Next() {
			_ = events.Current()
		}
		if events.Err() == nil {
			t.Error("the SDK reports no error")
		}
		_ = events.Close()
	}
}
