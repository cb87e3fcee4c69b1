package provider_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/provider"
)

func TestACompleteAnswerIsReturnedWithItsBill(t *testing.T) {
	url := serve(t, streamOf(wholeAnswer))
	got := attemptAt(t.Context(), t, newClient(t, provider.Options{}), targetAt(url))
	if got.Failure != nil || got.Answer.Text() != "Hello" || got.ResponseID != "c1" || got.Partial != "" {
		t.Fatalf("got %+v", got)
	}
	if diff := cmp.Diff(provider.Usage{InputTokens: 5, OutputTokens: 2}, got.Usage); diff != "" {
		t.Error(diff)
	}
}

func TestAnAnswerWithoutUsageIsChargedByEstimate(t *testing.T) {
	url := serve(t, streamOf(deltaEvent+finishEvent+doneEvent))
	client := newClient(t, provider.Options{})
	target := targetAt(url)
	got := attemptAt(t.Context(), t, client, target)
	// "Hello" has 5 bytes: 2 tokens at 3 bytes each.
	want := provider.Usage{InputTokens: prepare(t, client, target).InputEstimate, OutputTokens: 2, Estimated: true}
	if diff := cmp.Diff(want, got.Usage); diff != "" || got.Answer == nil {
		t.Errorf("%+v\n%s", got.Failure, diff)
	}
}

func TestABrokenAnswerIsChargedAndItsTextKept(t *testing.T) {
	url := serve(t, streamOf(deltaEvent))
	client := newClient(t, provider.Options{})
	target := targetAt(url)
	got := attemptAt(t.Context(), t, client, target)
	if got.Answer != nil || got.Failure.Kind != failure.StreamTruncated || got.Partial != "Hello" {
		t.Fatalf("got %+v", got)
	}
	want := provider.Usage{InputTokens: prepare(t, client, target).InputEstimate, OutputTokens: 2, Estimated: true}
	if diff := cmp.Diff(want, got.Usage); diff != "" {
		t.Error(diff)
	}
}

func TestARefusedRequestIsNotCharged(t *testing.T) {
	for _, status := range []int{400, 401, 429, 500, 503, 529} {
		url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Request-Id", "req-7")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `{"error":{"message":"x"}}`)
		})
		got := attemptAt(t.Context(), t, newClient(t, provider.Options{}), targetAt(url))
		if got.Failure == nil || got.Failure.HTTPStatus != status || got.ResponseID != "req-7" {
			t.Errorf("status %d: got %+v", status, got.Failure)
		}
		if diff := cmp.Diff(provider.Usage{}, got.Usage); diff != "" {
			t.Errorf("status %d: %s", status, diff)
		}
	}
}

func TestTheBodyOfAnErrorAndItsHeadersAreClassified(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(429)
		_, _ = io.WriteString(w, `{"error":{"code":"rate_limit_exceeded"}}`)
	})
	got := attemptAt(t.Context(), t, newClient(t, provider.Options{}), targetAt(url))
	if got.Failure == nil || got.Failure.Kind != failure.RateLimited || got.Failure.Wait == nil || got.Failure.Wait.Duration.Seconds() != 7 {
		t.Errorf("got %+v", got.Failure)
	}
}

func TestAnErrorInTheStreamIsClassifiedByItsCode(t *testing.T) {
	url := serve(t, streamOf(deltaEvent+`data: {"error":{"type":"overloaded_error","message":"x"}}`+"\n\n"+finishEvent+doneEvent))
	got := attemptAt(t.Context(), t, newClient(t, provider.Options{}), targetAt(url))
	if got.Answer != nil || got.Failure.Kind != failure.Overloaded || got.Failure.HTTPStatus != 200 || got.Partial != "Hello" || !got.Usage.Estimated {
		t.Errorf("got %+v", got)
	}
}

func TestAnErrorAfterTheTerminalMarkerStillFails(t *testing.T) {
	url := serve(t, streamOf(deltaEvent+finishEvent+`data: {"error":{"message":"x"}}`+"\n\n"))
	got := attemptAt(t.Context(), t, newClient(t, provider.Options{}), targetAt(url))
	if got.Answer != nil || got.Failure.Kind != failure.ServerError {
		t.Errorf("got %+v", got)
	}
}

