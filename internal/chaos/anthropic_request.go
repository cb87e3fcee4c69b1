package chaos

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// anthropicMessages is the Anthropic Messages API. Its rules are those of the API reference, "Create a Message", of the
// guides on tool use, extended thinking and vision, and of the errors that the API was reported to answer with. One is
// stricter: the API merges neighbouring messages of one role, this server refuses them, as other hosts of the models do.
type anthropicMessages struct{}

func (anthropicMessages) path() string            { return "/v1/messages" }
func (anthropicMessages) requestIDHeader() string { return "request-id" }

func (anthropicMessages) idShapes() idShapes {
	return idShapes{request: idShape{"req_011C", 20}, response: idShape{"msg_01", 22}, call: idShape{"toolu_01", 22}}
}

// keyOf takes the key from x-api-key, the API's own header, or from a bearer token, as which its newer SDKs send it.
func (anthropicMessages) keyOf(h http.Header) string {
	return orDefault(h.Get("X-Api-Key"), bearerToken(h))
}

func (anthropicMessages) checkHeaders(h http.Header) *rejection {
	switch version := h.Get("Anthropic-Version"); version {
	case "2023-01-01", "2023-06-01", "2026-10-21":
		return nil
	case "":
		return &rejection{status: 400, kind: kindInvalid, message: "anthropic-version: header is required"}
	default:
		return &rejection{status: 400, kind: kindInvalid, message: fmt.Sprintf("anthropic-version: %q is not a valid version", version)}
	}
}

func (anthropicMessages) tooLong(tokens, reserved, window int64) rejection {
	r := rejection{status: 400, kind: kindInvalid}
	if tokens > window {
		r.message = fmt.Sprintf("prompt is too long: %d tokens > %d maximum", tokens, window)
	} else {
		r.message = fmt.Sprintf("input length and `max_tokens` exceed context limit: %d + %d > %d, decrease input length or `max_tokens` and try again", tokens, reserved, window)
	}
	return r
}

var anthropicFields = []string{
	"cache_control", "container", "context_management", "diagnostics", "inference_geo", "max_tokens", "mcp_servers", "messages",
	"metadata", "model", "output_config", "service_tier", "speed", "stop_sequences", "stream", "system", "temperature", "thinking",
	"tool_choice", "tools", "top_k", "top_p",
}

// anthropicCheck is the check of one request.
type anthropicCheck struct {
	checker
	in    checkContext
	conv  conversation
	tools map[string]bool
	ids   map[string]bool
	// open are the calls of the assistant message before; the next message must answer them.
	open []string
	// forcedThinking is set when the request enables thinking with a budget.
	forcedThinking bool
	// thinkingOff is set when the request disables thinking in words.
	thinkingOff   bool
	cacheControls int
	images        []imageFact
}

func (anthropicMessages) check(o map[string]any, in checkContext) (conversation, []rejection) {
	c := &anthropicCheck{in: in, conv: conversation{results: map[string]string{}, includeUsage: true}, tools: map[string]bool{}, ids: map[string]bool{}}
	c.known("", o, anthropicFields...)
	c.model(o)
	c.parameters(o)
	c.toolList(o)
	c.system(o["system"])
	c.messages(o)
	c.imageLimits()
	if c.cacheControls > 4 {
		c.bad("cache_control", "at most 4 blocks may have cache_control, found %d", c.cacheControls)
	}
	// This API names the place in the message, and has no codes for these errors.
	for i := range c.found {
		if r := &c.found[i]; r.code != "" {
			r.message, r.code = r.param+": "+r.message, ""
		}
	}
	return c.conv, c.found
}

// bad rejects the request for what is at a path.
func (c *anthropicCheck) bad(path, format string, args ...any) {
	c.reject(path, "%s: %s", path, fmt.Sprintf(format, args...))
}

func (c *anthropicCheck) model(o map[string]any) {
	name, ok := o["model"].(string)
	switch {
	case !ok || name == "":
		c.bad("model", "field required")
	case c.in.leg.Model != "" && name != c.in.leg.Model:
		c.found = append(c.found, rejection{status: 404, kind: kindNotFound, message: "model: " + name})
	}
	c.conv.model = name
}

func (c *anthropicCheck) parameters(o map[string]any) {
	c.conv.stream, _ = c.boolean("", o, "stream")
	limit, set := c.integer("", o, "max_tokens", 1)
	if _, present := o["max_tokens"]; !set && (!present || o["max_tokens"] == nil) {
		c.bad("max_tokens", "field required")
	}
	c.conv.reserved = limit
	c.number("", o, "temperature", 0, 1)
	c.number("", o, "top_p", 0, 1)
	c.integer("", o, "top_k", 0)
	if o["thinking"] != nil {
		c.thinking(o, limit)
	}
}

