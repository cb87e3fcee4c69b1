package openaichat

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/message"
	"belay.dev/belay/internal/runtime/provider"
	"belay.dev/belay/internal/runtime/route"
	"belay.dev/belay/internal/runtime/sse"
)

var testTime = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

func testTarget() provider.Target {
	return provider.Target{
		Leg:    "a",
		Route:  route.Route{BaseURL: "https://llm.example/v1", Dialect: route.OpenAIChat, Model: "m1", SecretName: "keys", SecretKey: "a"},
		Secret: "key",
	}
}

// testScope is what testTarget issues: the slug of host and model, and ten hex digits of the hash, taken from package route.
var testScope = message.Scope{Route: string(testTarget().Route.Name()), Dialect: "OpenAIChat", Model: "m1"}

// decode reads a whole stream as the client does.
func decode(stream []byte, target provider.Target) (*message.Message, *failure.Failure, provider.Decoder) {
	decoder := Dialect{}.NewDecoder(target)
	answer, facts := provider.ReadAnswer(sse.NewReader(bytes.NewReader(stream), sse.Limits{}), decoder, func([]byte, provider.Step) {})
	if answer != nil {
		return answer, nil, decoder
	}
	facts.Status = 200
	f := failure.Classify(facts, testTime)
	return nil, &f, decoder
}

