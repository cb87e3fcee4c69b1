package failure

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
)

// errorBody is what an error response or event says, in whatever of the known shapes.
type errorBody struct {
	// codes are the machine-readable words, the most specific first.
	codes []string
	// traits are facts in place of a code: quota_per_day, quota_per_minute, tool_use_failed.
	traits []string
	// status is a numeric code inside the body, 0 if none.
	status int
	// text is the message for people, and the only thing the text stage reads. Empty for HTML.
	text  string
	param string
	html  bool
	// structured tells that the body was JSON.
	structured bool

	retryDelay      string
	resetsInSeconds *float64
	resetsAt        *float64
	promptTokens    int64
	contextTokens   int64
	moderated       bool
}

// maxCode bounds Failure.Code.
const maxCode = 64

// parseErrorBody reads the error shapes in use: {"error":{…}}, {"error":"…"}, [{"error":{…}}], the flat
// {"object":"error",…}, {"message":…,"__type":…}, {"detail":…} and {"response":{"error":{…}}}. A body that is no JSON
// is text, or HTML, of which nothing is read.
func parseErrorBody(raw []byte) errorBody {
	trimmed := bytes.TrimSpace(raw)
	if len(trimmed) == 0 {
		return errorBody{}
	}
	if trimmed[0] == '<' {
		return errorBody{html: true}
	}
	var top any
	if json.Unmarshal(trimmed, &top) != nil {
		return errorBody{text: string(trimmed)}
	}
	if list, ok := top.([]any); ok && len(list) > 0 {
		top = list[0]
	}
	b := errorBody{structured: true}
	switch t := top.(type) {
	case map[string]any:
		b.readTop(t)
	case string:
		b.text = t
	}
	return b
}

func (b *errorBody) readTop(top map[string]any) {
	if response, ok := top["response"].(map[string]any); ok && response["error"] != nil {
		top = response
	}
	switch e := top["error"].(type) {
	case map[string]any:
		if inner, ok := e["error"].(map[string]any); ok {
			e = inner
		}
		b.readObject(e)
		b.readNumber(top["status_code"])
	case string:
		b.addText(e)
		b.readObject(top)
	default:
		if choice, ok := firstOf(top["choices"]); ok {
			if e, ok := choice["error"].(map[string]any); ok {
				b.readObject(e)
				return
			}
		}
		b.readObject(top)
	}
}

func (b *errorBody) readObject(e map[string]any) {
	b.readDetails(e["details"])
	if metadata, ok := e["metadata"].(map[string]any); ok {
		b.readMetadata(metadata)
	}
	b.addCode(e["code"])
	if inner, ok := e["innererror"].(map[string]any); ok {
		b.addCode(inner["code"])
	}
	b.addCode(e["__type"])
	if e["type"] != "error" {
		b.addCode(e["type"])
	}
	b.addCode(e["status"])
	b.readNumber(e["code"])
	b.readNumber(e["status"])
	b.addText(e["message"])
	b.addText(e["detail"])
	if param, ok := e["param"].(string); ok {
		b.param = param
	}
	b.resetsInSeconds = number(e["resets_in_seconds"])
	b.resetsAt = number(e["resets_at"])
	b.promptTokens = tokens(e["n_prompt_tokens"])
	b.contextTokens = tokens(e["n_ctx"])
	if raw, ok := e["failed_generation"].(string); ok && raw != "" {
		b.traits = append(b.traits, "tool_use_failed")
	}
}

// readDetails reads Anthropic's details object and Google's details list.
func (b *errorBody) readDetails(details any) {
	switch d := details.(type) {
	case map[string]any:
		b.addCode(d["error_code"])
	case []any:
		for _, item := range d {
			detail, ok := item.(map[string]any)
			if !ok {
				continue
			}
			if delay, ok := detail["retryDelay"].(string); ok {
				b.retryDelay = delay
			}
			b.addCode(detail["reason"])
			violations, _ := detail["violations"].([]any)
			for _, v := range violations {
				if violation, ok := v.(map[string]any); ok {
					b.readQuotaID(violation["quotaId"])
				}
			}
		}
	}
}

// readQuotaID turns Google's quota names, which hold their period, into a trait. A daily quota is the stronger word.
func (b *errorBody) readQuotaID(id any) {
	name, _ := id.(string)
	switch {
	case strings.Contains(name, "PerDay"):
		b.traits = append([]string{"quota_per_day"}, b.traits...)
	case strings.Contains(name, "PerMinute"):
		b.traits = append(b.traits, "quota_per_minute")
	}
}

