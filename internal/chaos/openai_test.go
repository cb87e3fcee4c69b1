package chaos_test

import (
	"encoding/json"
	"strings"
	"testing"
)

// openAIConversation is a valid request with one answered call in its history.
func openAIConversation() object {
	return object{
		"model": "m1", "stream": true, "max_tokens": 1000,
		"messages": []any{
			object{"role": "system", "content": "You work."},
			object{"role": "user", "content": "List the files."},
			object{"role": "assistant", "content": nil, "tool_calls": []any{openAICall("call_1", "shell", `{"cmd":"ls"}`)}},
			object{"role": "tool", "tool_call_id": "call_1", "content": "a.txt"},
		},
		"tools": []any{openAITool("shell")},
	}
}

func openAICall(id, name, arguments string) object {
	return object{"id": id, "type": "function", "function": object{"name": name, "arguments": arguments}}
}

func openAITool(name string) object {
	return object{"type": "function", "function": object{"name": name, "description": "d",
		"parameters": object{"type": "object", "properties": object{"cmd": object{"type": "string"}}, "required": []any{"cmd"}}}}
}

func setMessages(o object, messages ...any) { o["messages"] = messages }

func TestOpenAIChatRefusesWhatTheRealAPIRefuses(t *testing.T) {
	user := object{"role": "user", "content": "hi"}
	asked := object{"role": "assistant", "tool_calls": []any{openAICall("call_1", "shell", "{}")}}
	answer := object{"role": "tool", "tool_call_id": "call_1", "content": "ok"}
	cases := []struct {
		name   string
		leg    string // strict unless named
		change func(o object)
		status int
		code   string
		param  string
	}{
		{name: "a model that is missing", change: func(o object) { delete(o, "model") }, status: 400, param: "model"},
		{name: "a model that is unknown", change: func(o object) { o["model"] = "m2" }, status: 404, code: "model_not_found"},
		{name: "an unknown field", change: func(o object) { o["maxTokens"] = 3 }, status: 400, code: "unknown_parameter", param: "maxTokens"},
		{name: "an output limit of nothing", change: func(o object) { o["max_tokens"] = 0 }, status: 400, code: "integer_below_min_value", param: "max_tokens"},
		{name: "a negative output limit", change: func(o object) { o["max_tokens"] = -186 }, status: 400, code: "integer_below_min_value", param: "max_tokens"},
		{name: "a fractional output limit", change: func(o object) { o["max_tokens"] = 1.5 }, status: 400, code: "invalid_type", param: "max_tokens"},
		{name: "both output limits", change: func(o object) { o["max_completion_tokens"] = 5 }, status: 400, param: "max_tokens"},
		{name: "a temperature over two", change: func(o object) { o["temperature"] = 2.5 }, status: 400, code: "decimal_out_of_range", param: "temperature"},
		{name: "a stream that is no boolean", change: func(o object) { o["stream"] = "yes" }, status: 400, code: "invalid_type", param: "stream"},
		{name: "stream options without a stream", change: func(o object) { o["stream"] = false; o["stream_options"] = object{"include_usage": true} }, status: 400, param: "stream_options"},
		{name: "an unknown stream option", change: func(o object) { o["stream_options"] = object{"usage": true} }, status: 400, code: "unknown_parameter", param: "stream_options.usage"},
		{name: "no messages", change: func(o object) { setMessages(o) }, status: 400, code: "empty_array", param: "messages"},
		{name: "an unknown role", change: func(o object) { setMessages(o, object{"role": "robot", "content": "x"}) }, status: 400, code: "invalid_value", param: "messages[0].role"},
		{name: "a user message without content", change: func(o object) { setMessages(o, object{"role": "user"}) }, status: 400, code: "invalid_type", param: "messages[0].content"},
		{name: "empty text", change: func(o object) { setMessages(o, object{"role": "user", "content": ""}) }, status: 400, param: "messages[0].content"},
		{name: "an empty list of parts", change: func(o object) { setMessages(o, object{"role": "user", "content": []any{}}) }, status: 400, code: "empty_array", param: "messages[0].content"},
		{name: "an empty text part", change: func(o object) {
			setMessages(o, object{"role": "user", "content": []any{object{"type": "text", "text": ""}}})
		}, status: 400, param: "messages[0].content[0].text"},
		{name: "an image in a system message", change: func(o object) {
			setMessages(o, object{"role": "system", "content": []any{object{"type": "image_url", "image_url": object{"url": "https://x/y.png"}}}}, user)
		}, status: 400, code: "invalid_value", param: "messages[0].content[0].type"},
		{name: "an image that is no image", change: func(o object) {
			setMessages(o, object{"role": "user", "content": []any{object{"type": "image_url", "image_url": object{"url": "data:text/plain;base64,QQ=="}}}})
		}, status: 400, code: "invalid_image_url", param: "messages[0].content[0].image_url"},
		{name: "an unknown field of a message", change: func(o object) { setMessages(o, object{"role": "user", "content": "x", "id": "1"}) }, status: 400, code: "unknown_parameter", param: "messages[0].id"},
		{name: "reasoning sent back to an API that knows none", change: func(o object) {
			setMessages(o, user, object{"role": "assistant", "content": "x", "reasoning_content": "hm"}, user)
		}, status: 400, code: "unknown_parameter", param: "messages[1].reasoning_content"},
		{name: "an assistant message with neither content nor calls", change: func(o object) { setMessages(o, user, object{"role": "assistant", "content": nil}, user) }, status: 400, param: "messages[1]"},
		{name: "an assistant message with empty content", change: func(o object) { setMessages(o, user, object{"role": "assistant", "content": ""}, user) }, status: 400, param: "messages[1].content"},
		{name: "an empty list of calls", change: func(o object) {
			setMessages(o, user, object{"role": "assistant", "content": "x", "tool_calls": []any{}}, user)
		}, status: 400, code: "empty_array", param: "messages[1].tool_calls"},
		{name: "a call without an answer at the end", change: func(o object) { setMessages(o, user, asked) }, status: 400, param: "messages"},
		{name: "a call answered too late", change: func(o object) { setMessages(o, user, asked, user, answer) }, status: 400, param: "messages[2]"},
		{name: "one of two calls without an answer", change: func(o object) {
			setMessages(o, user, object{"role": "assistant", "tool_calls": []any{openAICall("call_1", "shell", "{}"), openAICall("call_2", "shell", "{}")}}, answer, user)
		}, status: 400, param: "messages[3]"},
		{name: "a call with two answers", change: func(o object) { setMessages(o, user, asked, answer, answer) }, status: 400, param: "messages[3].tool_call_id"},
		{name: "an answer without a call", change: func(o object) { setMessages(o, user, answer) }, status: 400, param: "messages[1].tool_call_id"},
		{name: "a call id used twice", change: func(o object) { setMessages(o, user, asked, answer, asked, answer) }, status: 400, code: "invalid_value", param: "messages[3].tool_calls[0].id"},
		{name: "a call id of 41 characters", change: func(o object) {
			setMessages(o, user, object{"role": "assistant", "tool_calls": []any{openAICall(strings.Repeat("a", 41), "shell", "{}")}},
				object{"role": "tool", "tool_call_id": strings.Repeat("a", 41), "content": "x"})
		}, status: 400, code: "string_above_max_length", param: "messages[1].tool_calls[0].id"},
		{name: "a call id outside the grammar", change: func(o object) {
			setMessages(o, user, object{"role": "assistant", "tool_calls": []any{openAICall("a b", "shell", "{}")}}, object{"role": "tool", "tool_call_id": "a b", "content": "x"})
		}, status: 400, code: "invalid_value", param: "messages[1].tool_calls[0].id"},
		{name: "arguments that do not parse", change: func(o object) {
			setMessages(o, user, object{"role": "assistant", "tool_calls": []any{openAICall("call_1", "shell", `{"cmd":`)}}, answer)
		}, status: 400, param: "messages[1].tool_calls[0].function.arguments"},
		{name: "arguments that are an array", change: func(o object) {
			setMessages(o, user, object{"role": "assistant", "tool_calls": []any{openAICall("call_1", "shell", `[]`)}}, answer)
		}, status: 400, param: "messages[1].tool_calls[0].function.arguments"},
		{name: "arguments that are null", change: func(o object) {
			setMessages(o, user, object{"role": "assistant", "tool_calls": []any{openAICall("call_1", "shell", `null`)}}, answer)
		}, status: 400, param: "messages[1].tool_calls[0].function.arguments"},
		{name: "arguments that are an object and no string", change: func(o object) {
			call := openAICall("call_1", "shell", "")
			call["function"] = object{"name": "shell", "arguments": object{}}
			setMessages(o, user, object{"role": "assistant", "tool_calls": []any{call}}, answer)
		}, status: 400, param: "messages[1].tool_calls[0].function.arguments"},
		{name: "a called tool's name outside the grammar", change: func(o object) {
			setMessages(o, user, object{"role": "assistant", "tool_calls": []any{openAICall("call_1", "run shell", "{}")}}, answer)
		}, status: 400, code: "invalid_value", param: "messages[1].tool_calls[0].function.name"},
		{name: "calls in the history and no tools", change: func(o object) { delete(o, "tools") }, status: 400, param: "tools"},
		{name: "an undeclared call where the leg refuses them", leg: "declared", change: func(o object) {
			setMessages(o, user, object{"role": "assistant", "tool_calls": []any{openAICall("call_1", "invented", "{}")}}, answer)
		}, status: 400, param: "messages[1].tool_calls[0].function.name"},
		{name: "an empty list of tools", change: func(o object) { o["tools"] = []any{}; setMessages(o, user) }, status: 400, code: "empty_array", param: "tools"},
		{name: "a tool's name outside the grammar", change: func(o object) { o["tools"] = []any{openAITool("run.shell"), openAITool("shell")} }, status: 400, code: "invalid_value", param: "tools[0].function.name"},
		{name: "a tool declared twice", change: func(o object) { o["tools"] = []any{openAITool("shell"), openAITool("shell")} }, status: 400, param: "tools[1].function.name"},
		{name: "parameters that are no object schema", change: func(o object) {
			tool := openAITool("shell")
			tool["function"] = object{"name": "shell", "parameters": object{"type": "string"}}
			o["tools"] = []any{tool}
		}, status: 400, code: "invalid_function_parameters", param: "tools[0].function.parameters"},
		{name: "a tool of the other dialect", change: func(o object) {
			o["tools"] = []any{object{"name": "shell", "input_schema": object{"type": "object"}}}
		}, status: 400, param: "tools[0]"},
		{name: "a tool choice without tools", change: func(o object) { delete(o, "tools"); setMessages(o, user); o["tool_choice"] = "auto" }, status: 400, param: "tool_choice"},
		{name: "a tool choice that is not declared", change: func(o object) { o["tool_choice"] = object{"type": "function", "function": object{"name": "grep"}} }, status: 400, param: "tool_choice"},
		{name: "Mistral and an id that is not nine alphanumerics", leg: "mistral", change: func(object) {}, status: 400, param: "messages[2].tool_calls[0].id"},
		{name: "Mistral and a user message after a tool result", leg: "mistral", change: func(o object) {
			setMessages(o, user, object{"role": "assistant", "tool_calls": []any{openAICall("Ab3dE9xQ1", "shell", "{}")}},
				object{"role": "tool", "tool_call_id": "Ab3dE9xQ1", "content": "ok"}, user)
		}, status: 400, param: "messages[3]"},
		{name: "Mistral and an assistant message at the end", leg: "mistral", change: func(o object) { setMessages(o, user, object{"role": "assistant", "content": "x"}) }, status: 400, param: "messages"},
		{name: "DeepSeek and a tool turn without its reasoning", leg: "deepseek", change: func(object) {}, status: 400, param: "messages[2].reasoning_content"},
		{name: "a request over the context window", leg: "small", change: func(object) {}, status: 400, code: "context_length_exceeded", param: "messages"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, `
legs:
  strict: {model: m1, steps: [{answer: accepted}]}
  declared: {undeclaredCalls: Reject, steps: [{answer: accepted}]}
  mistral: {vendor: Mistral, steps: [{answer: accepted}]}
  deepseek: {vendor: DeepSeek, steps: [{answer: accepted}]}
  small: {contextWindow: 1000, steps: [{answer: accepted}]}
`)
			leg := c.leg
			if leg == "" {
				leg = "strict"
			}
			o := openAIConversation()
			c.change(o)
			got := r.post(leg, encode(t, o))
			var body struct {
				Error struct{ Message, Type, Param, Code string }
			}
			if err := json.Unmarshal([]byte(got.body), &body); err != nil {
				t.Fatalf("the body of status %d is not the API's error: %v\n%s", got.status, err, got.body)
			}
			if got.status != c.status || body.Error.Code != c.code || body.Error.Param != c.param {
				t.Errorf("got status %d, code %q, param %q; want %d, %q, %q\n%s", got.status, body.Error.Code, body.Error.Param, c.status, c.code, c.param, got.body)
			}
			if body.Error.Type != "invalid_request_error" || body.Error.Message == "" {
				t.Errorf("the error has type %q and message %q", body.Error.Type, body.Error.Message)
			}
			if q := r.last(); q.Step != 0 || q.Outcome != "Rejected" || len(q.Problems) == 0 || q.Status != c.status {
				t.Errorf("the request is remembered as %+v; want a rejection that used no step", q)
			}
		})
	}
}