func transcript(t *testing.T, name string) []byte {
	t.Helper()
	stream, err := os.ReadFile(filepath.Join("testdata/transcripts", name+".sse"))
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func text(s string) message.Block { return message.Block{Kind: message.BlockText, Text: s} }

func thinking(field, s string) message.Block {
	b := message.Block{Kind: message.BlockThinking, Text: s}
	if field != "" {
		b.Credentials = []message.Credential{{Scope: testScope, Kind: "reasoningField", Data: []byte(field)}}
	}
	return b
}

func toolCall(id, name, arguments string) message.Block {
	b := message.Block{Kind: message.BlockCall, Call: &message.Call{Name: name, Arguments: json.RawMessage(arguments)}}
	if id != "" {
		b.Credentials = []message.Credential{{Scope: testScope, Kind: "callID", Data: []byte(id)}}
	}
	return b
}

func rawCall(id, name, raw string) message.Block {
	b := toolCall(id, name, "{}")
	b.Call.RawArguments = raw
	return b
}

// decoded is a transcript and what must come of it: an answer or a failure.
type decoded struct {
	name string
	// marker begins in the event that makes the answer complete, and nowhere before; empty for a failure.
	marker string
	change func(*provider.Target)

	stop     message.StopReason
	blocks   []message.Block
	usage    provider.Usage
	warnings int

	kind failure.Kind
}

var transcripts = []decoded{
	{name: "openai-text", marker: `"finish_reason":"stop"`, stop: message.StopEnd, blocks: []message.Block{text("The sky is blue.")},
		usage: provider.Usage{InputTokens: 25, CachedInputTokens: 16, OutputTokens: 7, ReasoningTokens: 3}},
	{name: "openai-parallel-calls", marker: `"finish_reason":"tool_calls"`, stop: message.StopCalls,
		blocks: []message.Block{toolCall("call_A1", "read", `{"path":"a.txt"}`), toolCall("call_B2", "list", `{}`)}},
	{name: "openai-interleaved-calls", marker: `"finish_reason":"tool_calls"`, stop: message.StopCalls,
		blocks: []message.Block{toolCall("call_A1", "read", `{"n":1}`), toolCall("call_B2", "read", `{"n":2}`)}},
	{name: "openai-refusal", marker: `"finish_reason":"stop"`, stop: message.StopRefusal, blocks: []message.Block{text("I cannot help with that.")}},
	// Row 88 of the error corpus: the filter was down.
	{name: "azure-filter-down", marker: `"finish_reason":"stop"`, stop: message.StopEnd, blocks: []message.Block{text("Fine.")}, warnings: 1},
	// Row 167 of the error corpus: "error": null in every chunk.
	{name: "vllm-reasoning-call", marker: `"finish_reason":"tool_calls"`, stop: message.StopCalls,
		blocks: []message.Block{thinking("reasoning_content", "Let me look."), toolCall("chatcmpl-tool-9", "grep", `{"q": "x"}`)}},
	{name: "openrouter-reasoning", marker: `"finish_reason":"stop"`, stop: message.StopEnd,
		blocks: []message.Block{thinking("reasoning", "Think"), text("Yes")}, usage: provider.Usage{InputTokens: 9, OutputTokens: 4}},
	{name: "mistral-parts-whole-call", marker: `"finish_reason":"tool_calls"`, stop: message.StopCalls,
		blocks: []message.Block{thinking("", "Hmm."), text("Calling."), toolCall("D681PevKs", "shell", `{"cmd": "ls"}`)},
		usage:  provider.Usage{InputTokens: 12, OutputTokens: 8}},
	{name: "groq-usage", marker: `"finish_reason":"stop"`, stop: message.StopEnd, blocks: []message.Block{text("Hi")},
		usage: provider.Usage{InputTokens: 11, OutputTokens: 2}},
	{name: "deepseek-cache", marker: `"finish_reason":"stop"`, stop: message.StopEnd,
		blocks: []message.Block{thinking("reasoning_content", "Easy."), text("4")},
		usage:  provider.Usage{InputTokens: 100, CachedInputTokens: 64, OutputTokens: 5, ReasoningTokens: 3}},
	{name: "ollama-index-zero-calls", marker: `"finish_reason":"stop"`, stop: message.StopCalls,
		blocks: []message.Block{toolCall("call_x1", "read", `{"path":"a"}`), toolCall("call_x2", "read", `{"path":"b"}`)}},
	{name: "gateway-no-index-pieces", marker: `"finish_reason":"tool_calls"`, stop: message.StopCalls,
		blocks: []message.Block{toolCall("t1", "read", `{"a":1}`), toolCall("t2", "list", `{"b":2}`)}},
	{name: "gateway-object-arguments", marker: `"finish_reason":"tool_calls"`, stop: message.StopCalls,
		blocks: []message.Block{toolCall("t1", "read", `{"path":"a"}`)}},
	// Row 26 of the error corpus: an answer, marked as cut.
	{name: "length-cut-call", marker: `"finish_reason":"length"`, stop: message.StopLength,
		blocks: []message.Block{text("Writing."), rawCall("t1", "write", `{"path":"a","content":"abc`)}},
	{name: "router-renamed-length", marker: `"finish_reason":"tool_calls"`, stop: message.StopLength,
		change: func(t *provider.Target) { t.MaxOutputTokens = 64 },
		blocks: []message.Block{rawCall("t1", "write", `{"path":"a`)}, usage: provider.Usage{InputTokens: 5, OutputTokens: 64}},
	{name: "legacy-function-call", marker: `"finish_reason":"function_call"`, stop: message.StopCalls,
		blocks: []message.Block{toolCall("", "read", `{"a":1}`)}},
	{name: "no-done", marker: `"finish_reason":"stop"`, stop: message.StopEnd, blocks: []message.Block{text("Done here.")}},
	{name: "no-finish-reason", kind: failure.StreamTruncated},
	{name: "no-finish-reason", marker: "[DONE]", stop: message.StopEnd, blocks: []message.Block{text("Almost")},
		change: func(t *provider.Target) { t.MissingFinishReason = provider.MissingFinishAccept }},
	{name: "no-finish-reason-empty", kind: failure.StreamTruncated,
		change: func(t *provider.Target) { t.MissingFinishReason = provider.MissingFinishAccept }},
	// Row 149 of the error corpus: no content at all.
	{name: "lmstudio-empty", kind: failure.EmptyResponse, usage: provider.Usage{InputTokens: 9000}},
	{name: "vllm-flat-error", kind: failure.ServerError},
	{name: "openrouter-error", kind: failure.RateLimited},
	{name: "choice-error", kind: failure.ServerError},
	{name: "named-error-event", kind: failure.Overloaded},
	{name: "content-filter", kind: failure.ContentFiltered},
	// Row 164 of the error corpus: broken JSON.
	{name: "bad-json", kind: failure.StreamMalformed},
	{name: "bad-utf8", marker: `"finish_reason":"stop"`, stop: message.StopEnd, blocks: []message.Block{text("a\ufffd\ufffdb\ufffd")}},
	{name: "two-choices", marker: `"finish_reason":"stop"`, stop: message.StopEnd, blocks: []message.Block{text("first")}},
}

func (d decoded) target() provider.Target {
	target := testTarget()
	if d.change != nil {
		d.change(&target)
	}
	return target
}

func TestEveryTranscriptIsDecoded(t *testing.T) {
	for _, tt := range transcripts {
		t.Run(tt.name, func(t *testing.T) {
			answer, failed, decoder := decode(transcript(t, tt.name), tt.target())
			if tt.kind != "" {
				if answer != nil || failed.Kind != tt.kind {
					t.Errorf("got %+v, %+v, want %s", answer, failed, tt.kind)
				}
			} else {
				want := &message.Message{Role: message.RoleAssistant, Stop: tt.stop, Origin: &testScope, Blocks: tt.blocks}
				if diff := cmp.Diff(want, answer); diff != "" {
					t.Errorf("%+v (-want +got):\n%s", failed, diff)
				}
			}
			if diff := cmp.Diff(tt.usage, decoder.Usage()); diff != "" {
				t.Error(diff)
			}
			if len(decoder.Warnings()) != tt.warnings {
				t.Errorf("warnings %q, want %d", decoder.Warnings(), tt.warnings)
			}
		})
	}
}

func TestEveryTranscriptFileIsDecoded(t *testing.T) {
	files, err := filepath.Glob("testdata/transcripts/*.sse")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".sse")
		found := false
		for _, tt := range transcripts {
			found = found || tt.name == name
		}
		if !found {
			t.Errorf("%s has no expectation", file)
		}
	}
}

