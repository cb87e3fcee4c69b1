package chaos

import (
	"encoding/json"
	"fmt"

	"belay.dev/belay/internal/runtime/route"
)

// Script says what each fake endpoint answers. Its YAML form is described in docs/chaos-script.md.
type Script struct {
	// Legs are the fake endpoints by the first segment of their path.
	Legs map[string]Leg `json:"legs"`
}

// Leg is one fake endpoint and what it answers, in order.
type Leg struct {
	// Dialect is the API that the endpoint speaks. Default OpenAIChat.
	Dialect route.Dialect `json:"dialect,omitempty"`
	// Vendor adds the peculiarities of one server of the OpenAIChat dialect. Default OpenAI.
	Vendor Vendor `json:"vendor,omitempty"`
	// Model is the only model that the endpoint knows. Empty: any.
	Model string `json:"model,omitempty"`
	// APIKey is the only key that the endpoint accepts. Empty: any key, but there must be one.
	APIKey string `json:"apiKey,omitempty"`
	// Advance says what moves the script on. Default PerRequest.
	Advance Advance `json:"advance,omitempty"`
	// ContextWindow is the model's window in tokens; larger requests are refused. 0: no limit. A token is counted for
	// every four bytes of the request body.
	ContextWindow int64 `json:"contextWindow,omitempty"`
	// UndeclaredCalls says whether a conversation may hold calls of tools that the request does not declare. Default
	// Accept, as the vendors' own APIs do.
	UndeclaredCalls UndeclaredCalls `json:"undeclaredCalls,omitempty"`
	// Steps are the answers.
	Steps []Step `json:"steps"`
}

// Vendor is a server of the OpenAIChat dialect with rules of its own.
type Vendor string

const (
	// VendorOpenAI is the API of OpenAI itself. It refuses unknown fields, reasoning_content among them.
	VendorOpenAI Vendor = "OpenAI"
	// VendorCompatible is a lenient compatible server that shows reasoning and takes it back.
	VendorCompatible Vendor = "Compatible"
	// VendorMistral demands call ids of exactly nine alphanumerics, no user message directly after a tool result, and a
	// user or tool message at the end.
	VendorMistral Vendor = "Mistral"
	// VendorDeepSeek shows reasoning, and demands it back in the assistant turns that called tools.
	VendorDeepSeek Vendor = "DeepSeek"
)

// Advance says what moves a leg's script from one step to the next.
type Advance string

const (
	// AdvancePerRequest uses the next step for the next accepted request, whoever sends it.
	AdvancePerRequest Advance = "PerRequest"
	// AdvancePerConversation finds the step by the number of assistant turns in the request, so that any number of runs
	// can play the same script at once. Steps that do not complete a turn are faults in front of the next turn; they are
	// counted per distinct request body, so that a retry of the same body meets the next of them.
	AdvancePerConversation Advance = "PerConversation"
)

// UndeclaredCalls is the policy for calls in the conversation whose tool is not declared in the request.
type UndeclaredCalls string

const (
	// UndeclaredAccept takes them, as long as any tool is declared.
	UndeclaredAccept UndeclaredCalls = "Accept"
	// UndeclaredReject refuses the request.
	UndeclaredReject UndeclaredCalls = "Reject"
)

