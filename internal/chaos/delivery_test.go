package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"belay.dev/belay/internal/chaos"
)

// The whole stream of `answer: "one two three"`: role, three words, stop and [DONE] are six events.
const sixEvents = `answer: "one two three", usage: {input: 100, output: 13, cached: 40}`

func TestAStreamIsCutWhereAndHowTheScriptSays(t *testing.T) {
	for _, c := range []struct {
		cut     string
		readErr error
	}{
		{"Close", nil},
		{"Abort", io.ErrUnexpectedEOF},
		{"Reset", syscall.ECONNRESET},
	} {
		t.Run(c.cut, func(t *testing.T) {
			whole := newRig(t, `{legs: {a: {steps: [{`+sixEvents+`}]}}}`).post("a", openAIHello).body
			events := strings.SplitAfter(whole, "\n\n")
			for n := range 7 {
				r := newRig(t, fmt.Sprintf(`{legs: {a: {steps: [{%s, cutAfterEvents: %d, cut: %s}]}}}`, sixEvents, n, c.cut))
				got, err := r.do(r.request("a", openAIHello))
				if err != nil {
					// A reset can outrun the headers.
					if c.cut == "Reset" && errors.Is(err, syscall.ECONNRESET) {
						continue
					}
					t.Fatalf("after %d events: %v", n, err)
				}
				if !errors.Is(got.readErr, c.readErr) {
					t.Errorf("after %d events reading ends with %v, want %v", n, got.readErr, c.readErr)
				}
				want := strings.Join(events[:n], "")
				if c.cut == "Reset" && !strings.HasPrefix(want, got.body) || c.cut != "Reset" && got.body != want {
					t.Errorf("after %d events the body is %q", n, got.body)
				}
				if q := r.last(); q.Outcome != chaos.OutcomeCut || q.Events != n {
					t.Errorf("after %d events the request is remembered as %+v", n, q)
				}
			}
		})
	}
}

func TestAStreamIsCutAfterAnyNumberOfBytes(t *testing.T) {
	for leg, dialect := range map[string]string{"a": "OpenAIChat", "claude": "AnthropicMessages"} {
		body := map[string]string{"a": openAIHello, "claude": claudeHello}[leg]
		script := `{legs: {` + leg + `: {dialect: ` + dialect + `, steps: [{` + sixEvents + `, comments: 1, chunkSize: 5%s}]}}}`
		whole := newRig(t, fmt.Sprintf(script, "")).post(leg, body).body
		for n := 0; n <= len(whole); n += 37 {
			r := newRig(t, fmt.Sprintf(script, fmt.Sprintf(", cutAfterBytes: %d", n)))
			if got := r.post(leg, body); got.body != whole[:n] || got.readErr != nil || r.last().Outcome != chaos.OutcomeCut {
				t.Fatalf("%s cut after %d bytes ends with %v, outcome %s: %q", leg, n, got.readErr, r.last().Outcome, got.body)
			}
		}
		r := newRig(t, fmt.Sprintf(script, fmt.Sprintf(", cutAfterBytes: %d", len(whole)+1)))
		if got := r.post(leg, body); got.body != whole || r.last().Outcome != chaos.OutcomeCompleted {
			t.Errorf("%s with a cut behind its end has outcome %s", leg, r.last().Outcome)
		}
	}
}