func TestAStreamCutAtAnyByteIsAnAnswerOnlyWithItsTerminalMarker(t *testing.T) {
	for _, tt := range transcripts {
		stream := transcript(t, tt.name)
		whole, _, _ := decode(stream, tt.target())
		complete := len(stream) + 1
		if tt.marker != "" {
			at := bytes.Index(stream, []byte(tt.marker))
			if at < 0 {
				t.Fatalf("%s: no marker", tt.name)
			}
			complete = at + len(stream[at:])
			if end := bytes.IndexAny(stream[at:], "\r\n"); end >= 0 {
				complete = at + end
			}
		}
		for cut := range len(stream) {
			answer, failed, _ := decode(stream[:cut], tt.target())
			if cut < complete {
				if answer != nil {
					t.Fatalf("%s cut at %d: an answer without its terminal marker: %+v", tt.name, cut, answer)
				}
				if tt.kind == "" && failed.Kind != failure.StreamTruncated {
					t.Fatalf("%s cut at %d: %+v, want StreamTruncated", tt.name, cut, failed)
				}
				continue
			}
			// Usage that was cut off can tell less about a cut turn; the content is the same.
			if answer == nil || cmp.Diff(whole.Blocks, answer.Blocks) != "" {
				t.Fatalf("%s cut at %d, after the marker: %+v, %+v", tt.name, cut, answer, failed)
			}
		}
	}
}

func TestAnAnswerIsCompleteFromItsTerminalMarkerOn(t *testing.T) {
	decoder := Dialect{}.NewDecoder(testTarget())
	for _, tt := range []struct {
		data           string
		complete, done bool
	}{
		{`{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}],"usage":null}`, false, false},
		{`{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}`, false, false},
		{`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`, true, false},
		{`{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}`, true, false},
		{`[DONE]`, true, true},
	} {
		step, err := decoder.Decode(sse.Event{Data: []byte(tt.data)})
		if err != nil || step.Complete != tt.complete || step.Done != tt.done {
			t.Errorf("%s: %+v, %v, want complete %v, done %v", tt.data, step, err, tt.complete, tt.done)
		}
	}
}

