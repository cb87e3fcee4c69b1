package openaichat

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/message"
	"belay.dev/belay/internal/runtime/provider"
)

type wireMessage struct {
	Role             string     `json:"role"`
	Content          any        `json:"content"` // string, []wirePart or null
	ReasoningContent *string    `json:"reasoning_content,omitempty"`
	Reasoning        *string    `json:"reasoning,omitempty"`
	ToolCalls        []wireCall `json:"tool_calls,omitempty"`
	ToolCallID       string     `json:"tool_call_id,omitempty"`
}

type wirePart struct {
	Type     string        `json:"type"`
	Text     string        `json:"text,omitempty"`
	ImageURL *wireImageURL `json:"image_url,omitempty"`
}

type wireImageURL struct {
	URL string `json:"url"`
}

type wireCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function wireFunction `json:"function"`
}

type wireFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type wireTool struct {
	Type     string       `json:"type"`
	Function wireToolSpec `json:"function"`
}

type wireToolSpec struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters"`
}

type wireStreamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// Render writes the request. Call ids are the runtime's own; vendor ids and foreign credentials are not sent. Adjacent
// user and control messages become one, since some servers' templates demand alternation.
func (Dialect) Render(target provider.Target, req provider.Request) (provider.Rendered, error) {
	body, err := provider.NewBody(target.Parameters, "model", "messages", "tools", "stream", "n")
	if err != nil {
		return provider.Rendered{}, err
	}
	r := renderer{target: target, scope: provider.ScopeOf(target)}
	if req.System != "" {
		r.messages = append(r.messages, wireMessage{Role: "system", Content: req.System})
	}
	for _, m := range req.Messages {
		if err := r.add(m); err != nil {
			return provider.Rendered{}, err
		}
	}
	r.flattenText()
	fields := []field{{"model", target.Route.Model}, {"messages", r.messages}}
	if len(req.Tools) > 0 {
		fields = append(fields, field{"tools", toolList(req.Tools)})
		if req.ToolChoiceNone {
			fields = append(fields, field{"tool_choice", "none"})
		}
	}
	if name := outputCapField(target, body); name != "" {
		fields = append(fields, field{name, target.MaxOutputTokens})
	}
	fields = append(fields, field{"stream", true}, field{"stream_options", wireStreamOptions{IncludeUsage: true}})
	for _, f := range fields {
		if err := body.Set(f.name, f.value); err != nil {
			return provider.Rendered{}, failure.Causef(failure.InvalidRequest, "the request cannot be encoded: %v", err)
		}
	}
	out := provider.Rendered{Path: "/chat/completions", Body: body.Bytes(), Media: r.media, MediaBytes: r.mediaBytes}
	if target.Secret != "" {
		out.Headers = []provider.Header{{Name: "Authorization", Value: "Bearer " + target.Secret}}
	}
	return out, nil
}

type field struct {
	name  string
	value any
}

// outputCapField names the field for the output cap. OpenAI and Azure have replaced max_tokens by max_completion_tokens
// and refuse the old one for reasoning models; other servers know the old one, and some refuse the new. A parameter
// with either name decides for itself.
func outputCapField(target provider.Target, body *provider.Body) string {
	if target.MaxOutputTokens <= 0 || body.Overrides("max_tokens") || body.Overrides("max_completion_tokens") {
		return ""
	}
	host := strings.ToLower(target.Route.Host())
	if host == "api.openai.com" || strings.HasSuffix(host, ".openai.azure.com") {
		return "max_completion_tokens"
	}
	return "max_tokens"
}

func toolList(tools []provider.Tool) []wireTool {
	list := make([]wireTool, 0, len(tools))
	for _, t := range tools {
		list = append(list, wireTool{Type: "function",
			Function: wireToolSpec{Name: t.Name, Description: t.Description, Parameters: provider.InputSchema(t)}})
	}
	return list
}

type renderer struct {
	target     provider.Target
	scope      message.Scope
	messages   []wireMessage
	media      int
	mediaBytes int
}

func (r *renderer) add(m message.Message) error {
	switch m.Role {
	case message.RoleUser:
		return r.addUser("", m.Blocks)
	case message.RoleControl:
		return r.addUser(provider.ControlMarker, m.Blocks)
	case message.RoleAssistant:
		r.addAssistant(m)
		return nil
	case message.RoleTool:
		return r.addResults(m)
	}
	return failure.Causef(failure.InvalidRequest, "the trajectory has a message of the unknown role %q", m.Role)
}

func (r *renderer) addUser(marker string, blocks []message.Block) error {
	var parts []wirePart
	for _, b := range blocks {
		switch b.Kind {
		case message.BlockText:
			if b.Text != "" {
				parts = append(parts, wirePart{Type: "text", Text: marker + b.Text})
				marker = ""
			}
		case message.BlockMedia:
			part, err := r.image(b.Media)
			if err != nil {
				return err
			}
			parts = append(parts, part)
		case message.BlockThinking, message.BlockCall, message.BlockResult:
		}
	}
	r.appendUser(parts)
	return nil
}

