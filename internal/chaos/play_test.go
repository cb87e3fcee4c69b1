package chaos_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"belay.dev/belay/internal/chaos"
)

// steps are the steps used by the requests to a leg, in order.
func (r *rig) steps(leg string) []int {
	var steps []int
	for _, q := range r.server.Requests() {
		if q.Leg == leg {
			steps = append(steps, q.Step)
		}
	}
	return steps
}

func TestStepsAreUsedInOrderAndTheRestIsExhausted(t *testing.T) {
	r := newRig(t, `{legs: {a: {steps: [{status: 503, times: 2}, {answer: one}]}, b: {steps: [{status: 529, times: Forever}]}}}`)
	var statuses []int
	for range 4 {
		statuses = append(statuses, r.post("a", openAIHello).status)
	}
	if diff := cmp.Diff([]int{503, 503, 200, 500}, statuses); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{1, 1, 2, 0}, r.steps("a")); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	if got := r.post("a", openAIHello); !strings.Contains(got.body, `"code": "script_exhausted"`) {
		t.Errorf("an exhausted script answers %s", got.body)
	}
	for range 5 {
		if got := r.post("b", openAIHello); got.status != 529 {
			t.Errorf("a step that lasts forever answers %d", got.status)
		}
	}
}

func TestARejectedRequestUsesNoStep(t *testing.T) {
	r := newRig(t, `{legs: {a: {apiKey: right, steps: [{answer: one}]}}}`)
	missing := r.request("a", openAIHello)
	missing.Header.Del("Authorization")
	wrong := r.request("a", openAIHello)
	wrong.Header.Set("Authorization", "Bearer wrong")
	right := r.request("a", openAIHello)
	right.Header.Set("Authorization", "Bearer right")
	for _, c := range []struct {
		req    *http.Request
		status int
		says   string
	}{{missing, 401, "didn't provide"}, {wrong, 401, `"code": "invalid_api_key"`}, {right, 200, "one"}} {
		got, err := r.do(c.req)
		if err != nil || got.status != c.status || !strings.Contains(got.body, c.says) {
			t.Errorf("got %d %s, %v; want %d that says %s", got.status, got.body, err, c.status, c.says)
		}
	}
	if diff := cmp.Diff([]int{0, 0, 1}, r.steps("a")); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}

func TestHTTPMistakesAreAnsweredLikeTheRealAPIs(t *testing.T) {
	r := newRig(t, `{legs: {a: {steps: [{answer: x}]}, claude: {dialect: AnthropicMessages, apiKey: k, steps: [{answer: x}]}}}`)
	for _, c := range []struct {
		name   string
		leg    string
		change func(*http.Request)
		status int
		says   string
	}{
		{"an unknown leg", "nobody", func(*http.Request) {}, 404, `no leg "nobody"`},
		{"a path of the other dialect", "claude", func(q *http.Request) { q.URL.Path = "/claude/v1/chat/completions" }, 404, "not_found_error"},
		{"a base URL without its version", "a", func(q *http.Request) { q.URL.Path = "/a/chat/completions" }, 404, "Invalid URL"},
		{"a GET", "a", func(q *http.Request) { q.Method = "GET" }, 405, "Not allowed to GET"},
		{"a body that is a form", "a", func(q *http.Request) { q.Header.Set("Content-Type", "application/x-www-form-urlencoded") }, 400, "application/json"},
		{"no Anthropic version", "claude", func(q *http.Request) { q.Header.Del("Anthropic-Version"); q.Header.Set("X-Api-Key", "k") }, 400, "anthropic-version: header is required"},
		{"an invented Anthropic version", "claude", func(q *http.Request) {
			q.Header.Set("Anthropic-Version", "2031-01-01")
			q.Header.Set("X-Api-Key", "k")
		}, 400, "not a valid version"},
		{"a wrong Anthropic key", "claude", func(*http.Request) {}, 401, `"type":"authentication_error"`},
		{"a wrong bearer token at Anthropic", "claude", func(q *http.Request) { q.Header.Del("X-Api-Key"); q.Header.Set("Authorization", "Bearer w") }, 401, `"type":"authentication_error"`},
		{"no key at Anthropic", "claude", func(q *http.Request) { q.Header.Del("X-Api-Key") }, 401, `"type":"authentication_error"`},
		{"an Anthropic key at OpenAI", "a", func(q *http.Request) { q.Header.Del("Authorization"); q.Header.Set("X-Api-Key", "k") }, 401, "didn't provide"},
		{"a bearer token at Anthropic", "claude", func(q *http.Request) { q.Header.Del("X-Api-Key"); q.Header.Set("Authorization", "Bearer k") }, 200, "event: message_stop"},
	} {
		t.Run(c.name, func(t *testing.T) {
			body := openAIHello
			if c.leg == "claude" {
				body = claudeHello
			}
			req := r.request(c.leg, body)
			c.change(req)
			got, err := r.do(req)
			if err != nil || got.status != c.status || !strings.Contains(got.body, c.says) {
				t.Errorf("got %d %s, %v; want %d that says %s", got.status, got.body, err, c.status, c.says)
			}
		})
	}
}

