package openaichat

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/message"
	"belay.dev/belay/internal/runtime/provider"
	"belay.dev/belay/internal/runtime/route"
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

func callOf(id, name, arguments string) message.Block {
	return message.Block{Kind: message.BlockCall, Call: &message.Call{ID: id, Name: name, Arguments: json.RawMessage(arguments)},
		Credentials: []message.Credential{{Scope: testScope, Kind: "callID", Data: []byte("vendor-" + id)}}}
}

func results(rs ...message.Result) message.Message {
	m := message.Message{Role: message.RoleTool}
	for i := range rs {
		m.Blocks = append(m.Blocks, message.Block{Kind: message.BlockResult, Result: &rs[i]})
	}
	return m
}

func TestAConversationIsRendered(t *testing.T) {
	target := testTarget()
	target.MaxOutputTokens = 1000
	got := render(t, target, provider.Request{
		System: "Be <brief> & kind.",
		Messages: []message.Message{
			user("Find x."),
			assistant(thinking("reasoning_content", "secret thoughts"), text("Looking. "), text("Now."),
				callOf("Aaaaaaaa1", "grep", `{"q":"x"}`), callOf("Aaaaaaaa2", "read", `{"path":"a"}`)),
			results(message.Result{CallID: "Aaaaaaaa1", Name: "grep", Status: message.ResultOK, Text: "a:1"},
				message.Result{CallID: "Aaaaaaaa2", Name: "read", Status: message.ResultError, Text: "no such file"}),
			control("The file a is gone."),
			user("Go on."),
			assistant(text("It is in line 1.")),
		},
		Tools: []provider.Tool{
			{Name: "grep", Description: "Search.", InputSchema: json.RawMessage(`{"type":"object","properties":{"q":{"type":"string"}}}`)},
			{Name: "now"},
		},
	})
	want := `{"model":"m1","messages":[` +
		`{"role":"system","content":"Be <brief> & kind."},` +
		`{"role":"user","content":"Find x."},` +
		`{"role":"assistant","content":"Looking. Now.","tool_calls":[` +
		`{"id":"Aaaaaaaa1","type":"function","function":{"name":"grep","arguments":"{\"q\":\"x\"}"}},` +
		`{"id":"Aaaaaaaa2","type":"function","function":{"name":"read","arguments":"{\"path\":\"a\"}"}}]},` +
		`{"role":"tool","content":"a:1","tool_call_id":"Aaaaaaaa1"},` +
		`{"role":"tool","content":"no such file","tool_call_id":"Aaaaaaaa2"},` +
		`{"role":"user","content":"[Note from the runtime, not from the user]\nThe file a is gone.\n\nGo on."},` +
		`{"role":"assistant","content":"It is in line 1."}],` +
		`"tools":[{"type":"function","function":{"name":"grep","description":"Search.","parameters":{"type":"object","properties":{"q":{"type":"string"}}}}},` +
		`{"type":"function","function":{"name":"now","parameters":{"type":"object"}}}],` +
		`"max_tokens":1000,"stream":true,"stream_options":{"include_usage":true}}`
	if diff := cmp.Diff(want, string(got.Body)); diff != "" {
		t.Error(diff)
	}
	if got.Path != "/chat/completions" {
		t.Errorf("path %q", got.Path)
	}
	if diff := cmp.Diff([]provider.Header{{Name: "Authorization", Value: "Bearer key"}}, got.Headers); diff != "" {
		t.Error(diff)
	}
}

func TestRenderingIsPure(t *testing.T) {
	target := testTarget()
	target.Parameters = json.RawMessage(`{"z":1,"a":2,"temperature":0.5,"m":[3]}`)
	req := provider.Request{Messages: []message.Message{user("a"), user("b"), control("c")}}
	before, _ := json.Marshal(req)
	first := render(t, target, req)
	for range 20 {
		if again := render(t, target, req); string(again.Body) != string(first.Body) {
			t.Fatalf("two renderings differ:\n%s\n%s", first.Body, again.Body)
		}
	}
	if after, _ := json.Marshal(req); string(after) != string(before) {
		t.Error("rendering changed the request")
	}
	if !strings.HasSuffix(string(first.Body), `"a":2,"m":[3],"temperature":0.5,"z":1}`) {
		t.Errorf("got %s", first.Body)
	}
}