func TestProgressIsContentAndNothingElse(t *testing.T) {
	for _, tt := range []struct {
		data string
		want bool
	}{
		{`{"choices":[{"index":0,"delta":{"content":"a"}}]}`, true},
		{`{"choices":[{"index":0,"delta":{"reasoning_content":"a"}}]}`, true},
		{`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"name":"x"}}]}}]}`, true},
		{`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}}]}`, true},
		{`{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}`, false},
		{`{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}`, false},
		{`{"choices":[{"index":1,"delta":{"content":"a"}}]}`, false},
		{`{}`, false},
		{``, false},
	} {
		step, err := Dialect{}.NewDecoder(testTarget()).Decode(sse.Event{Data: []byte(tt.data)})
		if err != nil || step.Progress != tt.want {
			t.Errorf("%s: %+v, %v, want progress %v", tt.data, step, err, tt.want)
		}
	}
}

func TestWhatIsNoChunkEndsTheAttempt(t *testing.T) {
	for _, data := range []string{`[]`, `null`, `"x"`, `42`, `{`, `{"choices":{}}`, `<html>`, `[DONE`, `{"choices":[{"delta":"x"}]}`} {
		answer, failed, _ := decode([]byte("data: "+data+"\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\n"), testTarget())
		if answer != nil || failed.Kind != failure.StreamMalformed {
			t.Errorf("%s: got %+v, %+v", data, answer, failed)
		}
	}
}

func TestAFinishReasonHasAMeaning(t *testing.T) {
	for reason, want := range map[string]string{
		"stop": "End", "length": "Length", "max_tokens": "Length", "model_length": "Length", "content_filter": "ContentFiltered",
		"error": "ServerError", "insufficient_system_resource": "Overloaded", "eos": "End", "tool_calls": "End",
	} {
		answer, failed, _ := decode([]byte(`data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"`+reason+"\"}]}\n\n"), testTarget())
		got := ""
		if answer != nil {
			got = string(answer.Stop)
		} else {
			got = string(failed.Kind)
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", reason, got, want)
		}
	}
}

func TestTooManyCallsAreMalformed(t *testing.T) {
	var stream bytes.Buffer
	for i := range 600 {
		stream.WriteString(`data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":` + string(rune('0'+i%10)) + `,"id":"` + strings.Repeat("x", i) + `","function":{"name":"n"}}]}}]}` + "\n\n")
	}
	if answer, failed, _ := decode(stream.Bytes(), testTarget()); answer != nil || failed.Kind != failure.StreamMalformed {
		t.Errorf("got %+v, %+v", answer, failed)
	}
}

func FuzzDecoder(f *testing.F) {
	files, _ := filepath.Glob("testdata/transcripts/*.sse")
	for _, file := range files {
		stream, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(stream, false)
		f.Add(stream, true)
	}
	f.Fuzz(func(t *testing.T, stream []byte, accept bool) {
		target := testTarget()
		if accept {
			target.MissingFinishReason = provider.MissingFinishAccept
		}
		answer, failed, decoder := decode(stream, target)
		if answer == nil {
			if failed.Kind == failure.Cancelled || failed.Message == "" {
				t.Errorf("got %+v", failed)
			}
			return
		}
		// encoding/json takes names in any case, and with escapes.
		marked := bytes.Contains(bytes.ToLower(stream), []byte("finish_reason")) || bytes.Contains(stream, []byte(`\u`))
		if !marked && !accept {
			t.Errorf("an answer without a terminal marker: %q", stream)
		}
		for _, call := range answer.Calls() {
			if call.ID != "" || !provider.IsJSONObject(call.Arguments) {
				t.Errorf("call %+v", call)
			}
		}
		if answer.Stop == "" || answer.Stop != message.StopLength && answer.Text() == "" && len(answer.Calls()) == 0 {
			t.Errorf("an empty answer: %+v", answer)
		}
		if decoder.Usage().InputTokens < 0 || decoder.Usage().OutputTokens < 0 {
			t.Errorf("usage %+v", decoder.Usage())
		}
		// What was decoded can be rendered for the next request.
		_, err := Dialect{}.Render(target, provider.Request{Messages: []message.Message{*answer}})
		if err != nil {
			t.Errorf("render: %v", err)
		}
	})
}
