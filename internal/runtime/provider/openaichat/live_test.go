package openaichat_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"belay.dev/belay/internal/runtime/message"
	"belay.dev/belay/internal/runtime/provider"
	"belay.dev/belay/internal/runtime/provider/openaichat"
	"belay.dev/belay/internal/runtime/route"
)

func TestAnAnswerArrivesOverARealSocket(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte(`data: {"id":"c1","choices":[{"index":0,"delta":{"role":"assistant","content":"Hel"}}]}

data: {"id":"c1","choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":"stop"}]}

data: {"id":"c1","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}

data: [DONE]

`))
	}))
	defer server.Close()
	client := provider.NewClient(provider.Options{}, openaichat.Dialect{})
	defer client.Close()
	target := provider.Target{
		Leg:      "a",
		Route:    route.Route{BaseURL: server.URL + "/v1", Dialect: route.OpenAIChat, Model: "m1", SecretName: "s", SecretKey: "k"},
		Secret:   "key\n",
		Insecure: provider.InsecureLoopback,
		Timeouts: provider.DefaultTimeouts(),
	}
	prepared, err := client.Prepare(target, provider.Request{Messages: []message.Message{
		{Role: message.RoleUser, Blocks: []message.Block{{Kind: message.BlockText, Text: "Hi"}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	got := client.Do(t.Context(), target, prepared, provider.Try{Number: 1})
	if got.Failure != nil {
		t.Fatalf("failed: %+v", got.Failure)
	}
	want := &message.Message{Role: message.RoleAssistant, Stop: message.StopEnd,
		Origin: &message.Scope{Route: string(target.Route.Name()), Dialect: "OpenAIChat", Model: "m1"},
		Blocks: []message.Block{{Kind: message.BlockText, Text: "Hello"}}}
	if diff := cmp.Diff(want, got.Answer); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(provider.Usage{InputTokens: 5, OutputTokens: 2}, got.Usage); diff != "" {
		t.Error(diff)
	}
	if got.ResponseID != "c1" || got.BodySHA256 != prepared.SHA256 || got.FirstByte <= 0 || got.Duration < got.FirstByte {
		t.Errorf("got %+v", got)
	}
}