// fieldOf returns one field of a body as it stands there.
func fieldOf(t *testing.T, body []byte, name string) string {
	t.Helper()
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		t.Fatal(err)
	}
	return string(fields[name])
}

func TestTheOutputCapHasTheNameThatTheHostKnows(t *testing.T) {
	for _, tt := range []struct {
		baseURL, parameters string
		cap                 int64
		old, new            string
	}{
		{"https://llm.example/v1", ``, 10, "10", ""},
		{"https://api.openai.com/v1", ``, 10, "", "10"},
		{"https://x.openai.azure.com/openai/v1", ``, 10, "", "10"},
		{"https://llm.example/v1", ``, 0, "", ""},
		{"https://llm.example/v1", `{"max_completion_tokens":7}`, 10, "", "7"},
		{"https://api.openai.com/v1", `{"max_tokens":7}`, 10, "7", ""},
		{"https://llm.example/v1", `{"max_tokens":null}`, 10, "", ""},
	} {
		target := testTarget()
		target.Route = route.Route{BaseURL: tt.baseURL, Dialect: route.OpenAIChat, Model: "m1"}
		target.MaxOutputTokens, target.Parameters = tt.cap, json.RawMessage(tt.parameters)
		body := render(t, target, provider.Request{Messages: []message.Message{user("x")}}).Body
		if fieldOf(t, body, "max_tokens") != tt.old || fieldOf(t, body, "max_completion_tokens") != tt.new {
			t.Errorf("%+v: got %s", tt, body)
		}
	}
}

func TestParametersOverrideWhatIsNotTheRuns(t *testing.T) {
	target := testTarget()
	target.Parameters = json.RawMessage(` {"temperature": 0.2, "stream_options": null, "tool_choice": "required"} `)
	body := render(t, target, provider.Request{Messages: []message.Message{user("x")}, Tools: []provider.Tool{{Name: "t"}}}).Body
	if fieldOf(t, body, "temperature") != "0.2" || fieldOf(t, body, "stream_options") != "" || fieldOf(t, body, "tool_choice") != `"required"` {
		t.Errorf("got %s", body)
	}
	for _, bad := range []string{`{"messages":[]}`, `{"model":"m2"}`, `{"stream":false}`, `{"tools":[]}`, `{"n":2}`, `[]`, `"x"`, `{`} {
		target.Parameters = json.RawMessage(bad)
		_, err := Dialect{}.Render(target, provider.Request{})
		var cause *failure.Cause
		if !errors.As(err, &cause) || cause.Sub != failure.SubConfiguration {
			t.Errorf("parameters %s: got %v", bad, err)
		}
	}
}

func TestCallsCanBeForbidden(t *testing.T) {
	req := provider.Request{Messages: []message.Message{user("x")}, ToolChoiceNone: true}
	if body := render(t, testTarget(), req).Body; fieldOf(t, body, "tool_choice") != "" {
		t.Errorf("a choice without tools: %s", body)
	}
	req.Tools = []provider.Tool{{Name: "t"}}
	if body := render(t, testTarget(), req).Body; fieldOf(t, body, "tool_choice") != `"none"` {
		t.Errorf("got %s", body)
	}
}

// messageOf renders one message and returns it as it stands in the body.
func messageOf(t *testing.T, target provider.Target, m message.Message) string {
	t.Helper()
	list := fieldOf(t, render(t, target, provider.Request{Messages: []message.Message{m}}).Body, "messages")
	return strings.TrimSuffix(strings.TrimPrefix(list, "["), "]")
}