// Step is one answer of a leg. Exactly one of these says what happens: Status, Redirect, Reset, Silence, RawEvents, or a
// model turn made of Answer, Text, Thinking, RedactedThinking and Calls. The other fields shape it.
type Step struct {
	// Times is how many requests the step answers. Default 1.
	Times Count `json:"times,omitempty"`
	// Expect must hold for the request, or it is refused with 400 expectation_failed and uses no step.
	Expect *Expectation `json:"expect,omitempty"`

	// Status answers with this HTTP status and Body, or with the dialect's own error body for that status.
	Status int `json:"status,omitempty"`
	// Headers are added to the response.
	Headers map[string]string `json:"headers,omitempty"`
	// Body is the response's body, verbatim. Needs Status.
	Body string `json:"body,omitempty"`
	// Error fills the dialect's error body. Needs Status.
	Error *Error `json:"error,omitempty"`
	// ContentType replaces the response's content type.
	ContentType string `json:"contentType,omitempty"`
	// RetryAfter adds a wait hint.
	RetryAfter *RetryAfter `json:"retryAfter,omitempty"`
	// Redirect sends the client elsewhere.
	Redirect *Redirect `json:"redirect,omitempty"`
	// Reset resets the connection before any byte of an answer.
	Reset *Reset `json:"reset,omitempty"`
	// Silence takes the request and never answers.
	Silence *Silence `json:"silence,omitempty"`
	// RawEvents are sent verbatim as the stream, each followed by an empty line.
	RawEvents []string `json:"rawEvents,omitempty"`

	// Answer is the text of a turn that ends the conversation. An empty string is an empty turn.
	Answer *string `json:"answer,omitempty"`
	// Text is text in front of the turn's calls.
	Text string `json:"text,omitempty"`
	// Thinking is the visible reasoning in front of the text.
	Thinking string `json:"thinking,omitempty"`
	// RedactedThinking is the plain text of reasoning that the client sees only as an opaque blob. AnthropicMessages only.
	RedactedThinking string `json:"redactedThinking,omitempty"`
	// Calls are the turn's tool calls.
	Calls []Call `json:"calls,omitempty"`
	// HalfCall cuts the arguments of the last call in the middle, as an output limit does.
	HalfCall bool `json:"halfCall,omitempty"`
	// FinishReason replaces the stop reason in the dialect's own words; Missing leaves it out.
	FinishReason string `json:"finishReason,omitempty"`
	// Usage replaces the reported figures.
	Usage *Usage `json:"usage,omitempty"`
	// Billing replaces what is billed for each use of the step; by default that is the usage of the part delivered.
	Billing *Usage `json:"billing,omitempty"`

	// DelayMilliseconds is the pause before the response of a status, and before every event of a stream.
	DelayMilliseconds int64 `json:"delayMilliseconds,omitempty"`
	// FirstByteDelayMilliseconds is the pause before the response's headers.
	FirstByteDelayMilliseconds int64 `json:"firstByteDelayMilliseconds,omitempty"`
	// Comments is how many pings precede the stream's first event: SSE comments, or ping events for AnthropicMessages.
	// Each waits DelayMilliseconds first; Forever never comes to the first event.
	Comments Count `json:"comments,omitempty"`
	// CommentText is the text of an SSE comment. Default "keep-alive".
	CommentText string `json:"commentText,omitempty"`
	// InBandError is an error inside a stream whose status was 200.
	InBandError *InBandError `json:"inBandError,omitempty"`
	// CutAfterEvents ends the stream after that many events; pings and comments do not count.
	CutAfterEvents *int `json:"cutAfterEvents,omitempty"`
	// CutAfterBytes ends the stream after that many bytes of the body.
	CutAfterBytes *int `json:"cutAfterBytes,omitempty"`
	// Cut is how the stream ends there. Default Close.
	Cut Cut `json:"cut,omitempty"`
	// OmitDone leaves out the stream's last marker: [DONE], or message_stop for AnthropicMessages.
	OmitDone bool `json:"omitDone,omitempty"`
	// HangAfterTerminal keeps the connection open after the whole stream was sent.
	HangAfterTerminal bool `json:"hangAfterTerminal,omitempty"`
	// ChunkSize splits what is written to the connection into writes of so many bytes, across events and characters.
	ChunkSize int `json:"chunkSize,omitempty"`
	// DeltaCharacters is how many characters of text or arguments one event carries. Default: words, and eight
	// characters of arguments.
	DeltaCharacters int `json:"deltaCharacters,omitempty"`
}

// Forever is a Count without end; in YAML the word Forever.
const Forever Count = -1

// Count is a number of times, or Forever.
type Count int

// UnmarshalJSON reads a positive number or the word Forever.
func (c *Count) UnmarshalJSON(b []byte) error {
	var word string
	if json.Unmarshal(b, &word) == nil {
		if word != "Forever" {
			return fmt.Errorf("%q is neither a number nor Forever", word)
		}
		*c = Forever
		return nil
	}
	var n int
	if err := json.Unmarshal(b, &n); err != nil || n < 1 {
		return fmt.Errorf("%s is neither a number of at least 1 nor Forever", b)
	}
	*c = Count(n)
	return nil
}

// Call is one tool call of a turn.
type Call struct {
	// Name is the tool; it need not be one that the request declares, since models invent names too.
	Name string `json:"name"`
	// Arguments is the arguments object.
	Arguments json.RawMessage `json:"arguments,omitempty"`
	// ArgumentsRaw are the arguments verbatim, valid JSON or not.
	ArgumentsRaw *string `json:"argumentsRaw,omitempty"`
	// ID replaces the vendor-style id that is minted otherwise, for example to repeat one.
	ID string `json:"id,omitempty"`
}

// arguments returns the call's arguments as they go over the wire.
func (c Call) arguments() string {
	switch {
	case c.ArgumentsRaw != nil:
		return *c.ArgumentsRaw
	case len(c.Arguments) == 0:
		return "{}"
	default:
		return string(c.Arguments)
	}
}

