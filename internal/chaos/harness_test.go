package chaos_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"belay.dev/belay/internal/chaos"
)

// start is the time at which the servers of these tests stand still.
var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const startUnix = "1772366400"

func parse(t *testing.T, yaml string) *chaos.Script {
	t.Helper()
	script, err := chaos.ParseScript([]byte(yaml))
	if err != nil {
		t.Fatalf("the script does not parse: %v", err)
	}
	return script
}

// rig is a server on a real socket and a client of it.
type rig struct {
	t      *testing.T
	server *chaos.Server
	http   *httptest.Server
}

func newRig(t *testing.T, yaml string) *rig {
	t.Helper()
	server := chaos.NewServer(parse(t, yaml), chaos.Options{Seed: 7, Clock: clocktesting.NewFakeClock(start)})
	hs := httptest.NewServer(server.Handler())
	t.Cleanup(func() {
		if err := server.Shutdown(t.Context()); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		hs.Close()
	})
	return &rig{t: t, server: server, http: hs}
}

// reply is an answer read to its end.
type reply struct {
	status  int
	header  http.Header
	body    string
	readErr error
}

// request builds a request that both dialects' servers accept the headers of.
func (r *rig) request(leg, body string) *http.Request {
	r.t.Helper()
	path := "/v1/chat/completions"
	if strings.HasPrefix(leg, "claude") {
		path = "/v1/messages"
	}
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.http.URL+"/"+leg+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if path == "/v1/messages" {
		req.Header.Set("X-Api-Key", "sk-test")
		req.Header.Set("Anthropic-Version", "2023-06-01")
	} else {
		req.Header.Set("Authorization", "Bearer sk-test")
	}
	return req
}

func (r *rig) do(req *http.Request) (reply, error) {
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return reply{}, err
	}
	body, readErr := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	return reply{resp.StatusCode, resp.Header, string(body), readErr}, nil
}

func (r *rig) post(leg, body string) reply {
	r.t.Helper()
	got, err := r.do(r.request(leg, body))
	if err != nil {
		r.t.Fatalf("POST to leg %s: %v", leg, err)
	}
	return got
}

// last is the newest remembered request.
func (r *rig) last() chaos.Request {
	r.t.Helper()
	requests := r.server.Requests()
	if len(requests) == 0 {
		r.t.Fatal("no request is remembered")
	}
	return requests[len(requests)-1]
}

// object is a JSON object under construction.
type object = map[string]any

func encode(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// openAIHello is the smallest valid request of the OpenAIChat dialect.
const openAIHello = `{"model":"m1","stream":true,"messages":[{"role":"user","content":"hi"}]}`

// claudeHello is the smallest valid request of the AnthropicMessages dialect.
const claudeHello = `{"model":"c1","max_tokens":4096,"stream":true,"messages":[{"role":"user","content":"hi"}]}`
