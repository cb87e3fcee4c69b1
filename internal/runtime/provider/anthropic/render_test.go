package anthropic

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/message"
	"belay.dev/belay/internal/runtime/provider"
)

func render(t *testing.T, target provider.Target, req provider.Request) provider.Rendered {
	t.Helper()
	out, err := Dialect{}.Render(target, req)
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(out.Body) {
		t.Fatalf("the body is no JSON: %s", out.Body)
	}
	return out
}

func user(s string) message.Message {
	return message.Message{Role: message.RoleUser, Blocks: []message.Block{text(s)}}
}

func control(s string) message.Message {
	return message.Message{Role: message.RoleControl, Blocks: []message.Block{text(s)}}
}

func assistant(blocks ...message.Block) message.Message {
	return message.Message{Role: message.RoleAssistant, Origin: &testScope, Blocks: blocks}
}

// foreign is the same turn, minted elsewhere.
func foreign(m message.Message) message.Message {
	m.Origin = &message.Scope{Route: "other", Dialect: "OpenAIChat", Model: "m9"}
	return m
}

func call(id, name, arguments string) message.Block {
	b := toolUse("toolu_"+id, name, arguments)
	b.Call.ID = id
	return b
}

func results(rs ...message.Result) message.Message {
	m := message.Message{Role: message.RoleTool}
	for i := range rs {
		m.Blocks = append(m.Blocks, message.Block{Kind: message.BlockResult, Result: &rs[i]})
	}
	return m
}

func ok(id, s string) message.Result {
	return message.Result{CallID: id, Name: "t", Status: message.ResultOK, Text: s}
}

func fieldOf(t *testing.T, body []byte, name string) string {
	t.Helper()
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		t.Fatal(err)
	}
	return string(fields[name])
}

func messagesOf(t *testing.T, target provider.Target, messages ...message.Message) string {
	t.Helper()
	return fieldOf(t, render(t, target, provider.Request{Messages: messages}).Body, "messages")
}