func TestABodyOver32MBIsRefused(t *testing.T) {
	r := newRig(t, `{legs: {claude: {dialect: AnthropicMessages, steps: [{answer: x}]}}}`)
	got := r.post("claude", strings.Replace(claudeHello, "hi", strings.Repeat("x", 32<<20), 1))
	if got.status != 413 || !strings.Contains(got.body, "request_too_large") {
		t.Errorf("got %d %.200s", got.status, got.body)
	}
}

func TestAnExpectationThatFailsRefusesTheRequestAndKeepsTheStep(t *testing.T) {
	for _, c := range []struct {
		name, expect, says string
	}{
		{"met", `{lastContains: a.txt, lastOmits: b.txt, systemContains: work, contains: ["List the", a.txt], omits: [secret], tools: [shell], assistantTurns: 1, toolResults: [{call: 1, contains: a.txt, omits: b.txt}, {contains: a}]}`, ""},
		{"the last message", `{lastContains: b.txt}`, `the last message does not contain "b.txt"`},
		{"the last message's omission", `{lastOmits: a.txt}`, `the last message contains "a.txt"`},
		{"the system prompt", `{systemContains: rest}`, `the system prompt does not contain "rest"`},
		{"the conversation", `{contains: [gone]}`, `the conversation does not contain "gone"`},
		{"the conversation's omission", `{omits: ["List the"]}`, `the conversation contains "List the"`},
		{"the tools", `{tools: [grep]}`, `the tool "grep" is not declared`},
		{"the turns", `{assistantTurns: 0}`, "there are 1 assistant turns, not 0"},
		{"a result", `{toolResults: [{call: 1, contains: b.txt}]}`, `the result of tool call 1 does not contain "b.txt"`},
		{"a result's omission", `{toolResults: [{omits: a.txt}]}`, `the result of tool call 1 contains "a.txt"`},
		{"a call that is not there", `{toolResults: [{call: 2}]}`, "there is no tool call 2, only 1 calls"},
		{"two things", `{lastContains: b.txt, assistantTurns: 5}`, `"b.txt"; there are 1 assistant turns, not 5`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, `
legs:
  a: {steps: [{answer: one, expect: `+c.expect+`}]}
  claude: {dialect: AnthropicMessages, steps: [{answer: one, expect: `+c.expect+`}]}
`)
			for leg, body := range map[string]string{"a": encode(t, openAIConversation()), "claude": encode(t, claudeConversation())} {
				got := r.post(leg, body)
				if c.says == "" {
					if got.status != 200 {
						t.Errorf("leg %s refuses what was expected: %s", leg, got.body)
					}
					continue
				}
				q := r.last()
				if got.status != 400 || !strings.Contains(got.body, "expectation_failed") || q.Outcome != chaos.OutcomeRejected || q.Step != 1 {
					t.Errorf("leg %s answers %d %s and remembers %+v", leg, got.status, got.body, q)
				}
				if len(q.Problems) != 1 || !strings.HasSuffix(q.Problems[0], c.says) {
					t.Errorf("leg %s remembers %q; want …%s", leg, q.Problems, c.says)
				}
			}
		})
	}
}