// appendUser adds parts to the last message if that is the user's, too.
func (r *renderer) appendUser(parts []wirePart) {
	if len(parts) == 0 {
		return
	}
	if n := len(r.messages); n > 0 && r.messages[n-1].Role == "user" {
		last, _ := r.messages[n-1].Content.([]wirePart)
		r.messages[n-1].Content = append(last, parts...)
		return
	}
	if n := len(r.messages); n > 0 && r.messages[n-1].Role == "tool" && isMistral(r.target) {
		r.messages = append(r.messages, wireMessage{Role: "assistant", Content: "Noted."})
	}
	r.messages = append(r.messages, wireMessage{Role: "user", Content: parts})
}

// isMistral tells a model whose template refuses a user message directly after a tool result, at Mistral itself and on
// servers that run its models: there, a word of the assistant stands between them.
func isMistral(target provider.Target) bool {
	model := strings.ToLower(target.Route.Model)
	for _, family := range []string{"mistral", "mixtral", "ministral", "magistral", "codestral", "devstral", "pixtral"} {
		if strings.Contains(model, family) {
			return true
		}
	}
	return strings.HasSuffix(strings.ToLower(target.Route.Host()), ".mistral.ai")
}

// flattenText sends user messages of text alone as plain strings, which every server understands.
func (r *renderer) flattenText() {
	for i := range r.messages {
		parts, ok := r.messages[i].Content.([]wirePart)
		if !ok {
			continue
		}
		texts := make([]string, 0, len(parts))
		for _, p := range parts {
			if p.ImageURL == nil {
				texts = append(texts, p.Text)
			}
		}
		if len(texts) == len(parts) {
			r.messages[i].Content = strings.Join(texts, "\n\n")
		}
	}
}

func (r *renderer) image(media *message.Media) (wirePart, error) {
	if err := provider.CheckImage(r.target, media); err != nil {
		return wirePart{}, err
	}
	data := base64.StdEncoding.EncodeToString(media.Data)
	r.media++
	r.mediaBytes += len(data)
	return wirePart{Type: "image_url", ImageURL: &wireImageURL{URL: "data:" + media.MIMEType + ";base64," + data}}, nil
}

func (r *renderer) addAssistant(m message.Message) {
	out := wireMessage{Role: "assistant"}
	var text strings.Builder
	for _, b := range m.Blocks {
		switch b.Kind {
		case message.BlockText:
			text.WriteString(b.Text)
		case message.BlockCall:
			if b.Call != nil {
				out.ToolCalls = append(out.ToolCalls, wireCall{ID: b.Call.ID, Type: "function", Function: wireFunction{
					Name: provider.ReplayName(b.Call.Name), Arguments: string(provider.ReplayArguments(b.Call.Arguments))}})
			}
		case message.BlockThinking, message.BlockResult, message.BlockMedia:
		}
	}
	if text.Len() > 0 {
		out.Content = text.String()
	}
	if out.Content == nil && len(out.ToolCalls) == 0 {
		// A turn of reasoning alone: the API wants content or calls.
		out.Content = ""
	}
	r.addReasoning(&out, m)
	r.messages = append(r.messages, out)
}

// addReasoning sends reasoning text back in the field in which its issuer sent it, or an empty value for turns minted
// elsewhere, as servers demand that refuse a turn with calls and without reasoning.
func (r *renderer) addReasoning(out *wireMessage, m message.Message) {
	if r.target.Reasoning != provider.ReasoningReplayed && r.target.Reasoning != provider.ReasoningPlaceholder {
		return
	}
	var text strings.Builder
	name := ""
	if m.Origin != nil && *m.Origin == r.scope {
		for _, b := range m.Blocks {
			for _, c := range b.Credentials {
				if b.Kind == message.BlockThinking && c.Kind == credentialReasoning && c.Scope == r.scope {
					text.WriteString(b.Text)
					name = string(c.Data)
				}
			}
		}
	}
	value := text.String()
	switch {
	case name == reasoningField:
		out.Reasoning = &value
	case name == reasoningContentField, r.target.Reasoning == provider.ReasoningPlaceholder:
		out.ReasoningContent = &value
	}
}

// addResults writes one tool message for each result, then the images of all of them as the user's, since a tool message
// holds text only.
func (r *renderer) addResults(m message.Message) error {
	var images []wirePart
	for _, b := range m.Blocks {
		if b.Kind != message.BlockResult || b.Result == nil {
			continue
		}
		r.messages = append(r.messages, wireMessage{Role: "tool", ToolCallID: b.Result.CallID, Content: b.Result.Text})
		for i := range b.Result.Media {
			part, err := r.image(&b.Result.Media[i])
			if err != nil {
				return err
			}
			images = append(images, wirePart{Type: "text", Text: provider.ControlMarker + "Image from the result of " + b.Result.Name + ":"}, part)
		}
	}
	r.appendUser(images)
	return nil
}