func TestArgumentsAlwaysParse(t *testing.T) {
	for in, want := range map[string]string{
		`{"a":1}`:                      `{\"a\":1}`,
		``:                             `{}`,
		`[1]`:                          `{}`,
		`{"a":`:                        `{}`,
		`{"a":"\ud800"}`:               `{\"a\":\"\\ufffd\"}`,
		`{"a":"\ud83d\ude00 \\ud800"}`: `{\"a\":\"\\ud83d\\ude00 \\\\ud800\"}`,
		`{"a":"\ude00\ud83d"}`:         `{\"a\":\"\\ufffd\\ufffd\"}`,
		`{"a":"\uD83D\uD83D\uDE00"}`:   `{\"a\":\"\\ufffd\\uD83D\\uDE00\"}`,
	} {
		b := callOf("Aaaaaaaa1", "t", in)
		want := `{"role":"assistant","content":null,"tool_calls":[{"id":"Aaaaaaaa1","type":"function","function":{"name":"t","arguments":"` + want + `"}}]}`
		if got := messageOf(t, testTarget(), assistant(b)); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", in, got, want)
		}
	}
}

func TestNamesThatNoVendorTakesAreMadeHarmless(t *testing.T) {
	for in, want := range map[string]string{"files__put": "files__put", "a.b/c d": "a_b_c_d", "": "unnamed", "ü": "__",
		strings.Repeat("n", 70): strings.Repeat("n", 64)} {
		if got := messageOf(t, testTarget(), assistant(callOf("Aaaaaaaa1", in, `{}`))); !strings.Contains(got, `"name":"`+want+`"`) {
			t.Errorf("%q: got %s", in, got)
		}
	}
}