func TestOpenAIChatAcceptsValidConversations(t *testing.T) {
	user := object{"role": "user", "content": "hi"}
	cases := []struct {
		name   string
		leg    string
		change func(o object)
	}{
		{name: "a call and its result", change: func(object) {}},
		{name: "two calls answered in another order", change: func(o object) {
			setMessages(o, user, object{"role": "assistant", "content": "both", "tool_calls": []any{openAICall("a", "shell", "{}"), openAICall("b", "shell", "{}")}},
				object{"role": "tool", "tool_call_id": "b", "content": "2"}, object{"role": "tool", "tool_call_id": "a", "content": "1"})
		}},
		{name: "an empty tool result", change: func(o object) {
			setMessages(o, user, object{"role": "assistant", "tool_calls": []any{openAICall("a", "shell", "{}")}}, object{"role": "tool", "tool_call_id": "a", "content": ""})
		}},
		{name: "a call of a tool that the model invented", change: func(o object) {
			setMessages(o, user, object{"role": "assistant", "tool_calls": []any{openAICall("a", "invented", "{}")}}, object{"role": "tool", "tool_call_id": "a", "content": "no such tool"})
		}},
		{name: "an image", change: func(o object) {
			setMessages(o, object{"role": "user", "content": []any{object{"type": "text", "text": "see"}, object{"type": "image_url", "image_url": object{"url": "data:image/png;base64,QQ=="}}}})
		}},
		{name: "an escaped surrogate pair and an escaped backslash", change: func(o object) {
			setMessages(o, object{"role": "user", "content": json.RawMessage(`"\ud83d\ude00 \\ud800"`)})
		}},
		{name: "Mistral with its own ids", leg: "mistral", change: func(o object) {
			setMessages(o, user, object{"role": "assistant", "tool_calls": []any{openAICall("Ab3dE9xQ1", "shell", "{}")}}, object{"role": "tool", "tool_call_id": "Ab3dE9xQ1", "content": "ok", "name": "shell"})
		}},
		{name: "DeepSeek with its reasoning, which may be empty", leg: "deepseek", change: func(o object) {
			setMessages(o, user, object{"role": "assistant", "reasoning_content": "", "tool_calls": []any{openAICall("a", "shell", "{}")}}, object{"role": "tool", "tool_call_id": "a", "content": "ok"})
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, `
legs:
  strict: {model: m1, steps: [{answer: accepted}]}
  mistral: {vendor: Mistral, steps: [{answer: accepted}]}
  deepseek: {vendor: DeepSeek, steps: [{answer: accepted}]}
`)
			leg := c.leg
			if leg == "" {
				leg = "strict"
			}
			o := openAIConversation()
			c.change(o)
			if got := r.post(leg, encode(t, o)); got.status != 200 {
				t.Errorf("refused with %d: %s", got.status, got.body)
			}
		})
	}
}

func TestBodiesThatAreNoJSONObjectAreRefused(t *testing.T) {
	for name, body := range map[string]string{
		"nothing":              "",
		"half a document":      openAIHello[:20],
		"two documents":        openAIHello + "{}",
		"an array":             "[" + openAIHello + "]",
		"null":                 "null",
		"bytes outside UTF-8":  strings.Replace(openAIHello, "hi", "h\xff", 1),
		"a lone surrogate":     strings.Replace(openAIHello, "hi", `\ud83d`, 1),
		"a lone low surrogate": strings.Replace(openAIHello, "hi", `\ude00\ud83d`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, `{legs: {a: {steps: [{answer: x}]}, claude: {dialect: AnthropicMessages, steps: [{answer: x}]}}}`)
			for _, leg := range []string{"a", "claude"} {
				if got := r.post(leg, body); got.status != 400 {
					t.Errorf("leg %s answers %d: %s", leg, got.status, got.body)
				}
			}
		})
	}
}