func (c *anthropicCheck) thinking(o map[string]any, limit int64) {
	config, _ := o["thinking"].(map[string]any)
	switch config["type"] {
	case "disabled":
		c.thinkingOff = true
		return
	case "adaptive":
	case "enabled":
		c.forcedThinking = true
		budget, set := c.integer("thinking", config, "budget_tokens", 1024)
		switch {
		case !set && config["budget_tokens"] == nil:
			c.bad("thinking.budget_tokens", "field required")
		case set && limit > 0 && budget >= limit:
			c.bad("max_tokens", "must be greater than thinking.budget_tokens")
		}
	default:
		c.bad("thinking.type", "must be enabled, adaptive or disabled")
		return
	}
	if t := o["temperature"]; t != nil && fmt.Sprint(t) != "1" && fmt.Sprint(t) != "1.0" {
		c.bad("temperature", "may only be 1 when thinking is enabled")
	}
	if choice, _ := o["tool_choice"].(map[string]any); choice["type"] == "any" || choice["type"] == "tool" {
		c.bad("tool_choice", "thinking may not be enabled when tool_choice forces tool use")
	}
}

func (c *anthropicCheck) toolList(o map[string]any) {
	list, set := o["tools"]
	if set && list != nil {
		tools, ok := list.([]any)
		if !ok {
			c.bad("tools", "must be a list")
		}
		for i, entry := range tools {
			c.tool(at("tools", strconv.Itoa(i)), entry)
		}
		c.conv.tools = slices.Sorted(maps.Keys(c.tools))
	}
	choice := o["tool_choice"]
	if choice == nil {
		return
	}
	fields, _ := choice.(map[string]any)
	c.known("tool_choice", fields, "type", "name", "disable_parallel_tool_use")
	name, _ := fields["name"].(string)
	switch fields["type"] {
	case "auto", "any", "none":
	case "tool":
		if !c.tools[name] {
			c.bad("tool_choice.name", "tool %q not found in provided tools", name)
		}
	default:
		c.bad("tool_choice.type", "must be auto, any, tool or none")
	}
	if len(c.tools) == 0 {
		c.bad("tool_choice", "may only be specified while providing tools")
	}
}

func (c *anthropicCheck) tool(path string, entry any) {
	tool, _ := entry.(map[string]any)
	if kind, set := tool["type"]; set && kind != "custom" {
		c.bad(at(path, "type"), "this server has no server tools, only custom ones")
		return
	}
	c.known(path, tool, "type", "name", "description", "input_schema", "cache_control", "strict", "eager_input_streaming", "defer_loading", "allowed_callers", "input_examples")
	c.cacheControl(path, tool)
	name, _ := tool["name"].(string)
	switch {
	case !toolNameGrammar.MatchString(name):
		c.bad(at(path, "name"), "must match ^[a-zA-Z0-9_-]{1,64}$")
	case c.tools[name]:
		c.bad("tools", "tool names must be unique")
	default:
		c.tools[name] = true
	}
	if description, set := tool["description"]; set {
		if _, ok := description.(string); !ok {
			c.bad(at(path, "description"), "must be a string")
		}
	}
	if _, set := tool["input_schema"]; !set {
		c.bad(at(path, "input_schema"), "field required")
		return
	}
	c.schema(at(path, "input_schema"), tool["input_schema"])
}

func (c *anthropicCheck) cacheControl(path string, block map[string]any) {
	v, set := block["cache_control"]
	if !set || v == nil {
		return
	}
	c.cacheControls++
	fields, _ := v.(map[string]any)
	if fields["type"] != "ephemeral" {
		c.bad(at(path, "cache_control.type"), "must be ephemeral")
	}
	c.known(at(path, "cache_control"), fields, "type", "ttl")
}

func (c *anthropicCheck) system(system any) {
	switch v := system.(type) {
	case nil:
	case string:
		c.conv.system = v
	case []any:
		for i, entry := range v {
			path := at("system", strconv.Itoa(i))
			block, _ := entry.(map[string]any)
			if block["type"] != "text" {
				c.bad(path, "must be a text block")
				continue
			}
			c.conv.system += c.text(path, block)
		}
	default:
		c.bad("system", "must be a string or a list of text blocks")
	}
	if c.conv.system != "" {
		c.conv.all = append(c.conv.all, c.conv.system)
	}
}

// text checks a text block and returns its text.
func (c *anthropicCheck) text(path string, block map[string]any) string {
	c.known(path, block, "type", "text", "cache_control", "citations")
	c.cacheControl(path, block)
	text, ok := block["text"].(string)
	switch {
	case !ok:
		c.bad(at(path, "text"), "field required")
	case text == "":
		c.bad(path, "text content blocks must be non-empty")
	case strings.TrimSpace(text) == "":
		c.bad(path, "text content blocks must contain non-whitespace text")
	}
	return text
}