func TestReasoningGoesBackToItsIssuerOnlyIfTheLegWantsIt(t *testing.T) {
	foreign := message.Scope{Route: "other", Dialect: "OpenAIChat", Model: "m1"}
	own := assistant(thinking("reasoning_content", "T"), callOf("Aaaaaaaa1", "t", `{}`))
	ownOther := assistant(thinking("reasoning", "T"), text("x"))
	elsewhere := own
	elsewhere.Origin = &foreign
	const calls = `"tool_calls":[{"id":"Aaaaaaaa1","type":"function","function":{"name":"t","arguments":"{}"}}]}`
	for _, tt := range []struct {
		name   string
		policy provider.ReasoningReplay
		m      message.Message
		want   string
	}{
		{"dropped by default", "", own, `{"role":"assistant","content":null,` + calls},
		{"dropped", provider.ReasoningDrop, own, `{"role":"assistant","content":null,` + calls},
		{"replayed", provider.ReasoningReplayed, own, `{"role":"assistant","content":null,"reasoning_content":"T",` + calls},
		{"replayed in its own field", provider.ReasoningReplayed, ownOther, `{"role":"assistant","content":"x","reasoning":"T"}`},
		{"not replayed elsewhere", provider.ReasoningReplayed, elsewhere, `{"role":"assistant","content":null,` + calls},
		{"a placeholder elsewhere", provider.ReasoningPlaceholder, elsewhere, `{"role":"assistant","content":null,"reasoning_content":"",` + calls},
		{"the own text with placeholders", provider.ReasoningPlaceholder, own, `{"role":"assistant","content":null,"reasoning_content":"T",` + calls},
	} {
		target := testTarget()
		target.Reasoning = tt.policy
		if diff := cmp.Diff(tt.want, messageOf(t, target, tt.m)); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}

func TestNoCredentialIsSentToAnybodyElse(t *testing.T) {
	target := testTarget()
	target.Reasoning = provider.ReasoningReplayed
	target.Route.Model = "m2"
	got := messageOf(t, target, assistant(thinking("reasoning_content", "private"), callOf("Aaaaaaaa1", "t", `{}`)))
	if strings.Contains(got, "private") || strings.Contains(got, "vendor-") {
		t.Errorf("got %s", got)
	}
}

func image() message.Media {
	return message.Media{MIMEType: "image/png", Blob: message.Blob{SHA256: "ab12", Size: 3}, Data: []byte{1, 2, 3}}
}

func TestImagesAreSentToLegsThatTakeThem(t *testing.T) {
	target := testTarget()
	target.Images = true
	pic := image()
	m := message.Message{Role: message.RoleUser, Blocks: []message.Block{text("What is this?"), {Kind: message.BlockMedia, Media: &pic}}}
	want := `{"role":"user","content":[{"type":"text","text":"What is this?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AQID"}}]}`
	if diff := cmp.Diff(want, messageOf(t, target, m)); diff != "" {
		t.Error(diff)
	}
	out := render(t, target, provider.Request{Messages: []message.Message{m}})
	if out.Media != 1 || out.MediaBytes != 4 {
		t.Errorf("media %d, %d bytes", out.Media, out.MediaBytes)
	}
	result := results(message.Result{CallID: "Aaaaaaaa1", Name: "shot", Text: "taken", Media: []message.Media{image()}})
	want = `{"role":"tool","content":"taken","tool_call_id":"Aaaaaaaa1"},` +
		`{"role":"user","content":[{"type":"text","text":"[Note from the runtime, not from the user]\nImage from the result of shot:"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AQID"}}]}`
	if diff := cmp.Diff(want, messageOf(t, target, result)); diff != "" {
		t.Error(diff)
	}
}

func TestMediaThatCannotBeSentIsRefusedBeforeTheSend(t *testing.T) {
	unloaded, sound, none := image(), image(), testTarget()
	unloaded.Data = nil
	sound.MIMEType = "audio/wav"
	capable := testTarget()
	capable.Images = true
	pic := image()
	for _, tt := range []struct {
		name   string
		target provider.Target
		media  *message.Media
		says   string
	}{
		{"no capability", none, &pic, "image capability"},
		{"not loaded", capable, &unloaded, "ab12"},
		{"no image", capable, &sound, "audio/wav"},
		{"nothing", capable, nil, "empty"},
	} {
		_, err := Dialect{}.Render(tt.target, provider.Request{Messages: []message.Message{
			{Role: message.RoleUser, Blocks: []message.Block{{Kind: message.BlockMedia, Media: tt.media}}}}})
		var cause *failure.Cause
		if !errors.As(err, &cause) || cause.Kind != failure.InvalidRequest || !strings.Contains(cause.Message, tt.says) {
			t.Errorf("%s: got %v", tt.name, err)
		}
	}
}

func TestMistralModelsHearTheAssistantBetweenAToolAndAUser(t *testing.T) {
	messages := []message.Message{user("q"), assistant(callOf("Aaaaaaaa1", "t", `{}`)), results(message.Result{CallID: "Aaaaaaaa1", Text: "r"}), control("note")}
	for model, want := range map[string]int{"m1": 0, "mistral-large-latest": 1, "mistralai/Devstral-Small": 1} {
		target := testTarget()
		target.Route.Model = model
		body := render(t, target, provider.Request{Messages: messages}).Body
		if got := strings.Count(string(body), `{"role":"assistant","content":"Noted."},{"role":"user"`); got != want {
			t.Errorf("%s: got %s", model, body)
		}
	}
}

func TestAnAssistantMessageIsNeverWithoutContentAndCalls(t *testing.T) {
	if got, want := messageOf(t, testTarget(), assistant(thinking("", "only thoughts"))), `{"role":"assistant","content":""}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestALocalServerNeedsNoCredential(t *testing.T) {
	target := testTarget()
	target.Secret = ""
	if got := render(t, target, provider.Request{}); len(got.Headers) != 0 {
		t.Errorf("got %+v", got.Headers)
	}
}

func TestInvalidUTF8IsReplaced(t *testing.T) {
	if got, want := messageOf(t, testTarget(), user("a\xff\xfeb")), "{\"role\":\"user\",\"content\":\"a\\ufffd\\ufffdb\"}"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAnUnknownRoleIsRefused(t *testing.T) {
	if _, err := (Dialect{}).Render(testTarget(), provider.Request{Messages: []message.Message{{Role: "Ghost"}}}); err == nil {
		t.Error("rendered a message of an unknown role")
	}
}
