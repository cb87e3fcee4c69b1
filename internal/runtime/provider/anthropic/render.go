package anthropic

import (
	"encoding/json"
	"strings"

	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/message"
	"belay.dev/belay/internal/runtime/provider"
)

type wireMessage struct {
	Role    string      `json:"role"`
	Content []wireBlock `json:"content"`
}

type wireBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text,omitempty"`
	Thinking  *string         `json:"thinking,omitempty"`
	Signature string          `json:"signature,omitempty"`
	Data      string          `json:"data,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	ToolUseID string          `json:"tool_use_id,omitempty"`
	Content   []wireBlock     `json:"content,omitempty"`
	IsError   bool            `json:"is_error,omitempty"`
	Source    *wireSource     `json:"source,omitempty"`
}

type wireSource struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type"`
	Data      []byte `json:"data"` // encoded as base64
}

type wireTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"input_schema"`
}

type wireToolChoice struct {
	Type string `json:"type"`
}

// Render writes the request. Roles alternate: adjacent user, control and result messages become one, the results first,
// as the API demands of the message after a tool_use. Call ids are the runtime's own. Thinking is replayed with its
// signature to its issuer, within the current tool cycle and only if that cycle was wholly minted there; older turns go
// without it, which the API allows.
func (Dialect) Render(target provider.Target, req provider.Request) (provider.Rendered, error) {
	r := renderer{target: target, scope: provider.ScopeOf(target), replayFrom: replayFrom(req.Messages, provider.ScopeOf(target))}
	for i, m := range req.Messages {
		if err := r.add(i, m); err != nil {
			return provider.Rendered{}, err
		}
	}
	r.trimEnd()
	body, err := provider.NewBody(r.parameters(), "model", "messages", "system", "tools", "stream")
	if err != nil {
		return provider.Rendered{}, err
	}
	maxTokens := target.MaxOutputTokens
	if maxTokens <= 0 {
		maxTokens = defaultMaxTokens
	}
	fields := []field{{"model", target.Route.Model}, {"max_tokens", maxTokens}}
	if req.System != "" {
		fields = append(fields, field{"system", req.System})
	}
	fields = append(fields, field{"messages", r.messages})
	tools, inert := toolList(req, r.calledNames)
	if len(tools) > 0 {
		fields = append(fields, field{"tools", tools})
		if req.ToolChoiceNone || inert {
			fields = append(fields, field{"tool_choice", wireToolChoice{Type: "none"}})
		}
	}
	for _, f := range append(fields, field{"stream", true}) {
		if err := body.Set(f.name, f.value); err != nil {
			return provider.Rendered{}, failure.Causef(failure.InvalidRequest, "the request cannot be encoded: %v", err)
		}
	}
	out := provider.Rendered{
		Path:       "/v1/messages",
		Headers:    []provider.Header{{Name: "Anthropic-Version", Value: apiVersion}},
		Body:       body.Bytes(),
		Media:      r.media,
		MediaBytes: r.mediaBytes,
	}
	if target.Secret != "" {
		out.Headers = append(out.Headers, provider.Header{Name: "X-Api-Key", Value: target.Secret})
	}
	return out, nil
}

type field struct {
	name  string
	value any
}

// toolList declares the tools. The API refuses a history with calls and no tool list, so a request without tools, for
// example for a summary, declares the called ones bare; inert tells that none of them may be called.
func toolList(req provider.Request, calledNames []string) (list []wireTool, inert bool) {
	for _, t := range req.Tools {
		list = append(list, wireTool{Name: t.Name, Description: t.Description, InputSchema: provider.InputSchema(t)})
	}
	if len(list) > 0 {
		return list, false
	}
	for _, name := range calledNames {
		list = append(list, wireTool{Name: name, InputSchema: provider.InputSchema(provider.Tool{})})
	}
	return list, true
}

// replayFrom returns the index of the first message of the current tool cycle if all of its answers came from the scope,
// else the number of messages: nothing is replayed. A cycle begins after the last message of the user; one that directly
// follows results is sent in one message with them, and does not end the cycle for the API.
func replayFrom(messages []message.Message, scope message.Scope) int {
	from, afterResults := 0, false
	for i, m := range messages {
		switch m.Role {
		case message.RoleUser:
			if !afterResults {
				from = i + 1
			}
		case message.RoleTool:
			afterResults = true
		case message.RoleAssistant:
			afterResults = false
		case message.RoleControl:
		}
	}
	for _, m := range messages[from:] {
		if m.Role == message.RoleAssistant && (m.Origin == nil || *m.Origin != scope) {
			return len(messages)
		}
	}
	return from
}

type renderer struct {
	target      provider.Target
	scope       message.Scope
	replayFrom  int
	messages    []wireMessage
	calledNames []string
	media       int
	mediaBytes  int
	// lastHasThinking tells whether the last assistant message begins with replayed thinking.
	lastHasThinking bool
}

func (r *renderer) add(index int, m message.Message) error {
	switch m.Role {
	case message.RoleUser:
		return r.addUser("", m.Blocks)
	case message.RoleControl:
		return r.addUser(provider.ControlMarker, m.Blocks)
	case message.RoleAssistant:
		r.addAssistant(m, index >= r.replayFrom)
		return nil
	case message.RoleTool:
		return r.addResults(m)
	}
	return failure.Causef(failure.InvalidRequest, "the trajectory has a message of the unknown role %q", m.Role)
}

// append adds blocks to the last message if it has the same role. The API refuses empty messages.
func (r *renderer) append(role string, blocks []wireBlock) {
	if len(blocks) == 0 {
		return
	}
	if n := len(r.messages); n > 0 && r.messages[n-1].Role == role {
		r.messages[n-1].Content = append(r.messages[n-1].Content, blocks...)
		return
	}
	r.messages = append(r.messages, wireMessage{Role: role, Content: blocks})
}

func (r *renderer) addUser(marker string, blocks []message.Block) error {
	var out []wireBlock
	for _, b := range blocks {
		switch b.Kind {
		case message.BlockText:
			if !blank(b.Text) {
				out = append(out, wireBlock{Type: "text", Text: marker + b.Text})
				marker = ""
			}
		case message.BlockMedia:
			image, err := r.image(b.Media)
			if err != nil {
				return err
			}
			out = append(out, image)
		case message.BlockThinking, message.BlockCall, message.BlockResult:
		}
	}
	r.append("user", out)
	return nil
}

// blank tells a text that the API refuses as empty.
func blank(text string) bool { return strings.TrimSpace(text) == "" }

func (r *renderer) image(media *message.Media) (wireBlock, error) {
	if err := provider.CheckImage(r.target, media); err != nil {
		return wireBlock{}, err
	}
	r.media++
	r.mediaBytes += (len(media.Data) + 2) / 3 * 4
	return wireBlock{Type: "image", Source: &wireSource{Type: "base64", MediaType: media.MIMEType, Data: media.Data}}, nil
}

func (r *renderer) addAssistant(m message.Message, replay bool) {
	var out []wireBlock
	for _, b := range m.Blocks {
		switch b.Kind {
		case message.BlockText:
			if !blank(b.Text) {
				out = append(out, wireBlock{Type: "text", Text: b.Text})
			}
		case message.BlockThinking:
			if replay {
				out = append(out, r.thinking(b)...)
			}
		case message.BlockCall:
			if b.Call != nil {
				name := provider.ReplayName(b.Call.Name)
				r.called(name)
				out = append(out, wireBlock{Type: "tool_use", ID: b.Call.ID, Name: name, Input: provider.ReplayArguments(b.Call.Arguments)})
			}
		case message.BlockResult, message.BlockMedia:
		}
	}
	r.lastHasThinking = len(out) > 0 && (out[0].Type == "thinking" || out[0].Type == "redacted_thinking")
	r.append("assistant", out)
}

// thinking returns the block as its issuer made it, or nothing if it has no credential of this scope: the API refuses
// thinking without its signature.
func (r *renderer) thinking(b message.Block) []wireBlock {
	for _, c := range b.Credentials {
		if c.Scope != r.scope {
			continue
		}
		switch c.Kind {
		case credentialSignature:
			return []wireBlock{{Type: "thinking", Thinking: &b.Text, Signature: string(c.Data)}}
		case credentialRedacted:
			return []wireBlock{{Type: "redacted_thinking", Data: string(c.Data)}}
		}
	}
	return nil
}

func (r *renderer) called(name string) {
	for _, known := range r.calledNames {
		if known == name {
			return
		}
	}
	r.calledNames = append(r.calledNames, name)
}

func (r *renderer) addResults(m message.Message) error {
	var out []wireBlock
	for _, b := range m.Blocks {
		if b.Kind != message.BlockResult || b.Result == nil {
			continue
		}
		result := wireBlock{Type: "tool_result", ToolUseID: b.Result.CallID, IsError: isError(b.Result.Status)}
		if !blank(b.Result.Text) {
			result.Content = append(result.Content, wireBlock{Type: "text", Text: b.Result.Text})
		}
		if len(result.Content) == 0 && result.IsError {
			// The API refuses an error without words.
			result.Content = []wireBlock{{Type: "text", Text: "(no output)"}}
		}
		for i := range b.Result.Media {
			image, err := r.image(&b.Result.Media[i])
			if err != nil {
				return err
			}
			result.Content = append(result.Content, image)
		}
		out = append(out, result)
	}
	r.append("user", out)
	return nil
}

// isError tells the statuses that the model is told as errors. A call in doubt may well have succeeded.
func isError(s message.ResultStatus) bool {
	switch s {
	case message.ResultError, message.ResultTimeout, message.ResultCancelled, message.ResultNotRun:
		return true
	case message.ResultOK, message.ResultInDoubt:
		return false
	}
	return false
}

// trimEnd removes the white space that the API refuses at the end of a last assistant message.
func (r *renderer) trimEnd() {
	if len(r.messages) == 0 {
		return
	}
	last := r.messages[len(r.messages)-1]
	if last.Role != "assistant" {
		return
	}
	if b := &last.Content[len(last.Content)-1]; b.Type == "text" {
		b.Text = strings.TrimRight(b.Text, " \t\r\n")
	}
}

// parameters returns the leg's parameters, without thinking if the API would refuse it: with a thinking budget enabled,
// the last assistant turn of a tool cycle must begin with its thinking, and a turn that was minted elsewhere has none.
func (r *renderer) parameters() json.RawMessage {
	if r.lastHasThinking || !r.inCycle() || !hasThinkingBudget(r.target.Parameters) {
		return r.target.Parameters
	}
	var parameters map[string]json.RawMessage
	_ = json.Unmarshal(r.target.Parameters, &parameters) // it is an object: it has a thinking budget
	parameters["thinking"] = json.RawMessage("null")     // which removes the field
	raw, _ := json.Marshal(parameters)
	return raw
}

func hasThinkingBudget(parameters json.RawMessage) bool {
	var p struct {
		Thinking struct {
			Type string `json:"type"`
		} `json:"thinking"`
	}
	return len(parameters) > 0 && json.Unmarshal(parameters, &p) == nil && p.Thinking.Type == "enabled"
}

// inCycle tells whether the request continues a turn: it ends with results, or with the assistant's own words.
func (r *renderer) inCycle() bool {
	if len(r.messages) == 0 {
		return false
	}
	last := r.messages[len(r.messages)-1]
	return last.Role == "assistant" || last.Content[0].Type == "tool_result"
}
