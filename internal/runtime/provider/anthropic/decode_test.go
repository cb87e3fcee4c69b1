package anthropic

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
		Route:  route.Route{BaseURL: "https://llm.example", Dialect: route.AnthropicMessages, Model: "m1", SecretName: "keys", SecretKey: "a"},
		Secret: "key",
	}
}

// testScope is what testTarget issues.
var testScope = message.Scope{Route: string(testTarget().Route.Name()), Dialect: "AnthropicMessages", Model: "m1"}

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

func credential(kind, data string) []message.Credential {
	return []message.Credential{{Scope: testScope, Kind: kind, Data: []byte(data)}}
}

func thinking(s, signature string) message.Block {
	return message.Block{Kind: message.BlockThinking, Text: s, Credentials: credential("signature", signature)}
}

func redacted(data string) message.Block {
	return message.Block{Kind: message.BlockThinking, Credentials: credential("redacted", data)}
}

func toolUse(id, name, arguments string) message.Block {
	return message.Block{Kind: message.BlockCall, Call: &message.Call{Name: name, Arguments: json.RawMessage(arguments)},
		Credentials: credential("callID", id)}
}

func rawToolUse(id, name, raw string) message.Block {
	b := toolUse(id, name, "{}")
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

// inputUsage is what most transcripts report at their start: 20 new, 5 written to and 100 read from the cache.
func inputUsage(output int64) provider.Usage {
	return provider.Usage{InputTokens: 125, CachedInputTokens: 100, CacheWriteTokens: 5, OutputTokens: output}
}

var transcripts = []decoded{
	{name: "text", marker: `"end_turn"`, stop: message.StopEnd, blocks: []message.Block{text("The sky is blue.")}, usage: inputUsage(12)},
	{name: "thinking-calls", marker: `"stop_reason":"tool_use"`, stop: message.StopCalls, usage: inputUsage(40), blocks: []message.Block{
		thinking("Let me look.", "c2ln"), redacted("ZW5j"), text("I look."), toolUse("toolu_01", "grep", `{"q": "x"}`), toolUse("toolu_02", "now", `{}`)}},
	{name: "hidden-thinking", marker: `"end_turn"`, stop: message.StopEnd, blocks: []message.Block{thinking("", "c2ln"), text("Yes.")}, usage: inputUsage(12)},
	// Row 52 of the error corpus: cut inside message_stop.
	{name: "cut-message-stop", marker: `"end_turn"`, stop: message.StopEnd, blocks: []message.Block{text("Done.")}, usage: inputUsage(12)},
	// Row 53 of the error corpus: an answer, marked as cut.
	{name: "max-tokens-call", marker: `"max_tokens"`, stop: message.StopLength, usage: inputUsage(64),
		blocks: []message.Block{text("Writing."), rawToolUse("toolu_01", "write", `{"path":"a","con`)}},
	// Row 55 of the error corpus: to be sent back.
	{name: "pause-turn", marker: `"pause_turn"`, stop: message.StopPaused, blocks: []message.Block{text("Still working.")}, usage: inputUsage(12)},
	{name: "refusal", marker: `"refusal"`, stop: message.StopRefusal, usage: inputUsage(3)},
	// Row 56 of the error corpus: the window is full.
	{name: "window-exceeded", kind: failure.ContextLengthExceeded, usage: inputUsage(12)},
	{name: "stop-sequence", marker: `"stop_reason":"stop_sequence"`, stop: message.StopEnd, blocks: []message.Block{text("A")}, usage: inputUsage(12)},
	{name: "empty", kind: failure.EmptyResponse, usage: inputUsage(0)},
	{name: "overloaded", kind: failure.Overloaded, usage: inputUsage(0)},
	{name: "unnamed-error", kind: failure.RateLimited, usage: inputUsage(0)},
	{name: "proxy-error", kind: failure.ServerError, usage: inputUsage(0)},
	// Row 164 of the error corpus: broken JSON.
	{name: "bad-json", kind: failure.StreamMalformed, usage: inputUsage(0)},
	{name: "unnamed-events", marker: `"end_turn"`, stop: message.StopEnd, blocks: []message.Block{text("Plain.")}, usage: inputUsage(12)},
	{name: "whole-input", marker: `"stop_reason":"tool_use"`, stop: message.StopCalls, blocks: []message.Block{toolUse("t1", "read", `{"path":"a"}`)}, usage: inputUsage(12)},
	{name: "no-block-start", marker: `"end_turn"`, stop: message.StopEnd, blocks: []message.Block{text("Hi")}, usage: inputUsage(12)},
	{name: "call-without-start", kind: failure.StreamMalformed, usage: inputUsage(0)},
	{name: "unknown-blocks", marker: `"end_turn"`, stop: message.StopEnd, blocks: []message.Block{text("Found.")}, usage: inputUsage(12), warnings: 1},
	{name: "late-input-usage", marker: `"end_turn"`, stop: message.StopEnd, blocks: []message.Block{text("A")},
		usage: provider.Usage{InputTokens: 40, CachedInputTokens: 10, OutputTokens: 4}},
	{name: "no-stop-reason", kind: failure.StreamTruncated, usage: inputUsage(0)},
	{name: "no-stop-reason", marker: `{"type":"message_stop"}`, stop: message.StopEnd, blocks: []message.Block{text("Almost")}, usage: inputUsage(0),
		change: func(t *provider.Target) { t.MissingFinishReason = provider.MissingFinishAccept }},
	{name: "bad-arguments", marker: `"stop_reason":"tool_use"`, stop: message.StopCalls, blocks: []message.Block{rawToolUse("t1", "read", `[1,2]`)}, usage: inputUsage(12)},
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
			complete = at + bytes.IndexAny(stream[at:], "\r\n")
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
			if answer == nil || cmp.Diff(whole, answer) != "" {
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
		{`{"type":"message_start","message":{"id":"m","usage":{"input_tokens":5}}}`, false, false},
		{`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"a"}}`, false, false},
		{`{"type":"message_delta","delta":{"stop_reason":null},"usage":{"output_tokens":1}}`, false, false},
		{`{"type":"message_delta","delta":{"stop_reason":"end_turn"}}`, true, false},
		{`{"type":"ping"}`, true, false},
		{`{"type":"message_stop"}`, true, true},
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
		{`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}`, true},
		{`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"a"}}`, true},
		{`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"a"}}`, true},
		{`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"n","input":{}}}`, true},
		{`{"type":"content_block_start","index":0,"content_block":{"type":"redacted_thinking","data":"x"}}`, true},
		{`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`, false},
		{`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":""}}`, false},
		{`{"type":"content_block_stop","index":0}`, false},
		{`{"type":"ping"}`, false},
		{`{"type":"message_start","message":{"id":"m"}}`, false},
		{`{"type":"message_delta","delta":{"stop_reason":null}}`, false},
		{`{}`, false},
		{``, false},
	} {
		step, err := Dialect{}.NewDecoder(testTarget()).Decode(sse.Event{Data: []byte(tt.data)})
		if err != nil || step.Progress != tt.want {
			t.Errorf("%s: %+v, %v, want progress %v", tt.data, step, err, tt.want)
		}
	}
}

func TestWhatIsNoEventEndsTheAttempt(t *testing.T) {
	for _, data := range []string{`[]`, `null`, `"x"`, `42`, `{`, `<html>`, `[DONE]`, `{"type":"content_block_start","index":0}`,
		`{"type":"content_block_delta","index":0}`, `{"delta":[]}`} {
		answer, failed, _ := decode([]byte("data: "+data+"\n\n"+string(transcript(t, "text"))), testTarget())
		if answer != nil || failed.Kind != failure.StreamMalformed {
			t.Errorf("%s: got %+v, %+v", data, answer, failed)
		}
	}
}

func TestTooManyBlocksAreMalformed(t *testing.T) {
	stream := strings.Repeat(`data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":"a"}}`+"\n\n", 3000)
	if answer, failed, _ := decode([]byte(stream), testTarget()); answer != nil || failed.Kind != failure.StreamMalformed {
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
		marked := bytes.Contains(bytes.ToLower(stream), []byte("stop_reason")) || bytes.Contains(stream, []byte(`\u`))
		if !marked && !accept {
			t.Errorf("an answer without a terminal marker: %q", stream)
		}
		for _, call := range answer.Calls() {
			if call.ID != "" || !provider.IsJSONObject(call.Arguments) {
				t.Errorf("call %+v", call)
			}
		}
		mayBeEmpty := answer.Stop == message.StopLength || answer.Stop == message.StopRefusal
		if answer.Stop == "" || !mayBeEmpty && answer.Text() == "" && len(answer.Calls()) == 0 {
			t.Errorf("an empty answer: %+v", answer)
		}
		if decoder.Usage().InputTokens < 0 || decoder.Usage().OutputTokens < 0 {
			t.Errorf("usage %+v", decoder.Usage())
		}
		if _, err := (Dialect{}).Render(target, provider.Request{Messages: []message.Message{*answer}}); err != nil {
			t.Errorf("render: %v", err)
		}
	})
}