func TestTheBillIsThatOfWhatWasGenerated(t *testing.T) {
	// "one two three" is 13 bytes for 13 tokens: "one" is 3, "one two" is 7.
	for _, c := range []struct {
		step    string
		outcome chaos.Outcome
		want    chaos.Usage
	}{
		{sixEvents, chaos.OutcomeCompleted, chaos.Usage{Input: 100, Output: 13, Cached: 40}},
		{sixEvents + `, cutAfterEvents: 0`, chaos.OutcomeCut, chaos.Usage{}},
		{sixEvents + `, cutAfterEvents: 1`, chaos.OutcomeCut, chaos.Usage{Input: 100, Output: 0, Cached: 40}},
		{sixEvents + `, cutAfterEvents: 2`, chaos.OutcomeCut, chaos.Usage{Input: 100, Output: 3, Cached: 40}},
		{sixEvents + `, cutAfterEvents: 3`, chaos.OutcomeCut, chaos.Usage{Input: 100, Output: 7, Cached: 40}},
		{sixEvents + `, cutAfterEvents: 4`, chaos.OutcomeCut, chaos.Usage{Input: 100, Output: 13, Cached: 40}},
		{sixEvents + `, inBandError: {afterEvents: 3}`, chaos.OutcomeInBandError, chaos.Usage{Input: 100, Output: 7, Cached: 40}},
		{sixEvents + `, cutAfterEvents: 3, billing: {input: 1, output: 2}`, chaos.OutcomeCut, chaos.Usage{Input: 1, Output: 2}},
		{`answer: "one two three", cutAfterEvents: 3, usage: {input: 100, output: 3}`, chaos.OutcomeCut, chaos.Usage{Input: 100, Output: 2}}, // 3·7/13, rounded up
		{`answer: "12345678 0", usage: null`, chaos.OutcomeCompleted, chaos.Usage{Input: 18, Output: 3}},                                     // 72 and 10 bytes
		{`status: 503`, chaos.OutcomeStatus, chaos.Usage{}},
		{`status: 503, billing: {input: 5, output: 0}`, chaos.OutcomeStatus, chaos.Usage{Input: 5}},
	} {
		t.Run(c.step, func(t *testing.T) {
			r := newRig(t, `{legs: {a: {steps: [{`+c.step+`, times: 3}]}}}`)
			for range 3 {
				r.post("a", openAIHello)
			}
			if q := r.last(); q.Outcome != c.outcome || q.Billed != c.want {
				t.Errorf("outcome %s, billed %+v; want %s, %+v", q.Outcome, q.Billed, c.outcome, c.want)
			}
			three := chaos.Usage{Input: 3 * c.want.Input, Output: 3 * c.want.Output, Cached: 3 * c.want.Cached}
			want := chaos.Bill{Requests: 3, Usage: three, Discarded: three}
			if c.outcome == chaos.OutcomeCompleted {
				want = chaos.Bill{Requests: 3, Completed: 3, Usage: three}
			}
			if diff := cmp.Diff(map[string]chaos.Bill{"a": want}, r.server.Bill()); diff != "" {
				t.Errorf("bill (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhoeverHasTheLastByteFindsTheRequestSettled(t *testing.T) {
	r := newRig(t, `{legs: {a: {steps: [{answer: x, hangAfterTerminal: true, times: Forever}]}}}`)
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		resp, err := http.DefaultClient.Do(r.request("a", openAIHello).WithContext(ctx))
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		buffer := make([]byte, 4096)
		for !strings.Contains(text.String(), "[DONE]") {
			n, err := resp.Body.Read(buffer)
			text.Write(buffer[:n])
			if err != nil {
				t.Fatalf("the stream ended before its terminal event: %v", err)
			}
		}
		if q := r.last(); q.Outcome != chaos.OutcomeCompleted {
			t.Errorf("behind [DONE] the request is remembered as %s", q.Outcome)
		}
		cancel()
		_ = resp.Body.Close()
	}
}

func TestAResetGivesNoAnswerAtAll(t *testing.T) {
	r := newRig(t, `{legs: {a: {steps: [{reset: {}}]}}}`)
	_, err := r.do(r.request("a", openAIHello))
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want a connection reset", err)
	}
	if q := r.last(); q.Outcome != chaos.OutcomeReset || q.Status != 0 || q.Step != 1 {
		t.Errorf("the request is remembered as %+v", q)
	}
}

func TestStatusesAreSentAsScripted(t *testing.T) {
	for _, c := range []struct {
		name, leg, step string
		status          int
		headers         map[string]string
		body            string
	}{
		{"a body verbatim", "a", `{status: 502, contentType: text/html, body: "<html>Bad Gateway"}`, 502, map[string]string{"Content-Type": "text/html"}, "<html>Bad Gateway"},
		{"an OpenAI error", "a", `{status: 429, error: {type: insufficient_quota, code: insufficient_quota, message: m}}`, 429,
			map[string]string{"Content-Type": "application/json"},
			"{\n  \"error\": {\n    \"message\": \"m\",\n    \"type\": \"insufficient_quota\",\n    \"param\": null,\n    \"code\": \"insufficient_quota\"\n  }\n}"},
		{"an Anthropic overload", "claude", `{status: 529}`, 529, nil, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_011C<20>"}`},
		{"an Anthropic spend limit", "claude", `{status: 429, error: {code: enforced_spend_limit_reached, message: m}}`, 429, nil,
			`{"type":"error","error":{"type":"rate_limit_error","message":"m","details":{"error_code":"enforced_spend_limit_reached"}},"request_id":"req_011C<20>"}`},
		{"Retry-After in seconds", "a", `{status: 429, body: x, retryAfter: {milliseconds: 3000}}`, 429, map[string]string{"Retry-After": "3"}, "x"},
		{"Retry-After with a fraction", "a", `{status: 429, body: x, retryAfter: {milliseconds: 1500}}`, 429, map[string]string{"Retry-After": "1.5"}, "x"},
		{"Retry-After as a date", "a", `{status: 429, body: x, retryAfter: {milliseconds: 90000, form: Date}}`, 429, map[string]string{"Retry-After": "Sun, 01 Mar 2026 12:01:30 GMT"}, "x"},
		{"retry-after-ms", "a", `{status: 429, body: x, retryAfter: {milliseconds: 250, form: Milliseconds}}`, 429, map[string]string{"Retry-After-Ms": "250", "Retry-After": ""}, "x"},
		{"any header", "a", `{status: 429, body: x, headers: {x-ratelimit-reset-requests: 28ms}}`, 429, map[string]string{"X-Ratelimit-Reset-Requests": "28ms"}, "x"},
		{"a redirect", "a", `{redirect: {location: /elsewhere/v1}}`, 307, map[string]string{"Location": "/elsewhere/v1"}, ""},
		{"a redirect of another kind", "a", `{redirect: {location: "http://x/", status: 302}}`, 302, map[string]string{"Location": "http://x/"}, ""},
		{"raw events", "a", `{rawEvents: ["data: {bad json}", ": note", "data: [DONE]"]}`, 200, map[string]string{"Content-Type": "text/event-stream; charset=utf-8"}, "data: {bad json}\n\n: note\n\ndata: [DONE]\n\n"},
		{"a stream of the wrong type", "a", `{rawEvents: ["<html>"], contentType: text/html}`, 200, map[string]string{"Content-Type": "text/html"}, "<html>\n\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dialect, body := "OpenAIChat", openAIHello
			if c.leg == "claude" {
				dialect, body = "AnthropicMessages", claudeHello
			}
			r := newRig(t, `{legs: {`+c.leg+`: {dialect: `+dialect+`, steps: [`+c.step+`]}}}`)
			got := r.post(c.leg, body)
			if got.status != c.status || generic(got.body) != c.body {
				t.Errorf("got %d %s; want %d %s", got.status, generic(got.body), c.status, c.body)
			}
			for name, want := range c.headers {
				if got.header.Get(name) != want {
					t.Errorf("header %s is %q, want %q", name, got.header.Get(name), want)
				}
			}
		})
	}
}

// serveRecorded runs a request against a handler without a network, so that a synctest bubble owns all its time. It
// returns true if the handler ended the connection inside its answer.
func serveRecorded(h http.Handler, req *http.Request) (rec *httptest.ResponseRecorder, aborted bool) {
	rec = httptest.NewRecorder()
	defer func() {
		if err := recover(); err != nil {
			if abort, ok := err.(error); !ok || !errors.Is(abort, http.ErrAbortHandler) {
				panic(err)
			}
			aborted = true
		}
	}()
	h.ServeHTTP(rec, req)
	return rec, false
}

func TestDelaysAndSilencesTakeTheTimeTheScriptSays(t *testing.T) {
	for _, c := range []struct {
		name, step string
		// patience is when the client leaves; 0 for never.
		patience time.Duration
		took     time.Duration
		aborted  bool
		outcome  chaos.Outcome
		events   int
	}{
		{"a delay in front of every event", sixEvents + `, delayMilliseconds: 50`, 0, 300 * time.Millisecond, false, chaos.OutcomeCompleted, 6},
		{"a delay in front of the headers too", sixEvents + `, delayMilliseconds: 50, firstByteDelayMilliseconds: 2000`, 0, 2300 * time.Millisecond, false, chaos.OutcomeCompleted, 6},
		{"pings in front of the stream", sixEvents + `, delayMilliseconds: 10, comments: 4`, 0, 100 * time.Millisecond, false, chaos.OutcomeCompleted, 6},
		{"a delay in front of a status", `status: 503, delayMilliseconds: 1500`, 0, 1500 * time.Millisecond, false, chaos.OutcomeStatus, 0},
		{"pings without end", sixEvents + `, delayMilliseconds: 1000, comments: Forever`, time.Hour, time.Hour, true, chaos.OutcomeClientGone, 0},
		{"a silence", `silence: {}`, time.Hour, time.Hour, true, chaos.OutcomeSilence, 0},
		{"a silence behind the headers", `silence: {after: Headers}`, time.Hour, time.Hour, true, chaos.OutcomeSilence, 0},
		{"a silence inside the stream", sixEvents + `, cutAfterEvents: 2, cut: Silence`, time.Hour, time.Hour, true, chaos.OutcomeCut, 2},
		{"a client that leaves inside the stream", sixEvents + `, delayMilliseconds: 1000`, 2500 * time.Millisecond, 2500 * time.Millisecond, true, chaos.OutcomeClientGone, 2},
		{"a client that leaves before the first byte", sixEvents + `, firstByteDelayMilliseconds: 1000`, 500 * time.Millisecond, 500 * time.Millisecond, true, chaos.OutcomeClientGone, 0},
		{"a connection that hangs behind the stream's end", sixEvents + `, hangAfterTerminal: true`, time.Minute, time.Minute, true, chaos.OutcomeCompleted, 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := chaos.NewServer(parse(t, `{legs: {a: {steps: [{`+c.step+`}]}}}`), chaos.Options{Seed: 7})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.patience > 0 {
					defer time.AfterFunc(c.patience, cancel).Stop()
				}
				req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/a/v1/chat/completions", strings.NewReader(openAIHello))
				req.Header.Set("Content-Type", "application/json")
				req.Header.Set("Authorization", "Bearer k")
				began := time.Now()
				_, aborted := serveRecorded(server.Handler(), req)
				if took := time.Since(began); took != c.took || aborted != c.aborted {
					t.Errorf("took %v, aborted %t; want %v, %t", took, aborted, c.took, c.aborted)
				}
				q := server.Requests()[0]
				if q.Outcome != c.outcome || q.Events != c.events {
					t.Errorf("outcome %s after %d events; want %s after %d", q.Outcome, q.Events, c.outcome, c.events)
				}
			})
		})
	}
}