// readMetadata reads what OpenRouter adds: who limited the request, whether moderation did, and the upstream's own body.
func (b *errorBody) readMetadata(metadata map[string]any) {
	b.addCode(metadata["limit_source"])
	if reasons, ok := metadata["reasons"].([]any); ok && len(reasons) > 0 {
		b.moderated = true
	}
	raw, ok := metadata["raw"].(string)
	if !ok {
		return
	}
	inner := parseErrorBody([]byte(raw))
	if inner.structured {
		b.codes = append(b.codes, inner.codes...)
		b.traits = append(b.traits, inner.traits...)
		b.retryDelay = inner.retryDelay
	}
	b.addText(inner.text)
}

func (b *errorBody) addCode(v any) {
	if s, ok := v.(string); ok && s != "" {
		b.codes = append(b.codes, s)
	}
}

func (b *errorBody) addText(v any) {
	s, ok := v.(string)
	if !ok || s == "" {
		return
	}
	if b.text != "" {
		b.text += "\n"
	}
	b.text += s
}

func (b *errorBody) readNumber(v any) {
	if b.status != 0 {
		return
	}
	n := number(v)
	if n == nil {
		return
	}
	if s := int(*n); s >= 400 && s <= 599 {
		b.status = s
	}
}

// words are all that may decide, the most specific first.
func (b errorBody) words(header http.Header) []string {
	return slices.Concat(b.traits, b.codes, []string{amazonErrorType(header)})
}

// code returns the provider's most specific code, as CleanCode bounds it.
func (b errorBody) code(header http.Header) string {
	for _, c := range slices.Concat(b.codes, []string{amazonErrorType(header)}) {
		if c = cutCode(c); c != "" {
			return c
		}
	}
	return ""
}

func cutCode(s string) string {
	if strings.ContainsAny(s, " \t\r\n") {
		return ""
	}
	end := 0
	for end < len(s) && end < maxCode && isCodeByte(s[end]) {
		end++
	}
	return s[:end]
}

func isCodeByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("_.:-", c) >= 0
}

// amazonErrorType returns the exception's name from AWS's header, which may append a URL after a colon.
func amazonErrorType(header http.Header) string {
	name, _, _ := strings.Cut(header.Get("X-Amzn-Errortype"), ":")
	return name
}

func firstOf(v any) (map[string]any, bool) {
	list, ok := v.([]any)
	if !ok || len(list) == 0 {
		return nil, false
	}
	m, ok := list[0].(map[string]any)
	return m, ok
}

// number reads a JSON number, or a string of digits, as some gateways quote their status.
func number(v any) *float64 {
	switch n := v.(type) {
	case float64:
		return &n
	case string:
		var f float64
		if json.Unmarshal([]byte(n), &f) == nil {
			return &f
		}
	}
	return nil
}

// maxTokens is far above any window; a larger figure is noise.
const maxTokens = 1 << 40

func tokens(v any) int64 {
	n := number(v)
	if n == nil || *n < 0 || *n > maxTokens {
		return 0
	}
	return int64(*n)
}

// ReportsError tells whether a JSON document is an error object in one of the known shapes.
func ReportsError(raw []byte) bool {
	trimmed := bytes.TrimSpace(raw)
	var list []json.RawMessage
	if len(trimmed) > 0 && trimmed[0] == '[' && json.Unmarshal(trimmed, &list) == nil && len(list) > 0 {
		trimmed = list[0]
	}
	var top struct {
		Error  json.RawMessage `json:"error"`
		Object json.RawMessage `json:"object"`
		Type   json.RawMessage `json:"type"`
	}
	if json.Unmarshal(trimmed, &top) != nil {
		return false
	}
	switch string(top.Error) {
	case "", "null", "false", `""`:
	default:
		return true
	}
	return string(top.Object) == `"error"` || string(top.Type) == `"error"`
}

// CleanCode bounds a provider's identifier, such as a code, an event's name or a request id, to 64 characters and cuts it
// at the first character outside [A-Za-z0-9_.:-]. What has white space in it is text and no identifier, and becomes empty.
func CleanCode(s string) string { return cutCode(s) }

// CleanMediaType does the same for a media type, which also has a slash and a plus.
func CleanMediaType(s string) string {
	main, sub, _ := strings.Cut(s, "/")
	return cutCode(main) + "/" + cutCode(sub)
}