func TestAConversationIsRendered(t *testing.T) {
	target := testTarget()
	target.MaxOutputTokens = 1000
	got := render(t, target, provider.Request{
		System: "Be <brief>.",
		Messages: []message.Message{
			user("Find x."),
			assistant(thinking("Let me look.", "c2ln"), redacted("ZW5j"), text("Looking."), call("Aaaaaaaa1", "grep", `{"q":"x"}`), call("Aaaaaaaa2", "read", `{"path":"a"}`)),
			results(ok("Aaaaaaaa1", "a:1"), message.Result{CallID: "Aaaaaaaa2", Status: message.ResultError, Text: "no such file"}),
			control("The file a is gone."),
		},
		Tools: []provider.Tool{{Name: "grep", Description: "Search.", InputSchema: json.RawMessage(`{"type":"object","properties":{"q":{"type":"string"}}}`)}, {Name: "now"}},
	})
	want := `{"model":"m1","max_tokens":1000,"system":"Be <brief>.","messages":[` +
		`{"role":"user","content":[{"type":"text","text":"Find x."}]},` +
		`{"role":"assistant","content":[{"type":"thinking","thinking":"Let me look.","signature":"c2ln"},{"type":"redacted_thinking","data":"ZW5j"},` +
		`{"type":"text","text":"Looking."},{"type":"tool_use","id":"Aaaaaaaa1","name":"grep","input":{"q":"x"}},{"type":"tool_use","id":"Aaaaaaaa2","name":"read","input":{"path":"a"}}]},` +
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"Aaaaaaaa1","content":[{"type":"text","text":"a:1"}]},` +
		`{"type":"tool_result","tool_use_id":"Aaaaaaaa2","content":[{"type":"text","text":"no such file"}],"is_error":true},` +
		`{"type":"text","text":"[Note from the runtime, not from the user]\nThe file a is gone."}]}],` +
		`"tools":[{"name":"grep","description":"Search.","input_schema":{"type":"object","properties":{"q":{"type":"string"}}}},{"name":"now","input_schema":{"type":"object"}}],` +
		`"stream":true}`
	if diff := cmp.Diff(want, string(got.Body)); diff != "" {
		t.Error(diff)
	}
	if got.Path != "/v1/messages" {
		t.Errorf("path %q", got.Path)
	}
	headers := []provider.Header{{Name: "Anthropic-Version", Value: "2023-06-01"}, {Name: "X-Api-Key", Value: "key"}}
	if diff := cmp.Diff(headers, got.Headers); diff != "" {
		t.Error(diff)
	}
}

func TestThinkingIsReplayedOnlyToItsIssuerAndOnlyInTheCurrentCycle(t *testing.T) {
	turn := assistant(thinking("T", "c2ln"), call("Aaaaaaaa1", "t", `{}`))
	second := assistant(thinking("U", "c2ln"), call("Aaaaaaaa2", "t", `{}`))
	answered, answered2 := results(ok("Aaaaaaaa1", "r")), results(ok("Aaaaaaaa2", "r"))
	for _, tt := range []struct {
		name     string
		messages []message.Message
		want     int
	}{
		{"the whole cycle is ours", []message.Message{user("q"), turn, answered, second, answered2}, 2},
		{"an older cycle goes without", []message.Message{user("q"), turn, answered, assistant(text("done")), user("more"), second, answered2}, 1},
		{"a note of the runtime does not end the cycle", []message.Message{user("q"), turn, answered, control("note"), second, answered2}, 2},
		{"a word of the user among the results does not, either", []message.Message{user("q"), turn, answered, user("go on"), second, answered2}, 2},
		{"a foreign turn in the cycle", []message.Message{user("q"), foreign(turn), answered, second, answered2}, 0},
		{"all foreign", []message.Message{user("q"), foreign(turn), answered}, 0},
		{"a turn of unknown origin", []message.Message{user("q"), {Role: message.RoleAssistant, Blocks: turn.Blocks}, answered}, 0},
	} {
		got := messagesOf(t, testTarget(), tt.messages...)
		if n := strings.Count(got, `"type":"thinking"`); n != tt.want {
			t.Errorf("%s: %d thinking blocks, want %d: %s", tt.name, n, tt.want, got)
		}
		if strings.Contains(got, "toolu_") {
			t.Errorf("%s: a vendor id was sent: %s", tt.name, got)
		}
	}
	otherModel := testTarget()
	otherModel.Route.Model = "m2"
	if got := messagesOf(t, otherModel, user("q"), turn, answered); strings.Contains(got, "c2ln") || strings.Contains(got, `"T"`) {
		t.Errorf("the signature of another model was sent: %s", got)
	}
}

func TestHiddenThinkingIsReplayedWithItsEmptyText(t *testing.T) {
	got := messagesOf(t, testTarget(), user("q"), assistant(thinking("", "c2ln"), call("Aaaaaaaa1", "t", `{}`)), results(ok("Aaaaaaaa1", "r")))
	if !strings.Contains(got, `{"type":"thinking","thinking":"","signature":"c2ln"}`) {
		t.Errorf("got %s", got)
	}
}

func TestACredentialOfAnotherScopeIsNotSentInsideAnOwnTurn(t *testing.T) {
	b := thinking("T", "c2ln")
	b.Credentials[0].Scope.Route = "another"
	if got := messagesOf(t, testTarget(), user("q"), assistant(b, call("Aaaaaaaa1", "t", `{}`)), results(ok("Aaaaaaaa1", "r"))); strings.Contains(got, "c2ln") {
		t.Errorf("got %s", got)
	}
}

func TestThinkingWithoutASignatureIsNotSent(t *testing.T) {
	unsigned := message.Block{Kind: message.BlockThinking, Text: "cut off"}
	if got := messagesOf(t, testTarget(), user("q"), assistant(unsigned, text("a"))); strings.Contains(got, "cut off") {
		t.Errorf("got %s", got)
	}
}

func TestAThinkingBudgetIsLeftOutWhereTheAPIWouldRefuseIt(t *testing.T) {
	turn := assistant(thinking("T", "c2ln"), call("Aaaaaaaa1", "t", `{}`))
	answered := results(ok("Aaaaaaaa1", "r"))
	for _, tt := range []struct {
		name, thinking string
		messages       []message.Message
		want           bool
	}{
		{"a new question", `{"type":"enabled","budget_tokens":2000}`, []message.Message{user("q")}, true},
		{"our own cycle", `{"type":"enabled","budget_tokens":2000}`, []message.Message{user("q"), turn, answered}, true},
		{"a foreign cycle", `{"type":"enabled","budget_tokens":2000}`, []message.Message{user("q"), foreign(turn), answered}, false},
		{"a foreign cycle with a word of the user", `{"type":"enabled","budget_tokens":2000}`, []message.Message{user("q"), foreign(turn), answered, user("go on")}, false},
		{"a turn without thinking", `{"type":"enabled","budget_tokens":2000}`, []message.Message{user("q"), assistant(call("Aaaaaaaa1", "t", `{}`)), answered}, false},
		{"a foreign cycle with adaptive thinking", `{"type":"adaptive"}`, []message.Message{user("q"), foreign(turn), answered}, true},
		{"after the foreign cycle", `{"type":"enabled","budget_tokens":2000}`, []message.Message{user("q"), foreign(turn), answered, foreign(assistant(text("x"))), user("more")}, true},
	} {
		target := testTarget()
		target.Parameters = json.RawMessage(`{"temperature":1,"thinking":` + tt.thinking + `}`)
		body := render(t, target, provider.Request{Messages: tt.messages}).Body
		if got := fieldOf(t, body, "thinking") != ""; got != tt.want || fieldOf(t, body, "temperature") != "1" {
			t.Errorf("%s: thinking sent %v, want %v: %s", tt.name, got, tt.want, body)
		}
	}
}

func TestRolesAlternateAndNothingIsEmpty(t *testing.T) {
	got := messagesOf(t, testTarget(), user("a"), user("  "), user("b"), assistant(text(" \n"), message.Block{Kind: message.BlockThinking}), control("c"),
		assistant(text("d")), assistant(text("e")))
	want := `[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"},{"type":"text","text":"[Note from the runtime, not from the user]\nc"}]},` +
		`{"role":"assistant","content":[{"type":"text","text":"d"},{"type":"text","text":"e"}]}]`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestALastAssistantMessageEndsWithoutWhiteSpace(t *testing.T) {
	got := messagesOf(t, testTarget(), user("q"), assistant(text("to be continued \n")))
	if want := `{"role":"assistant","content":[{"type":"text","text":"to be continued"}]}`; !strings.Contains(got, want) {
		t.Errorf("got %s", got)
	}
}

func TestAResultTellsWhetherItIsAnError(t *testing.T) {
	for status, want := range map[message.ResultStatus]bool{message.ResultOK: false, message.ResultInDoubt: false, message.ResultError: true,
		message.ResultTimeout: true, message.ResultCancelled: true, message.ResultNotRun: true} {
		got := messagesOf(t, testTarget(), results(message.Result{CallID: "Aaaaaaaa1", Status: status, Text: "r"}))
		if strings.Contains(got, `"is_error":true`) != want {
			t.Errorf("%s: got %s", status, got)
		}
	}
}

func TestAnEmptyResultHasNoTextBlock(t *testing.T) {
	want := `[{"role":"user","content":[{"type":"tool_result","tool_use_id":"Aaaaaaaa1"}]}]`
	if diff := cmp.Diff(want, messagesOf(t, testTarget(), results(ok("Aaaaaaaa1", "\n")))); diff != "" {
		t.Error(diff)
	}
}

func TestAnErrorWithoutTextHasWords(t *testing.T) {
	want := `[{"role":"user","content":[{"type":"tool_result","tool_use_id":"Aaaaaaaa1","content":[{"type":"text","text":"(no output)"}],"is_error":true}]}]`
	if diff := cmp.Diff(want, messagesOf(t, testTarget(), results(message.Result{CallID: "Aaaaaaaa1", Status: message.ResultError}))); diff != "" {
		t.Error(diff)
	}
}

func TestAHistoryWithCallsAlwaysHasTools(t *testing.T) {
	req := provider.Request{Messages: []message.Message{user("q"), assistant(call("Aaaaaaaa1", "grep", `{}`), call("Aaaaaaaa2", "no.such tool", `{}`), call("Aaaaaaaa3", "grep", `{}`)),
		results(ok("Aaaaaaaa1", "r"), ok("Aaaaaaaa2", "r"), ok("Aaaaaaaa3", "r"))}}
	body := render(t, testTarget(), req).Body
	if got, want := fieldOf(t, body, "tools"), `[{"name":"grep","input_schema":{"type":"object"}},{"name":"no_such_tool","input_schema":{"type":"object"}}]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := fieldOf(t, body, "tool_choice"); got != `{"type":"none"}` {
		t.Errorf("got %s", got)
	}
	req.Tools = []provider.Tool{{Name: "grep"}}
	if got := fieldOf(t, render(t, testTarget(), req).Body, "tool_choice"); got != "" {
		t.Errorf("got %s", got)
	}
	req.ToolChoiceNone = true
	if got := fieldOf(t, render(t, testTarget(), req).Body, "tool_choice"); got != `{"type":"none"}` {
		t.Errorf("got %s", got)
	}
}

func TestAnOutputCapIsAlwaysSent(t *testing.T) {
	if got := fieldOf(t, render(t, testTarget(), provider.Request{}).Body, "max_tokens"); got != "4096" {
		t.Errorf("got %s", got)
	}
	target := testTarget()
	target.Parameters = json.RawMessage(`{"max_tokens":77}`)
	if got := fieldOf(t, render(t, target, provider.Request{}).Body, "max_tokens"); got != "77" {
		t.Errorf("got %s", got)
	}
}

func TestParametersMayNotReplaceTheRun(t *testing.T) {
	for _, bad := range []string{`{"messages":[]}`, `{"model":"m2"}`, `{"stream":false}`, `{"tools":[]}`, `{"system":"x"}`, `[]`, `{`} {
		target := testTarget()
		target.Parameters = json.RawMessage(bad)
		for _, messages := range [][]message.Message{nil, {user("q"), assistant(call("Aaaaaaaa1", "t", `{}`)), results(ok("Aaaaaaaa1", "r"))}} {
			_, err := Dialect{}.Render(target, provider.Request{Messages: messages})
			var cause *failure.Cause
			if !errors.As(err, &cause) || cause.Sub != failure.SubConfiguration {
				t.Errorf("parameters %s: got %v", bad, err)
			}
		}
	}
}

func TestArgumentsAreAnObject(t *testing.T) {
	for in, want := range map[string]string{`{"a":1}`: `{"a":1}`, ``: `{}`, `[1]`: `{}`, `{"a":`: `{}`, `{"a":"\ud800"}`: `{"a":"\ufffd"}`} {
		if got := messagesOf(t, testTarget(), assistant(call("Aaaaaaaa1", "t", in))); !strings.Contains(got, `"input":`+want+`}`) {
			t.Errorf("%s: got %s", in, got)
		}
	}
}

func TestImagesStandInMessagesAndResults(t *testing.T) {
	target := testTarget()
	pic := message.Media{MIMEType: "image/png", Data: []byte{1, 2, 3, 4}}
	shot := ok("Aaaaaaaa1", "taken")
	shot.Media = []message.Media{pic}
	m := message.Message{Role: message.RoleUser, Blocks: []message.Block{{Kind: message.BlockMedia, Media: &pic}}}
	if _, err := (Dialect{}).Render(target, provider.Request{Messages: []message.Message{m}}); err == nil {
		t.Error("an image was rendered for a leg without the capability")
	}
	if _, err := (Dialect{}).Render(target, provider.Request{Messages: []message.Message{results(shot)}}); err == nil {
		t.Error("an image in a result was rendered for a leg without the capability")
	}
	target.Images = true
	out := render(t, target, provider.Request{Messages: []message.Message{m, assistant(call("Aaaaaaaa1", "t", `{}`)), results(shot)}})
	const source = `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AQIDBA=="}}`
	want := `[{"role":"user","content":[` + source + `]},{"role":"assistant","content":[{"type":"tool_use","id":"Aaaaaaaa1","name":"t","input":{}}]},` +
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"Aaaaaaaa1","content":[{"type":"text","text":"taken"},` + source + `]}]}]`
	if diff := cmp.Diff(want, fieldOf(t, out.Body, "messages")); diff != "" {
		t.Error(diff)
	}
	if out.Media != 2 || out.MediaBytes != 16 {
		t.Errorf("media %d, %d bytes, want 2, 16", out.Media, out.MediaBytes)
	}
}

func TestALocalServerNeedsNoCredential(t *testing.T) {
	target := testTarget()
	target.Secret = ""
	if got := render(t, target, provider.Request{}); len(got.Headers) != 1 {
		t.Errorf("got %+v", got.Headers)
	}
}

func TestAnUnknownRoleIsRefused(t *testing.T) {
	if _, err := (Dialect{}).Render(testTarget(), provider.Request{Messages: []message.Message{{Role: "Ghost"}}}); err == nil {
		t.Error("rendered a message of an unknown role")
	}
}