func TestOnlyAnEventStreamIsParsed(t *testing.T) {
	for _, tt := range []struct {
		name, contentType, encoding, body string
		want                              failure.Kind
	}{
		{"HTML", "text/html; charset=utf-8", "", "<html>" + wholeAnswer, failure.StreamMalformed},
		{"text", "text/plain", "", wholeAnswer, failure.StreamMalformed},
		{"an unreadable type", ";;;", "", wholeAnswer, failure.StreamMalformed},
		{"a JSON error", "application/json", "", `{"error":{"type":"rate_limit_error","message":"x"}}`, failure.RateLimited},
		{"a JSON answer", "application/json", "", `{"object":"chat.completion","choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}`, failure.StreamMalformed},
		{"compression nobody asked for", "text/event-stream", "gzip", wholeAnswer, failure.StreamMalformed},
	} {
		url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", tt.contentType)
			if tt.encoding != "" {
				w.Header().Set("Content-Encoding", tt.encoding)
			}
			_, _ = io.WriteString(w, tt.body)
		})
		got := attemptAt(t.Context(), t, newClient(t, provider.Options{}), targetAt(url))
		if got.Answer != nil || got.Failure.Kind != tt.want {
			t.Errorf("%s: got %+v, want %s", tt.name, got.Failure, tt.want)
		}
	}
	for _, contentType := range []string{"text/event-stream; charset=utf-8", "TEXT/EVENT-STREAM", ""} {
		url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = []string{contentType}
			_, _ = io.WriteString(w, wholeAnswer)
		})
		if got := attemptAt(t.Context(), t, newClient(t, provider.Options{}), targetAt(url)); got.Failure != nil {
			t.Errorf("content type %q: got %+v", contentType, got.Failure)
		}
	}
}

func TestARedirectIsNeverFollowed(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		var strangers, requests atomic.Int32
		elsewhere := serve(t, func(http.ResponseWriter, *http.Request) { strangers.Add(1) })
		url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			requests.Add(1)
			w.Header().Set("Location", strings.Replace(elsewhere, "127.0.0.1", "localhost", 1)+"/v1/chat/completions")
			w.WriteHeader(status)
		})
		got := attemptAt(t.Context(), t, newClient(t, provider.Options{}), targetAt(url))
		if got.Failure == nil || got.Failure.HTTPStatus != status || got.Failure.Sub != failure.SubConfiguration {
			t.Errorf("status %d: got %+v", status, got.Failure)
		}
		if strangers.Load() != 0 || requests.Load() != 1 {
			t.Errorf("status %d: %d requests to the other host, %d to the own", status, strangers.Load(), requests.Load())
		}
	}
}

func TestTheConnectionIsUsedAgain(t *testing.T) {
	var connections atomic.Int32
	server := httptest.NewUnstartedServer(streamOf(wholeAnswer))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	client := newClient(t, provider.Options{})
	for range 5 {
		if got := attemptAt(t.Context(), t, client, targetAt(server.URL)); got.Failure != nil {
			t.Fatal(got.Failure)
		}
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections for five answers, want 1", n)
	}
	client.Close()
}

func TestTheSecretIsShownNowhere(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(400)
		_, _ = io.WriteString(w, `{"error":{"code":"`+r.Header.Get("Authorization")+`","message":"you sent `+r.Header.Get("Authorization")+`"}}`)
	})
	client := newClient(t, provider.Options{})
	got := attemptAt(t.Context(), t, client, targetAt(url))
	if shown := fmt.Sprintf("%+v %+v", got, got.Failure); strings.Contains(shown, secret) {
		t.Errorf("the secret is in %s", shown)
	}
	closed := targetAt("http://127.0.0.1:1/v1")
	got = attemptAt(t.Context(), t, client, closed)
	if shown := fmt.Sprintf("%+v %+v", got, got.Failure); strings.Contains(shown, secret) {
		t.Errorf("the secret is in %s", shown)
	}
}