func TestConcurrentRequestsNeverShareAStep(t *testing.T) {
	r := newRig(t, `{legs: {a: {steps: [{status: 503, times: 7}, {answer: one, times: 20}, {status: 418}, {answer: two, times: 12}]}}}`)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if _, err := r.do(r.request("a", openAIHello)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	used := map[int]int{}
	for _, step := range r.steps("a") {
		used[step]++
	}
	if diff := cmp.Diff(map[int]int{1: 7, 2: 20, 3: 1, 4: 12, 0: 10}, used); diff != "" {
		t.Errorf("uses by step (-want +got):\n%s", diff)
	}
	ids := map[string]bool{}
	for _, q := range r.server.Requests() {
		ids[fmt.Sprint(q.Sequence)] = true
	}
	if len(ids) != 50 {
		t.Errorf("50 requests have %d different sequence numbers", len(ids))
	}
}

func TestPerConversationEveryRunPlaysTheWholeScript(t *testing.T) {
	r := newRig(t, `
legs:
  a:
    advance: PerConversation
    steps:
    - {status: 503, times: 2}
    - {calls: [{name: shell, arguments: {cmd: one}}]}
    - {calls: [{name: shell, arguments: {cmd: more}}], times: 2}
    - {answer: partial, cutAfterEvents: 1}
    - {answer: done}
`)
	// Each run sends its own task, and after each call the conversation so far.
	var wg sync.WaitGroup
	for run := range 16 {
		wg.Go(func() {
			messages := []any{object{"role": "user", "content": fmt.Sprintf("task %d", run)}}
			body := func() string {
				return encode(t, object{"model": "m", "stream": true, "messages": messages, "tools": []any{openAITool("shell")}})
			}
			var seen []string
			for range 8 {
				got, err := r.do(r.request("a", body()))
				if err != nil {
					t.Error(err)
					return
				}
				switch {
				case got.status != 200:
					seen = append(seen, fmt.Sprint(got.status))
				case strings.Contains(got.body, `"tool_calls"`):
					id := fmt.Sprintf("call%d", len(messages))
					messages = append(messages, object{"role": "assistant", "tool_calls": []any{openAICall(id, "shell", "{}")}},
						object{"role": "tool", "tool_call_id": id, "content": fmt.Sprint(run)})
					seen = append(seen, "call")
				case strings.Contains(got.body, "done"):
					seen = append(seen, "done")
					messages = append(messages, object{"role": "assistant", "content": "done"}, object{"role": "user", "content": "go on"})
				default:
					seen = append(seen, "cut")
				}
			}
			if diff := cmp.Diff([]string{"503", "503", "call", "call", "call", "cut", "done", "500"}, seen); diff != "" {
				t.Errorf("run %d saw (-want +got):\n%s", run, diff)
			}
		})
	}
	wg.Wait()
}

func TestTheScriptOfALegIsSwappedWhileRunning(t *testing.T) {
	r := newRig(t, `{legs: {a: {steps: [{status: 503, times: Forever}]}, b: {steps: [{answer: one}, {status: 418}]}}}`)
	r.post("a", openAIHello)
	r.post("b", openAIHello)
	control := func(path, body string) (int, string) {
		resp, err := http.Post(r.http.URL+path, "application/yaml", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text)
	}
	if status, text := control("/_chaos/script", "legs:\n  a: {steps: [{anser: x}]}\n"); status != 400 || !strings.Contains(text, "anser") {
		t.Errorf("a bad script is answered %d %s", status, text)
	}
	if status, text := control("/_chaos/script", "legs: {a: {dialect: AnthropicMessages, steps: []}}"); status != 400 || !strings.Contains(text, "cannot be replaced") {
		t.Errorf("another dialect is answered %d %s", status, text)
	}
	if got := r.post("a", openAIHello); got.status != 503 {
		t.Errorf("a refused script changed the leg: %d", got.status)
	}
	if status, text := control("/_chaos/script", "legs: {a: {steps: [{answer: back}]}, c: {steps: [{answer: new}]}}"); status != 204 {
		t.Fatalf("a good script is answered %d %s", status, text)
	}
	for _, c := range []struct {
		leg    string
		status int
	}{{"a", 200}, {"a", 500}, {"b", 418}, {"c", 200}} {
		if got := r.post(c.leg, openAIHello); got.status != c.status {
			t.Errorf("leg %s answers %d, want %d", c.leg, got.status, c.status)
		}
	}
	if status, _ := control("/_chaos/reset", ""); status != 204 || len(r.server.Requests()) != 0 || len(r.server.Bill()) != 0 {
		t.Errorf("after the reset (%d) there are %d requests and bill %v", status, len(r.server.Requests()), r.server.Bill())
	}
	if got := r.post("b", openAIHello); got.status != 200 || r.last().Step != 1 {
		t.Errorf("after the reset leg b answers %d by step %d", got.status, r.last().Step)
	}
}

func TestTheListingsHoldFactsAndNoSecrets(t *testing.T) {
	r := newRig(t, `{legs: {a: {apiKey: sk-test, steps: [{answer: "a private answer", usage: {input: 10, output: 4, cached: 2}}]}}}`)
	r.post("a", strings.Replace(openAIHello, "hi", "a private prompt", 1))
	r.post("a", `{"model":"m1","messages":[]}`)
	var requests struct {
		Requests []struct {
			Sequence, Step, Status, Events, Messages int
			Leg, Outcome, BodySHA256, Time, Model    string
			Problems                                 []string
			Billed                                   chaos.Usage
		}
	}
	text := r.get("/_chaos/requests?leg=a")
	if err := json.Unmarshal([]byte(text), &requests); err != nil || len(requests.Requests) != 2 {
		t.Fatalf("%v: %s", err, text)
	}
	first, second := requests.Requests[0], requests.Requests[1]
	if first.Sequence != 1 || first.Step != 1 || first.Status != 200 || first.Outcome != "Completed" || first.Leg != "a" || first.Model != "m1" ||
		first.Messages != 1 || first.Time != "2026-03-01T12:00:00Z" || first.Billed != (chaos.Usage{Input: 10, Output: 4, Cached: 2}) {
		t.Errorf("the answered request is listed as %+v", first)
	}
	// printf '%s' '{"model":"m1","messages":[]}' | sha256sum
	if second.BodySHA256 != emptyMessagesSHA256 || second.Outcome != "Rejected" || second.Status != 400 || len(second.Problems) != 1 {
		t.Errorf("the refused request is listed as %+v", second)
	}
	bill := r.get("/_chaos/bill")
	for name, listing := range map[string]string{"requests": text, "bill": bill} {
		for _, secret := range []string{"sk-test", "private"} {
			if strings.Contains(listing, secret) {
				t.Errorf("the listing of %s holds %q:\n%s", name, secret, listing)
			}
		}
	}
	if got := r.get("/_chaos/requests?leg=b"); strings.TrimSpace(got) != "{\n  \"requests\": []\n}" {
		t.Errorf("another leg's listing is %s", got)
	}
}

func (r *rig) get(path string) string {
	r.t.Helper()
	resp, err := http.Get(r.http.URL + path)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		r.t.Fatalf("GET %s: %d, %v", path, resp.StatusCode, err)
	}
	return string(body)
}

// emptyMessagesSHA256 is the digest that sha256sum prints for the body.
const emptyMessagesSHA256 = "58a625bce92dd5e222080bf7c652ab28c0fb3c4f52d1810bec76a8929d01ff20"