// Usage counts tokens.
type Usage struct {
	// Input are all prompt tokens, cached ones included.
	Input int64 `json:"input"`
	// Output are all generated tokens.
	Output int64 `json:"output"`
	// Cached are the part of Input that was read from the provider's cache.
	Cached int64 `json:"cached,omitempty"`
}

// Error is what an error body says, in the dialect's shape.
type Error struct {
	Type    string `json:"type,omitempty"`
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	Param   string `json:"param,omitempty"`
}

// RetryAfter is a wait hint in one of the forms that providers send.
type RetryAfter struct {
	// Milliseconds is the wait; it may be negative or absurd.
	Milliseconds int64 `json:"milliseconds"`
	// Form is how it is written. Default Seconds.
	Form RetryAfterForm `json:"form,omitempty"`
}

// RetryAfterForm is how a wait hint is written.
type RetryAfterForm string

const (
	// RetryAfterSeconds is Retry-After with seconds, with a fraction if there is one.
	RetryAfterSeconds RetryAfterForm = "Seconds"
	// RetryAfterDate is Retry-After with an HTTP date, counted from the server's clock.
	RetryAfterDate RetryAfterForm = "Date"
	// RetryAfterMilliseconds is the header retry-after-ms.
	RetryAfterMilliseconds RetryAfterForm = "Milliseconds"
)

// Redirect sends the client elsewhere.
type Redirect struct {
	// Location is the Location header.
	Location string `json:"location"`
	// Status is 301, 302, 303, 307 or 308. Default 307, with which clients repeat the body.
	Status int `json:"status,omitempty"`
}

// Reset resets the connection.
type Reset struct{}

// Silence never answers.
type Silence struct {
	// After is what is sent first. Default Accept.
	After SilenceAfter `json:"after,omitempty"`
}

// SilenceAfter is what precedes a silence.
type SilenceAfter string

const (
	// SilenceAfterAccept sends nothing at all.
	SilenceAfterAccept SilenceAfter = "Accept"
	// SilenceAfterHeaders sends status 200 and the headers of a stream.
	SilenceAfterHeaders SilenceAfter = "Headers"
)

// InBandError is an error inside a stream. Nothing of the turn follows it.
type InBandError struct {
	Error
	// AfterEvents is after how many events it comes. Default: after all content, before the stop reason.
	AfterEvents *int `json:"afterEvents,omitempty"`
	// Shape is its form. Default Nested.
	Shape ErrorShape `json:"shape,omitempty"`
}

// ErrorShape is the form of an in-band error.
type ErrorShape string

const (
	// ErrorNested is the dialect's own: `{"error":{…}}`, or an error event for AnthropicMessages.
	ErrorNested ErrorShape = "Nested"
	// ErrorFlat is `{"object":"error","message":…}` followed by [DONE], as some OpenAIChat servers send. OpenAIChat only.
	ErrorFlat ErrorShape = "Flat"
)

// Cut is how a stream ends before its time.
type Cut string

const (
	// CutClose ends the body as if it were complete; nothing on the connection tells that it is not.
	CutClose Cut = "Close"
	// CutAbort closes the connection inside the body, so that the client sees an unexpected end.
	CutAbort Cut = "Abort"
	// CutReset resets the connection.
	CutReset Cut = "Reset"
	// CutSilence sends nothing more and keeps the connection open until the client leaves.
	CutSilence Cut = "Silence"
)

// Expectation is what a request must look like, so that a script proves what the model was told.
type Expectation struct {
	// LastContains must occur in the text of the last message, tool results included.
	LastContains string `json:"lastContains,omitempty"`
	// LastOmits must not.
	LastOmits string `json:"lastOmits,omitempty"`
	// SystemContains must occur in the system prompt.
	SystemContains string `json:"systemContains,omitempty"`
	// Contains must each occur somewhere in the conversation.
	Contains []string `json:"contains,omitempty"`
	// Omits must each occur nowhere in it.
	Omits []string `json:"omits,omitempty"`
	// ToolResults must be there.
	ToolResults []ResultExpectation `json:"toolResults,omitempty"`
	// Tools must each be declared.
	Tools []string `json:"tools,omitempty"`
	// AssistantTurns is the exact number of assistant turns in the conversation.
	AssistantTurns *int `json:"assistantTurns,omitempty"`
}

// ResultExpectation is what the result of one tool call must look like.
type ResultExpectation struct {
	// Call is the number of the call in the whole conversation, from 1. Default: the last.
	Call int `json:"call,omitempty"`
	// Contains must occur in the result's text.
	Contains string `json:"contains,omitempty"`
	// Omits must not.
	Omits string `json:"omits,omitempty"`
}
