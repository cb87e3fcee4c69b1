package chaos_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"image"
	"image/png"
	"strings"
	"testing"
)

// claudeConversation is a valid request with one answered call in its history.
func claudeConversation() object {
	return object{
		"model": "c1", "stream": true, "max_tokens": 4096, "system": "You work.",
		"messages": []any{
			object{"role": "user", "content": "List the files."},
			object{"role": "assistant", "content": []any{object{"type": "text", "text": "I look."}, claudeCall("toolu_1")}},
			object{"role": "user", "content": []any{claudeResult("toolu_1")}},
		},
		"tools": []any{claudeTool("shell")},
	}
}

func claudeCall(id string) object {
	return object{"type": "tool_use", "id": id, "name": "shell", "input": object{"cmd": "ls"}}
}

func claudeResult(id string) object {
	return object{"type": "tool_result", "tool_use_id": id, "content": "a.txt"}
}

func claudeTool(name string) object {
	return object{"name": name, "description": "d", "input_schema": object{"type": "object", "properties": object{"cmd": object{"type": "string"}}}}
}

func pngOf(t *testing.T, width, height int) string {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, width, height))); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

func claudeImage(kind, data string) object {
	return object{"type": "image", "source": object{"type": "base64", "media_type": kind, "data": data}}
}

