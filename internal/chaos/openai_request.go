package chaos

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// openAIChat is the OpenAI Chat Completions API. Its rules are those of the API reference, "Create chat completion",
// and of the errors that the API was reported to answer with.
type openAIChat struct{}

func (openAIChat) path() string            { return "/v1/chat/completions" }
func (openAIChat) requestIDHeader() string { return "x-request-id" }

func (openAIChat) idShapes() idShapes {
	return idShapes{request: idShape{"req_", 32}, response: idShape{"chatcmpl-", 29}, call: idShape{"call_", 24}}
}

func (openAIChat) keyOf(h http.Header) string { return bearerToken(h) }

// bearerToken is the bearer token of a request, empty if there is none.
func bearerToken(h http.Header) string {
	scheme, key, _ := strings.Cut(h.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(key)
}

func (openAIChat) checkHeaders(http.Header) *rejection { return nil }

func (openAIChat) tooLong(tokens, reserved, window int64) rejection {
	return rejection{status: 400, kind: kindInvalid, code: "context_length_exceeded", param: "messages",
		message: fmt.Sprintf("This model's maximum context length is %d tokens. The request needs %d: %d in the messages and tools, %d for the completion.",
			window, tokens+reserved, tokens, reserved)}
}

var openAIFields = []string{
	"audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs", "max_completion_tokens", "max_tokens",
	"messages", "metadata", "modalities", "model", "n", "parallel_tool_calls", "prediction", "presence_penalty",
	"prompt_cache_key", "prompt_cache_retention", "reasoning_effort", "response_format", "safety_identifier", "seed",
	"service_tier", "stop", "store", "stream", "stream_options", "temperature", "tool_choice", "tools", "top_logprobs", "top_p",
	"user", "verbosity", "web_search_options",
}

// openAICheck is the check of one request.
type openAICheck struct {
	checker
	in    checkContext
	conv  conversation
	tools map[string]bool
	ids   map[string]bool
	// open are the ids of the calls that the next messages must answer, in order.
	open []string
}

func (openAIChat) check(o map[string]any, in checkContext) (conversation, []rejection) {
	c := &openAICheck{in: in, conv: conversation{results: map[string]string{}}, tools: map[string]bool{}, ids: map[string]bool{}}
	c.known("", o, openAIFields...)
	c.model(o)
	c.parameters(o)
	c.toolList(o)
	c.messages(o)
	return c.conv, c.found
}

func (c *openAICheck) model(o map[string]any) {
	name, ok := o["model"].(string)
	switch {
	case !ok || name == "":
		c.reject("model", "You must provide a model parameter.")
	case c.in.leg.Model != "" && name != c.in.leg.Model:
		c.found = append(c.found, rejection{status: 404, kind: kindInvalid, code: "model_not_found",
			message: fmt.Sprintf("The model '%s' does not exist or you do not have access to it.", name)})
	}
	c.conv.model = name
}

func (c *openAICheck) parameters(o map[string]any) {
	c.conv.stream, _ = c.boolean("", o, "stream")
	if options, set := o["stream_options"]; set && options != nil {
		switch fields, ok := options.(map[string]any); {
		case !ok:
			c.rejectCode("stream_options", "invalid_type", "'stream_options' must be an object.")
		case !c.conv.stream:
			c.reject("stream_options", "'stream_options' is only allowed when 'stream' is enabled.")
		default:
			c.known("stream_options", fields, "include_usage", "include_obfuscation")
			c.conv.includeUsage, _ = c.boolean("stream_options", fields, "include_usage")
		}
	}
	limit, old := c.integer("", o, "max_tokens", 1)
	newLimit, current := c.integer("", o, "max_completion_tokens", 1)
	c.conv.reserved = max(limit, newLimit)
	if old && current {
		c.reject("max_tokens", "Set 'max_tokens' or 'max_completion_tokens', not both.")
	}
	if n, set := c.integer("", o, "n", 1); set && n > 1 {
		c.reject("n", "This server makes one choice only; 'n' is %d.", n)
	}
	c.number("", o, "temperature", 0, 2)
	c.number("", o, "top_p", 0, 1)
	c.number("", o, "presence_penalty", -2, 2)
	c.number("", o, "frequency_penalty", -2, 2)
}

func (c *openAICheck) toolList(o map[string]any) {
	list, set := o["tools"]
	if !set || list == nil {
		for _, name := range []string{"tool_choice", "parallel_tool_calls"} {
			if v, set := o[name]; set && v != nil {
				c.reject(name, "'%s' is only allowed when 'tools' are specified.", name)
			}
		}
		return
	}
	tools, ok := list.([]any)
	switch {
	case !ok:
		c.rejectCode("tools", "invalid_type", "'tools' must be an array.")
		return
	case len(tools) == 0:
		c.rejectCode("tools", "empty_array", "'tools' is too short: it needs at least one item.")
	case len(tools) > 128:
		c.rejectCode("tools", "array_above_max_length", "'tools' is too long: %d items, at most 128.", len(tools))
	}
	for i, entry := range tools {
		c.tool(item("tools", i), entry)
	}
	c.conv.tools = slices.Sorted(maps.Keys(c.tools))
	c.boolean("", o, "parallel_tool_calls")
	c.toolChoice(o["tool_choice"])
}

func (c *openAICheck) tool(path string, entry any) {
	tool, _ := entry.(map[string]any)
	function, ok := tool["function"].(map[string]any)
	if !ok || tool["type"] != "function" {
		c.reject(path, "'%s' must have type 'function' and a function.", path)
		return
	}
	c.known(path, tool, "type", "function")
	path = at(path, "function")
	c.known(path, function, "name", "description", "parameters", "strict")
	name, _ := function["name"].(string)
	switch {
	case !toolNameGrammar.MatchString(name):
		c.rejectCode(at(path, "name"), "invalid_value", "'%s' must match ^[a-zA-Z0-9_-]{1,64}$.", at(path, "name"))
	case c.tools[name]:
		c.reject(at(path, "name"), "Tool names must be unique; '%s' occurs twice.", name)
	default:
		c.tools[name] = true
	}
	if description, set := function["description"]; set {
		if _, ok := description.(string); !ok {
			c.rejectCode(at(path, "description"), "invalid_type", "'%s' must be a string.", at(path, "description"))
		}
	}
	if parameters, set := function["parameters"]; set {
		c.schema(at(path, "parameters"), parameters)
	}
}

func (c *openAICheck) toolChoice(choice any) {
	switch v := choice.(type) {
	case nil:
	case string:
		if !slices.Contains([]string{"none", "auto", "required"}, v) {
			c.rejectCode("tool_choice", "invalid_value", "'tool_choice' must be 'none', 'auto', 'required' or name a function.")
		}
	case map[string]any:
		function, _ := v["function"].(map[string]any)
		if name, _ := function["name"].(string); v["type"] != "function" || !c.tools[name] {
			c.reject("tool_choice", "'tool_choice' must name one of the tools.")
		}
	default:
		c.rejectCode("tool_choice", "invalid_type", "'tool_choice' must be a string or an object.")
	}
}

func (c *openAICheck) messages(o map[string]any) {
	list, ok := o["messages"].([]any)
	if !ok || len(list) == 0 {
		c.rejectCode("messages", "empty_array", "'messages' must be an array of at least one message.")
		return
	}
	c.conv.messages = len(list)
	role := ""
	for i, entry := range list {
		path := item("messages", i)
		m, ok := entry.(map[string]any)
		if !ok {
			c.rejectCode(path, "invalid_type", "'%s' must be an object.", path)
			continue
		}
		before := role
		role, _ = m["role"].(string)
		if role != "tool" {
			c.unanswered(path)
		}
		c.message(path, role, before, m)
	}
	c.unanswered("messages")
	if c.in.leg.Vendor == VendorMistral && role == "assistant" {
		c.reject("messages", "Expected last role User or Tool for serving but got assistant.")
	}
}

// unanswered rejects calls that the messages directly after them did not answer.
func (c *openAICheck) unanswered(path string) {
	if len(c.open) > 0 {
		c.reject(path, "An assistant message with 'tool_calls' must be followed directly by one tool message for each 'tool_call_id'. Without an answer: %s.",
			strings.Join(c.open, ", "))
		c.open = nil
	}
}

func (c *openAICheck) message(path, role, before string, m map[string]any) {
	switch role {
	case "system", "developer":
		c.known(path, m, "role", "content", "name")
		text := c.content(at(path, "content"), m["content"], "text")
		c.conv.system += text
		c.said(text)
	case "user":
		c.known(path, m, "role", "content", "name")
		if c.in.leg.Vendor == VendorMistral && before == "tool" {
			c.reject(path, "Unexpected role 'user' after role 'tool'.")
		}
		c.said(c.content(at(path, "content"), m["content"], "text", "image_url", "input_audio", "file"))
	case "assistant":
		c.assistant(path, m)
	case "tool":
		c.toolMessage(path, before, m)
	default:
		c.rejectCode(at(path, "role"), "invalid_value", "'%s' must be one of system, developer, user, assistant and tool.", at(path, "role"))
	}
}

// said notes a text as the newest of the conversation.
func (c *openAICheck) said(text string) {
	c.conv.last = text
	c.conv.all = append(c.conv.all, text)
}

// content checks a message's content, a string or an array of parts, and returns its text.
func (c *openAICheck) content(path string, content any, parts ...string) string {
	switch v := content.(type) {
	case string:
		if v == "" {
			c.reject(path, "'%s' must not be empty.", path)
		}
		return v
	case []any:
		if len(v) == 0 {
			c.rejectCode(path, "empty_array", "'%s' must not be empty.", path)
		}
		var text strings.Builder
		for i, entry := range v {
			text.WriteString(c.part(item(path, i), entry, parts))
		}
		return text.String()
	}
	c.rejectCode(path, "invalid_type", "'%s' must be a string or an array of parts.", path)
	return ""
}

func (c *openAICheck) part(path string, entry any, allowed []string) string {
	part, _ := entry.(map[string]any)
	kind, _ := part["type"].(string)
	if !slices.Contains(allowed, kind) {
		c.rejectCode(at(path, "type"), "invalid_value", "'%s' must be one of: %s.", at(path, "type"), strings.Join(allowed, ", "))
		return ""
	}
	switch kind {
	case "text", "refusal":
		text, _ := part[kind].(string)
		if text == "" {
			c.reject(at(path, kind), "'%s' must not be empty.", at(path, kind))
		}
		c.known(path, part, "type", kind)
		return text
	case "image_url":
		image, _ := part["image_url"].(map[string]any)
		url, _ := image["url"].(string)
		if !strings.HasPrefix(url, "https://") && !strings.HasPrefix(url, "http://") && !imageDataURL(url) {
			c.rejectCode(at(path, "image_url"), "invalid_image_url", "'%s' must be a URL or a base64 data URL of a png, jpeg, gif or webp image.", at(path, "image_url.url"))
		}
		c.known(path, part, "type", "image_url")
		c.known(at(path, "image_url"), image, "url", "detail")
	}
	return ""
}

func (c *openAICheck) assistant(path string, m map[string]any) {
	c.conv.assistantTurns++
	fields := []string{"role", "content", "name", "refusal", "tool_calls", "audio", "function_call"}
	if c.in.leg.Vendor == VendorCompatible || c.in.leg.Vendor == VendorDeepSeek {
		fields = append(fields, "reasoning_content")
	}
	c.known(path, m, fields...)
	text := ""
	if content, set := m["content"]; set && content != nil {
		text = c.content(at(path, "content"), content, "text", "refusal")
	}
	refusal, _ := m["refusal"].(string)
	calls, hasCalls := m["tool_calls"]
	if list, ok := calls.([]any); hasCalls && (!ok || len(list) == 0) {
		c.rejectCode(at(path, "tool_calls"), "empty_array", "'%s' must be an array of at least one call.", at(path, "tool_calls"))
	}
	if text == "" && refusal == "" && !hasCalls {
		c.reject(path, "An assistant message needs 'content' or 'tool_calls'.")
	}
	c.said(text)
	list, _ := calls.([]any)
	for i, call := range list {
		c.call(item(at(path, "tool_calls"), i), call)
	}
	if c.in.leg.Vendor == VendorDeepSeek && len(list) > 0 {
		if _, ok := m["reasoning_content"].(string); !ok {
			c.reject(at(path, "reasoning_content"), "The reasoning_content of a turn with tool calls must be passed back in thinking mode.")
		}
	}
}

func (c *openAICheck) call(path string, entry any) {
	call, _ := entry.(map[string]any)
	function, ok := call["function"].(map[string]any)
	if !ok || call["type"] != "function" {
		c.reject(path, "'%s' must have type 'function' and a function.", path)
		return
	}
	c.known(path, call, "id", "type", "function")
	c.known(at(path, "function"), function, "name", "arguments")
	id, _ := call["id"].(string)
	c.callID(at(path, "id"), id)
	c.open = append(c.open, id)
	c.conv.calls = append(c.conv.calls, id)
	name, _ := function["name"].(string)
	namePath := at(path, "function.name")
	switch {
	case !toolNameGrammar.MatchString(name):
		c.rejectCode(namePath, "invalid_value", "'%s' must match ^[a-zA-Z0-9_-]{1,64}$.", namePath)
	case len(c.tools) == 0:
		c.reject("tools", "'tools' must be declared when the conversation has tool calls.")
	case !c.tools[name] && c.in.leg.UndeclaredCalls == UndeclaredReject:
		c.reject(namePath, "'%s' is a tool that 'tools' does not declare.", namePath)
	}
	arguments, isString := function["arguments"].(string)
	var object map[string]any
	if !isString || json.Unmarshal([]byte(arguments), &object) != nil || object == nil {
		c.reject(at(path, "function.arguments"), "'%s' must be a string that parses to a JSON object.", at(path, "function.arguments"))
	}
	c.conv.all = append(c.conv.all, arguments)
}

func (c *openAICheck) callID(path, id string) {
	switch {
	case c.in.leg.Vendor == VendorMistral && !mistralGrammar.MatchString(id):
		c.reject(path, "Tool call id must be a-z, A-Z, 0-9, with a length of 9; '%s' is not.", path)
	case len(id) > 40:
		c.rejectCode(path, "string_above_max_length", "'%s' is too long: %d characters, at most 40.", path, len(id))
	case !openAIIDGrammar.MatchString(id):
		c.rejectCode(path, "invalid_value", "'%s' must be 1 to 40 characters of letters, digits, _ and -.", path)
	case c.ids[id]:
		c.rejectCode(path, "invalid_value", "'%s' is the id of an earlier call; ids must be unique.", path)
	}
	c.ids[id] = true
}

func (c *openAICheck) toolMessage(path, before string, m map[string]any) {
	fields := []string{"role", "content", "tool_call_id"}
	if c.in.leg.Vendor != VendorOpenAI {
		fields = append(fields, "name")
	}
	c.known(path, m, fields...)
	result := ""
	if m["content"] != "" { // an empty result is a result
		result = c.content(at(path, "content"), m["content"], "text")
	}
	last := result
	if before == "tool" {
		last = c.conv.last + "\n" + result
	}
	c.conv.last = last
	c.conv.all = append(c.conv.all, result)
	id, _ := m["tool_call_id"].(string)
	i := slices.Index(c.open, id)
	if i < 0 {
		c.reject(at(path, "tool_call_id"), "'%s' answers no open call: a tool message must directly follow the assistant message with its call, and each call has one answer.", path)
		return
	}
	c.open = slices.Delete(slices.Clone(c.open), i, i+1)
	c.conv.results[id] = result
}

func imageDataURL(url string) bool {
	for _, kind := range []string{"png", "jpeg", "gif", "webp"} {
		if strings.HasPrefix(url, "data:image/"+kind+";base64,") {
			return true
		}
	}
	return false
}