func (c *anthropicCheck) messages(o map[string]any) {
	list, ok := o["messages"].([]any)
	if !ok || len(list) == 0 {
		c.bad("messages", "at least one message is required")
		return
	}
	c.conv.messages = len(list)
	before := ""
	latest := -1
	for i, entry := range list {
		m, _ := entry.(map[string]any)
		if m["role"] == "assistant" {
			latest = i
		}
	}
	for i, entry := range list {
		path := at("messages", strconv.Itoa(i))
		m, ok := entry.(map[string]any)
		if !ok {
			c.bad(path, "must be an object")
			continue
		}
		c.known(path, m, "role", "content")
		role, _ := m["role"].(string)
		switch {
		case role != "user" && role != "assistant":
			c.bad(at(path, "role"), "must be user or assistant; the system prompt is a field of the request")
			continue
		case i == 0 && role != "user":
			c.bad(path, "first message must use the user role")
		case role == before:
			c.bad(path, "roles must alternate between user and assistant, found two %s messages in a row", role)
		}
		before = role
		blocks := c.blocks(path, m["content"])
		if role == "user" {
			c.user(path, blocks)
		} else {
			c.assistant(path, blocks, i == latest, i == latest && openCycle(list[i+1:]))
		}
	}
	c.unanswered("messages")
	if before == "assistant" {
		c.bad("messages", "this model does not support assistant message prefill; the conversation must end with a user message")
	}
}

// openCycle tells whether the messages after the latest assistant message bring tool results.
func openCycle(after []any) bool {
	if len(after) == 0 {
		return false
	}
	m, _ := after[0].(map[string]any)
	blocks, _ := m["content"].([]any)
	return slices.ContainsFunc(blocks, func(b any) bool {
		block, _ := b.(map[string]any)
		return block["type"] == "tool_result"
	})
}

// blocks returns the content as blocks; a string is one text block.
func (c *anthropicCheck) blocks(path string, content any) []map[string]any {
	path = at(path, "content")
	switch v := content.(type) {
	case string:
		return []map[string]any{{"type": "text", "text": v}}
	case []any:
		if len(v) == 0 {
			c.bad(path, "all messages must have non-empty content")
		}
		var out []map[string]any
		for i, entry := range v {
			block, ok := entry.(map[string]any)
			if !ok {
				c.bad(at(path, strconv.Itoa(i)), "must be an object")
			}
			out = append(out, block)
		}
		return out
	}
	c.bad(path, "must be a string or a list of blocks")
	return nil
}

func (c *anthropicCheck) unanswered(path string) {
	if len(c.open) > 0 {
		c.bad(path, "`tool_use` ids were found without `tool_result` blocks immediately after: %s", strings.Join(c.open, ", "))
		c.open = nil
	}
}

func (c *anthropicCheck) user(path string, blocks []map[string]any) {
	var texts []string
	others := false
	for i, block := range blocks {
		at := at(path, "content."+strconv.Itoa(i))
		switch block["type"] {
		case "tool_result":
			if others {
				c.bad(at, "`tool_result` blocks must come before all other content of a message")
			}
			texts = append(texts, c.toolResult(at, block))
		case "text":
			others = true
			texts = append(texts, c.text(at, block))
		case "image":
			others = true
			c.image(at, block)
		case "document", "search_result":
			others = true
		default:
			c.bad(at, "input tag %q is not allowed in a user message", fmt.Sprint(block["type"]))
		}
	}
	c.unanswered(path)
	c.conv.last = strings.Join(texts, "\n")
	c.conv.all = append(c.conv.all, texts...)
}

func (c *anthropicCheck) toolResult(path string, block map[string]any) string {
	c.known(path, block, "type", "tool_use_id", "content", "is_error", "cache_control")
	c.cacheControl(path, block)
	failed, _ := c.boolean(path, block, "is_error")
	text := ""
	switch v := block["content"].(type) {
	case nil:
	case string:
		text = v
	case []any:
		for i, entry := range v {
			inner, _ := entry.(map[string]any)
			where := at(path, "content."+strconv.Itoa(i))
			switch inner["type"] {
			case "text":
				text += c.text(where, inner)
			case "image":
				c.image(where, inner)
			case "document", "search_result":
			default:
				c.bad(where, "input tag %q is not allowed in a tool result", fmt.Sprint(inner["type"]))
			}
		}
	default:
		c.bad(at(path, "content"), "must be a string or a list of blocks")
	}
	if content, _ := block["content"].([]any); failed && text == "" && len(content) == 0 {
		c.bad(path, "content cannot be empty if `is_error` is true")
	}
	id, _ := block["tool_use_id"].(string)
	i := slices.Index(c.open, id)
	if i < 0 {
		c.bad(path, "unexpected `tool_use_id`: each `tool_result` block must answer one `tool_use` block of the previous message, once")
		return text
	}
	c.open = slices.Delete(slices.Clone(c.open), i, i+1)
	c.conv.results[id] = text
	return text
}