func TestAnthropicMessagesRefusesWhatTheRealAPIRefuses(t *testing.T) {
	user := object{"role": "user", "content": "hi"}
	said := object{"role": "assistant", "content": "hello"}
	asked := func(ids ...string) object {
		var blocks []any
		for _, id := range ids {
			blocks = append(blocks, claudeCall(id))
		}
		return object{"role": "assistant", "content": blocks}
	}
	userWith := func(blocks ...any) object { return object{"role": "user", "content": blocks} }
	text := func(s string) object { return object{"type": "text", "text": s} }
	small, wide := pngOf(t, 10, 10), pngOf(t, 8001, 1)
	cases := []struct {
		name   string
		leg    string
		change func(o object)
		status int
		kind   string
		says   string
	}{
		{name: "an unknown model", change: func(o object) { o["model"] = "c2" }, status: 404, kind: "not_found_error", says: "model: c2"},
		{name: "no model", change: func(o object) { delete(o, "model") }, says: "model: field required"},
		{name: "no output limit", change: func(o object) { delete(o, "max_tokens") }, says: "max_tokens: field required"},
		{name: "an output limit of nothing", change: func(o object) { o["max_tokens"] = 0 }, says: "max_tokens"},
		{name: "an unknown field", change: func(o object) { o["max_completion_tokens"] = 3 }, says: "max_completion_tokens"},
		{name: "a temperature over one", change: func(o object) { o["temperature"] = 1.5 }, says: "temperature"},
		{name: "no messages", change: func(o object) { setMessages(o) }, says: "at least one message"},
		{name: "a system message", change: func(o object) { setMessages(o, object{"role": "system", "content": "x"}, user) }, says: "messages.0.role"},
		{name: "an assistant message first", change: func(o object) { setMessages(o, said, user) }, says: "first message must use the user role"},
		{name: "two user messages in a row", change: func(o object) { setMessages(o, user, user) }, says: "roles must alternate"},
		{name: "an assistant message last", change: func(o object) { setMessages(o, user, said) }, says: "must end with a user message"},
		{name: "an empty text", change: func(o object) { setMessages(o, object{"role": "user", "content": ""}) }, says: "must be non-empty"},
		{name: "an empty text block", change: func(o object) { setMessages(o, userWith(text(""))) }, says: "messages.0.content.0: text content blocks must be non-empty"},
		{name: "a text block of white space", change: func(o object) { setMessages(o, userWith(text(" \n"))) }, says: "non-whitespace"},
		{name: "a message without blocks", change: func(o object) { setMessages(o, object{"role": "user", "content": []any{}}) }, says: "non-empty content"},
		{name: "an empty system block", change: func(o object) { o["system"] = []any{text("")} }, says: "system.0"},
		{name: "a call without its result", change: func(o object) { setMessages(o, user, asked("t1"), user) }, says: "without `tool_result` blocks immediately after: t1"},
		{name: "a call without its result at the end", change: func(o object) { setMessages(o, user, asked("t1")) }, says: "without `tool_result`"},
		{name: "one of two calls without its result", change: func(o object) { setMessages(o, user, asked("t1", "t2"), userWith(claudeResult("t1"))) }, says: "immediately after: t2"},
		{name: "a result without a call", change: func(o object) { setMessages(o, userWith(claudeResult("t1"))) }, says: "unexpected `tool_use_id`"},
		{name: "a result one message too late", change: func(o object) {
			setMessages(o, user, asked("t1"), userWith(claudeResult("t1")), said, userWith(claudeResult("t1")))
		}, says: "messages.4.content.0: unexpected `tool_use_id`"},
		{name: "two results for one call", change: func(o object) { setMessages(o, user, asked("t1"), userWith(claudeResult("t1"), claudeResult("t1"))) }, says: "unexpected `tool_use_id`"},
		{name: "text before a result", change: func(o object) { setMessages(o, user, asked("t1"), userWith(text("so:"), claudeResult("t1"))) }, says: "must come before all other content"},
		{name: "a failed result without content", change: func(o object) {
			setMessages(o, user, asked("t1"), userWith(object{"type": "tool_result", "tool_use_id": "t1", "is_error": true}))
		}, says: "cannot be empty if `is_error`"},
		{name: "an empty text in a result", change: func(o object) {
			setMessages(o, user, asked("t1"), userWith(object{"type": "tool_result", "tool_use_id": "t1", "content": []any{text("")}}))
		}, says: "messages.2.content.0.content.0"},
		{name: "one id for two calls", change: func(o object) {
			setMessages(o, user, asked("t1"), userWith(claudeResult("t1")), asked("t1"), userWith(claudeResult("t1")))
		}, says: "ids must be unique"},
		{name: "an id outside the grammar", change: func(o object) {
			setMessages(o, user, asked("call:1"), userWith(claudeResult("call:1")))
		}, says: "messages.1.content.0.id"},
		{name: "input that is a string", change: func(o object) {
			call := claudeCall("t1")
			call["input"] = `{"cmd":"ls"}`
			setMessages(o, user, object{"role": "assistant", "content": []any{call}}, userWith(claudeResult("t1")))
		}, says: "messages.1.content.0.input"},
		{name: "calls in the history and no tools", change: func(o object) { delete(o, "tools") }, says: "tools: must be declared"},
		{name: "a call in a user message", change: func(o object) { setMessages(o, userWith(claudeCall("t1"))) }, says: "not allowed in a user message"},
		{name: "a tool without a schema", change: func(o object) { o["tools"] = []any{object{"name": "shell"}} }, says: "tools.0.input_schema: field required"},
		{name: "a schema that is no object", change: func(o object) {
			o["tools"] = []any{object{"name": "shell", "input_schema": object{"type": "array"}}}
		}, says: "tools.0.input_schema"},
		{name: "a tool declared twice", change: func(o object) { o["tools"] = []any{claudeTool("shell"), claudeTool("shell")} }, says: "tool names must be unique"},
		{name: "a tool of the other dialect", change: func(o object) { o["tools"] = []any{openAITool("shell")} }, says: "tools.0"},
		{name: "a tool choice that is not declared", change: func(o object) { o["tool_choice"] = object{"type": "tool", "name": "grep"} }, says: "tool_choice.name"},
		{name: "a tool choice as a string", change: func(o object) { o["tool_choice"] = "auto" }, says: "tool_choice.type"},
		{name: "a small thinking budget", change: func(o object) { o["thinking"] = object{"type": "enabled", "budget_tokens": 1023} }, says: "thinking.budget_tokens"},
		{name: "a thinking budget as large as the output limit", change: func(o object) {
			setMessages(o, user)
			o["thinking"] = object{"type": "enabled", "budget_tokens": 4096}
		}, says: "must be greater than thinking.budget_tokens"},
		{name: "thinking with a forced tool", change: func(o object) {
			setMessages(o, user)
			o["thinking"] = object{"type": "adaptive"}
			o["tool_choice"] = object{"type": "any"}
		}, says: "thinking may not be enabled"},
		{name: "thinking and a foreign turn in an open cycle", change: func(o object) { o["thinking"] = object{"type": "enabled", "budget_tokens": 2000} }, says: "but found `text`"},
		{name: "a signature minted nowhere", change: func(o object) {
			setMessages(o, user, object{"role": "assistant", "content": []any{object{"type": "thinking", "thinking": "hm", "signature": "QUJD"}, text("x")}}, user)
		}, says: "messages.1.content.0: invalid `signature` in `thinking` block"},
		{name: "thinking without a signature", change: func(o object) {
			setMessages(o, user, object{"role": "assistant", "content": []any{object{"type": "thinking", "thinking": "hm"}, text("x")}}, user)
		}, says: "messages.1.content.0.signature: field required"},
		{name: "hidden thinking minted nowhere", change: func(o object) {
			setMessages(o, user, object{"role": "assistant", "content": []any{object{"type": "redacted_thinking", "data": "QUJD"}, text("x")}}, user)
		}, says: "invalid `data`"},
		{name: "an image type that is not supported", change: func(o object) { setMessages(o, userWith(claudeImage("image/tiff", small))) }, says: "media_type"},
		{name: "an image that is none", change: func(o object) { setMessages(o, userWith(claudeImage("image/png", "QUJD"))) }, says: "could not process image"},
		{name: "an image of another type than declared", change: func(o object) { setMessages(o, userWith(claudeImage("image/jpeg", small))) }, says: "appears to be image/png"},
		{name: "an image over 5 MB", change: func(o object) {
			setMessages(o, userWith(claudeImage("image/png", strings.Repeat("A", 5<<20+4))))
		}, says: "image exceeds 5 MB maximum"},
		{name: "an image over 8000 pixels", change: func(o object) { setMessages(o, userWith(claudeImage("image/png", wide))) }, says: "max allowed size of 8000 pixels"},
		{name: "many images over 2000 pixels", change: func(o object) {
			large := claudeImage("image/png", pngOf(t, 2001, 1))
			blocks := make([]any, 21)
			for i := range blocks {
				blocks[i] = large
			}
			setMessages(o, userWith(blocks...))
		}, says: "max allowed size of 2000 pixels"},
		{name: "more than 100 images", change: func(o object) {
			blocks := make([]any, 101)
			for i := range blocks {
				blocks[i] = claudeImage("image/png", small)
			}
			setMessages(o, userWith(blocks...))
		}, says: "too many images: 101 > 100"},
		{name: "five cache breakpoints", change: func(o object) {
			var blocks []any
			for range 5 {
				blocks = append(blocks, object{"type": "text", "text": "x", "cache_control": object{"type": "ephemeral"}})
			}
			setMessages(o, userWith(blocks...))
		}, says: "at most 4 blocks"},
		{name: "a prompt over the window", leg: "claude-tiny", change: func(o object) { o["max_tokens"] = 1 }, says: "prompt is too long: "},
		{name: "a prompt that fits without its output", leg: "claude-small", change: func(object) {}, says: "+ 4096 > 4000"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, `
legs:
  claude: {dialect: AnthropicMessages, model: c1, steps: [{answer: accepted}]}
  claude-tiny: {dialect: AnthropicMessages, contextWindow: 50, steps: [{answer: accepted}]}
  claude-small: {dialect: AnthropicMessages, contextWindow: 4000, steps: [{answer: accepted}]}
`)
			leg, status, kind := c.leg, c.status, c.kind
			if leg == "" {
				leg = "claude"
			}
			if status == 0 {
				status, kind = 400, "invalid_request_error"
			}
			o := claudeConversation()
			c.change(o)
			got := r.post(leg, encode(t, o))
			var body struct {
				Type  string
				Error struct{ Type, Message string }
				ID    string `json:"request_id"`
			}
			if err := json.Unmarshal([]byte(got.body), &body); err != nil {
				t.Fatalf("the body of status %d is not the API's error: %v\n%s", got.status, err, got.body)
			}
			if got.status != status || body.Type != "error" || body.Error.Type != kind || !strings.Contains(body.Error.Message, c.says) {
				t.Errorf("got %d %s\nwant %d %s that says %q", got.status, got.body, status, kind, c.says)
			}
			if body.ID == "" || body.ID != got.header.Get("request-id") {
				t.Errorf("the request id is %q in the body and %q in the header", body.ID, got.header.Get("request-id"))
			}
			if q := r.last(); q.Step != 0 || q.Outcome != "Rejected" || len(q.Problems) == 0 {
				t.Errorf("the request is remembered as %+v; want a rejection that used no step", q)
			}
		})
	}
}

