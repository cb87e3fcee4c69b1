package provider_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"

	"belay.dev/belay/internal/chaos"
	"belay.dev/belay/internal/runtime/message"
	"belay.dev/belay/internal/runtime/provider"
	"belay.dev/belay/internal/runtime/provider/anthropic"
	"belay.dev/belay/internal/runtime/provider/openaichat"
	"belay.dev/belay/internal/runtime/route"
)

// strictLegs are strict fakes, which refuse what the real servers refuse, sign their thinking, and take back no
// signature but their own. Each answers every request with two calls.
const strictLegs = `
legs:
  openai:    {vendor: OpenAI, model: gpt, steps: [{text: "I look.", calls: [{name: grep, arguments: {q: x}}, {name: read}], times: Forever}]}
  compat:    {vendor: Compatible, model: open, steps: [{thinking: "Let me see.", calls: [{name: grep, arguments: {q: x}}, {name: read}], times: Forever}]}
  mistral:   {vendor: Mistral, model: mistral-large, steps: [{text: "I look.", calls: [{name: grep, arguments: {q: x}}, {name: read}], times: Forever}]}
  deepseek:  {vendor: DeepSeek, model: deepseek, steps: [{thinking: "Let me see.", calls: [{name: grep, arguments: {q: x}}, {name: read}], times: Forever}]}
  anthropic: {dialect: AnthropicMessages, model: claude, steps: [{thinking: "Let me see.", redactedThinking: "hidden", text: "I look.", calls: [{name: grep, arguments: {q: x}}, {name: no.such, arguments: {}}], times: Forever}]}
  other:     {dialect: AnthropicMessages, model: claude, steps: [{thinking: "Hm.", calls: [{name: grep, arguments: {q: x}}], times: Forever}]}
`

func strictTargets(url string) []provider.Target {
	leg := func(name, path, model string, dialect route.Dialect, reasoning provider.ReasoningReplay, parameters string) provider.Target {
		target := targetAt(url + "/" + name + path)
		target.Leg, target.Route.Model, target.Route.Dialect = name, model, dialect
		target.Reasoning, target.Parameters, target.MaxOutputTokens = reasoning, json.RawMessage(parameters), 4096
		target.Images = true
		return target
	}
	const budget = `{"thinking":{"type":"enabled","budget_tokens":1024}}`
	return []provider.Target{
		leg("openai", "/v1", "gpt", route.OpenAIChat, "", ""),
		leg("compat", "/v1", "open", route.OpenAIChat, provider.ReasoningReplayed, ""),
		leg("mistral", "/v1", "mistral-large", route.OpenAIChat, "", ""),
		leg("deepseek", "/v1", "deepseek", route.OpenAIChat, provider.ReasoningPlaceholder, ""),
		leg("anthropic", "", "claude", route.AnthropicMessages, "", budget),
		leg("other", "", "claude", route.AnthropicMessages, "", budget),
	}
}

// answerCalls mints the ids of a turn's calls and returns what follows it: a result for each call, and by chance a note
// of the runtime or a word of the user.
func answerCalls(rng *rand.Rand, turn int, answer *message.Message) []message.Message {
	outcomes := []message.ResultStatus{message.ResultOK, message.ResultError, message.ResultInDoubt, message.ResultNotRun}
	results := message.Message{Role: message.RoleTool}
	index := 0
	for i := range answer.Blocks {
		c := answer.Blocks[i].Call
		if c == nil {
			continue
		}
		c.ID = message.CallID("run", turn, index, 0)
		index++
		result := &message.Result{CallID: c.ID, Name: c.Name, Status: outcomes[rng.IntN(len(outcomes))], Text: []string{"found", "", "a\xffb"}[rng.IntN(3)]}
		if rng.IntN(4) == 0 {
			result.Media = []message.Media{{MIMEType: "image/png", Data: tinyPNG}}
		}
		results.Blocks = append(results.Blocks, message.Block{Kind: message.BlockResult, Result: result})
	}
	follow := []message.Message{*answer, results}
	switch rng.IntN(4) {
	case 0:
		follow = append(follow, message.Message{Role: message.RoleControl, Blocks: []message.Block{{Kind: message.BlockText, Text: "Mind the schema."}}})
	case 1:
		follow = append(follow, userMessage("Go on."))
	}
	return follow
}

// tinyPNG is the smallest picture: one pixel.
var tinyPNG = []byte{0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n', 0, 0, 0, 13, 'I', 'H', 'D', 'R', 0, 0, 0, 1, 0, 0, 0, 1, 8, 6, 0, 0, 0, 0x1f, 0x15, 0xc4, 0x89}

// refusals keeps the body of the last error, which the client does not.
type refusals struct {
	handler http.Handler
	last    string
}

func (r *refusals) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	r.handler.ServeHTTP(&refusalWriter{ResponseWriter: w, r: r}, request)
}

type refusalWriter struct {
	http.ResponseWriter
	r       *refusals
	refused bool
}

func (w *refusalWriter) WriteHeader(status int) {
	w.refused = status >= 400
	w.ResponseWriter.WriteHeader(status)
}

func (w *refusalWriter) Write(p []byte) (int, error) {
	if w.refused {
		w.r.last = string(p)
	}
	return w.ResponseWriter.Write(p)
}

func (w *refusalWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func TestAnyConversationMayMoveBetweenAnyLegs(t *testing.T) {
	script, err := chaos.ParseScript([]byte(strictLegs))
	if err != nil {
		t.Fatal(err)
	}
	fakes := chaos.NewServer(script, chaos.Options{Seed: 1})
	refusal := &refusals{handler: fakes.Handler()}
	server := httptest.NewServer(refusal)
	defer server.Close()
	client := provider.NewClient(provider.Options{}, openaichat.Dialect{}, anthropic.Dialect{})
	defer client.Close()
	targets := strictTargets(server.URL)
	tools := []provider.Tool{{Name: "grep", Description: "Search.", InputSchema: json.RawMessage(`{"type":"object","properties":{"q":{"type":"string"}}}`)}, {Name: "read"}}
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 0))
		messages := []message.Message{userMessage("Find x.")}
		path := ""
		for turn := range 8 {
			target := targets[rng.IntN(len(targets))]
			path += fmt.Sprintf(" %s", target.Leg)
			prepared, err := client.Prepare(target, provider.Request{System: "Be careful.", Messages: messages, Tools: tools})
			if err != nil {
				t.Fatalf("seed %d,%s: %v", seed, path, err)
			}
			got := client.Do(t.Context(), target, prepared, provider.Try{Number: 1})
			if got.Failure != nil {
				t.Fatalf("seed %d,%s: %+v\n%s", seed, path, got.Failure, refusal.last)
			}
			messages = append(messages, answerCalls(rng, turn, got.Answer)...)
		}
	}
}