func TestAServerOwnsItsListenerAndEndsItsSilences(t *testing.T) {
	server := chaos.NewServer(parse(t, `{legs: {a: {steps: [{silence: {}}, {answer: x}]}}}`), chaos.Options{Addr: "127.0.0.1:0"})
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err == nil {
		t.Error("a second start is accepted")
	}
	url := "http://" + server.Addr() + "/a/v1/chat/completions"
	ended := make(chan error, 1)
	go func() {
		req, _ := http.NewRequest(http.MethodPost, url, strings.NewReader(openAIHello))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer k")
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		ended <- err
	}()
	deadline := time.After(10 * time.Second)
	for len(server.Requests()) == 0 || server.Requests()[0].Outcome != chaos.OutcomeSilence {
		select {
		case <-deadline:
			t.Fatalf("the request does not arrive: %+v", server.Requests())
		case <-time.After(time.Millisecond):
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		t.Errorf("shutdown: %v", err)
	}
	if err := <-ended; err == nil {
		t.Error("the silent request got an answer")
	}
	if err := server.Shutdown(ctx); err != nil {
		t.Errorf("a second shutdown: %v", err)
	}
	if _, err := http.Get("http://" + server.Addr() + "/_chaos/bill"); err == nil {
		t.Error("the server still listens after its shutdown")
	}
	if err := chaos.NewServer(parse(t, `{legs: {a: {steps: []}}}`), chaos.Options{Addr: "256.0.0.1:1"}).Start(); err == nil || !strings.Contains(err.Error(), "256.0.0.1:1") {
		t.Errorf("listening on no address gives %v", err)
	}
}