func TestAnthropicMessagesAcceptsValidConversations(t *testing.T) {
	for name, change := range map[string]func(o object){
		"a call and its result": func(object) {},
		"text after the results": func(o object) {
			setMessages(o, object{"role": "user", "content": "go"}, object{"role": "assistant", "content": []any{claudeCall("a"), claudeCall("b")}},
				object{"role": "user", "content": []any{claudeResult("b"), claudeResult("a"), object{"type": "text", "text": "and?"}}})
		},
		"an image of 8000 pixels": func(o object) {
			setMessages(o, object{"role": "user", "content": []any{claudeImage("image/png", pngOf(t, 8000, 1))}})
		},
		"adaptive thinking with a foreign turn in an open cycle": func(o object) { o["thinking"] = object{"type": "adaptive"} },
		"an empty result": func(o object) { o["messages"].([]any)[2].(object)["content"].([]any)[0].(object)["content"] = "" },
		"four cache breakpoints": func(o object) {
			o["system"] = []any{object{"type": "text", "text": "x", "cache_control": object{"type": "ephemeral", "ttl": "1h"}}}
		},
		"a tool choice of none":     func(o object) { o["tool_choice"] = object{"type": "none"} },
		"a request without streams": func(o object) { delete(o, "stream") },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, `{legs: {claude: {dialect: AnthropicMessages, model: c1, steps: [{answer: accepted}]}}}`)
			o := claudeConversation()
			change(o)
			if got := r.post("claude", encode(t, o)); got.status != 200 {
				t.Errorf("refused with %d: %s", got.status, got.body)
			}
		})
	}
}
