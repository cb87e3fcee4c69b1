package chaos_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// minted are the vendor-style ids; each is replaced by its prefix in front of a golden comparison, since what matters of
// it is the form.
var minted = []struct {
	form *regexp.Regexp
	name string
}{
	{regexp.MustCompile(`chatcmpl-[0-9A-Za-z]{29}\b`), "chatcmpl-<29>"},
	{regexp.MustCompile(`call_[0-9A-Za-z]{24}\b`), "call_<24>"},
	{regexp.MustCompile(`msg_01[0-9A-Za-z]{22}\b`), "msg_01<22>"},
	{regexp.MustCompile(`toolu_01[0-9A-Za-z]{22}\b`), "toolu_01<22>"},
	{regexp.MustCompile(`"signature":"[0-9A-Za-z+/]{43}="`), `"signature":"<32 bytes>"`},
	{regexp.MustCompile(`req_011C[0-9A-Za-z]{20}\b`), "req_011C<20>"},
}

func generic(text string) string {
	for _, m := range minted {
		text = m.form.ReplaceAllString(text, m.name)
	}
	return text
}

func TestStreamsAreWrittenAsTheRealAPIsWriteThem(t *testing.T) {
	withUsage := strings.Replace(openAIHello, `"stream":true`, `"stream":true,"stream_options":{"include_usage":true}`, 1)
	for _, c := range []struct {
		golden, leg, step, body string
	}{
		{"openai-answer.sse", "a", `{answer: "It is done.", usage: {input: 20, output: 5, cached: 8}}`, withUsage},
		{"openai-calls.sse", "a", `{text: "Two calls.", calls: [{name: shell, arguments: {cmd: ls}}, {name: read, arguments: {}}]}`, openAIHello},
		{"openai-calls-only.sse", "a", `{calls: [{name: read, arguments: {}, id: fixed}]}`, openAIHello},
		{"openai-reasoning.sse", "deep", `{thinking: "Hm, so.", answer: "Yes"}`, openAIHello},
		{"openai-error.sse", "a", `{answer: "It is done.", inBandError: {code: server_error, message: Broken}}`, openAIHello},
		{"openai-flat-error.sse", "a", `{answer: "It is done.", inBandError: {shape: Flat, message: Broken, afterEvents: 2}}`, openAIHello},
		{"openai-half-call.sse", "a", `{halfCall: true, calls: [{name: write, arguments: {text: abc}}]}`, openAIHello},
		{"openai-odd-end.sse", "a", `{answer: "Yes", finishReason: Missing}`, openAIHello},
		{"openai-no-done.sse", "a", `{answer: "Yes", finishReason: content_filter, omitDone: true, comments: 2, commentText: "PROCESSING"}`, openAIHello},
		{"anthropic-answer.sse", "claude", `{answer: "It is done.", usage: {input: 20, output: 5, cached: 8}}`, claudeHello},
		{"anthropic-thinking-calls.sse", "claude", `{thinking: "Hm, so.", text: "I look.", calls: [{name: shell, arguments: {cmd: ls}}], usage: {input: 9, output: 30}}`, claudeHello},
		{"anthropic-error.sse", "claude", `{answer: "It is done.", inBandError: {}, comments: 1, usage: {input: 9, output: 3}}`, claudeHello},
		{"anthropic-empty.sse", "claude", `{answer: "", usage: {input: 9, output: 0}}`, claudeHello},
	} {
		t.Run(c.golden, func(t *testing.T) {
			kind := map[string]string{"a": "vendor: OpenAI", "claude": "dialect: AnthropicMessages", "deep": "vendor: DeepSeek"}[c.leg]
			r := newRig(t, "legs: {"+c.leg+": {"+kind+", steps: ["+c.step+"]}}")
			got := r.post(c.leg, c.body)
			if got.status != 200 || got.header.Get("Content-Type") != "text/event-stream; charset=utf-8" || got.readErr != nil {
				t.Fatalf("got %d %s, %v: %s", got.status, got.header.Get("Content-Type"), got.readErr, got.body)
			}
			want, err := os.ReadFile(filepath.Join("testdata", c.golden))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), generic(got.body)); diff != "" {
				t.Errorf("the stream differs from %s (-want +got):\n%s", c.golden, diff)
			}
		})
	}
}

func TestWholeAnswersAreWrittenAsTheRealAPIsWriteThem(t *testing.T) {
	r := newRig(t, `
legs:
  a: {steps: [{text: "I look.", calls: [{name: shell, arguments: {cmd: ls}}], usage: {input: 9, output: 4}}]}
  claude: {dialect: AnthropicMessages, steps: [{text: "I look.", calls: [{name: shell, arguments: {cmd: ls}}], usage: {input: 9, output: 4}}]}
`)
	for leg, want := range map[string]string{
		"a": `{
  "choices": [
    {
      "finish_reason": "tool_calls",
      "index": 0,
      "logprobs": null,
      "message": {
        "annotations": [],
        "content": "I look.",
        "refusal": null,
        "role": "assistant",
        "tool_calls": [
          {
            "function": {
              "arguments": "{\"cmd\":\"ls\"}",
              "name": "shell"
            },
            "id": "call_<24>",
            "type": "function"
          }
        ]
      }
    }
  ],
  "created": ` + startUnix + `,
  "id": "chatcmpl-<29>",
  "model": "m1",
  "object": "chat.completion",
  "service_tier": "default",
  "system_fingerprint": "fp_belaychaos0",
  "usage": {
    "prompt_tokens": 9,
    "completion_tokens": 4,
    "total_tokens": 13,
    "prompt_tokens_details": {
      "audio_tokens": 0,
      "cached_tokens": 0
    },
    "completion_tokens_details": {
      "accepted_prediction_tokens": 0,
      "audio_tokens": 0,
      "reasoning_tokens": 0,
      "rejected_prediction_tokens": 0
    }
  }
}`,
		"claude": `{"id":"msg_01<22>","type":"message","role":"assistant","model":"c1","content":[{"type":"text","text":"I look."},` +
			`{"type":"tool_use","id":"toolu_01<22>","name":"shell","input":{"cmd":"ls"}}],"stop_reason":"tool_use","stop_sequence":null,` +
			`"usage":{"input_tokens":9,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":4,"service_tier":"standard"}}`,
	} {
		body := strings.Replace(map[string]string{"a": openAIHello, "claude": claudeHello}[leg], `"stream":true,`, "", 1)
		got := r.post(leg, body)
		if diff := cmp.Diff(want, generic(got.body)); diff != "" || got.header.Get("Content-Type") != "application/json" {
			t.Errorf("leg %s, %s (-want +got):\n%s", leg, got.header.Get("Content-Type"), diff)
		}
	}
}
