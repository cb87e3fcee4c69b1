package provider_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/provider"
	"belay.dev/belay/internal/runtime/provider/anthropic"
	"belay.dev/belay/internal/runtime/route"
)

func TestPlainHTTPNeedsPermission(t *testing.T) {
	client := newClient(t, provider.Options{})
	for _, tt := range []struct {
		baseURL  string
		insecure provider.Insecure
		allowed  bool
	}{
		{"https://api.example.com/v1", "", true},
		{"https://api.example.com/v1", provider.InsecureForbid, true},
		{"https://api.example.com/v1", provider.InsecureLoopback, true},
		{"http://127.0.0.1:8080/v1", "", false},
		{"http://127.0.0.1:8080/v1", provider.InsecureForbid, false},
		{"http://127.0.0.1:8080/v1", provider.InsecureLoopback, true},
		{"http://127.8.8.8/v1", provider.InsecureLoopback, true},
		{"http://[::1]:8080/v1", provider.InsecureLoopback, true},
		{"http://[::ffff:127.0.0.1]/v1", provider.InsecureLoopback, true},
		{"http://localhost:8080/v1", provider.InsecureLoopback, true},
		{"http://localhost.example.com/v1", provider.InsecureLoopback, false},
		{"http://10.0.0.1/v1", provider.InsecureLoopback, false},
		{"http://0.0.0.0/v1", provider.InsecureLoopback, false},
		{"http://vllm/v1", provider.InsecureLoopback, false},
		{"http://vllm/v1", provider.InsecureCluster, true},
		{"http://vllm.models.svc:8000/v1", provider.InsecureCluster, true},
		{"http://vllm.models.svc.cluster.local/v1", provider.InsecureCluster, true},
		{"http://127.0.0.1/v1", provider.InsecureCluster, true},
		{"http://api.example/v1", provider.InsecureCluster, false},
		{"http://svc.example.com/v1", provider.InsecureCluster, false},
		{"http://10.0.0.1/v1", provider.InsecureCluster, false},
		{"http://8.8.8.8/v1", provider.InsecureCluster, false},
		{"ftp://127.0.0.1/v1", provider.InsecureCluster, false},
		{"api.example.com/v1", "", false},
		{"https://", "", false},
		{"https://user:pass@api.example.com/v1", "", false},
		{"https://api.example.com/v1?key=x", "", false},
		{"https://api.example.com/v1#x", "", false},
		{"://", "", false},
	} {
		target := targetAt(tt.baseURL)
		target.Insecure = tt.insecure
		_, err := client.Prepare(target, hello)
		if (err == nil) != tt.allowed {
			t.Errorf("%s with insecure %q: %v, want allowed %v", tt.baseURL, tt.insecure, err, tt.allowed)
		}
		if err != nil {
			refused := client.Refused(err)
			if refused.Failure == nil || refused.Failure.Kind != failure.Network || refused.Failure.Sub != failure.SubConfiguration {
				t.Errorf("%s: got %+v", tt.baseURL, refused.Failure)
			}
			if strings.Contains(err.Error(), "user:pass") {
				t.Errorf("the message shows the URL's password: %v", err)
			}
		}
	}
}

func TestAProviderMayNotSetReservedHeaders(t *testing.T) {
	for _, name := range []string{"Authorization", "authorization", "HOST", "Content-Type", "content-length", "Content-Anything",
		"Transfer-Encoding", "Connection", "Accept-Encoding", "Cookie", "X-Api-Key", "Idempotency-Key", "", "two words", "a:b", "é"} {
		if err := provider.CheckHeader(provider.Header{Name: name, Value: "v"}); err == nil {
			t.Errorf("header %q is allowed", name)
		}
	}
	for _, name := range []string{"X-Team", "OpenAI-Organization", "anthropic-beta", "api-key", "HTTP-Referer"} {
		if err := provider.CheckHeader(provider.Header{Name: name, Value: "v"}); err != nil {
			t.Errorf("header %q: %v", name, err)
		}
	}
	err := provider.CheckHeader(provider.Header{Name: "X-Team", Value: "hunter2\r\nX-Evil: 1"})
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a value with a line break: %v", err)
	}
	target := targetAt("https://api.example.com/v1")
	target.Headers = []provider.Header{{Name: "Host", Value: "elsewhere"}}
	if _, err := newClient(t, provider.Options{}).Prepare(target, hello); err == nil {
		t.Error("Prepare let a reserved header pass")
	}
}

func TestACredentialWithALineBreakInsideIsRefusedWithoutShowingIt(t *testing.T) {
	client := newClient(t, provider.Options{})
	target := targetAt("https://api.example.com/v1")
	target.Secret = "hunter2\nhunter3"
	_, err := client.Prepare(target, hello)
	var cause *failure.Cause
	if !errors.As(err, &cause) || cause.Kind != failure.AuthError || strings.Contains(err.Error(), "hunter") {
		t.Errorf("got %v", err)
	}
}

func TestAnUnknownDialectIsRefused(t *testing.T) {
	client := newClient(t, provider.Options{})
	target := targetAt("https://api.example.com/v1")
	target.Route.Dialect = "Telepathy"
	if _, err := client.Prepare(target, hello); err == nil {
		t.Error("prepared a request in an unknown dialect")
	}
	out := client.Do(t.Context(), target, provider.Prepared{}, provider.Try{Number: 1})
	if out.Failure == nil || out.Failure.Sub != failure.SubConfiguration {
		t.Errorf("got %+v", out)
	}
}

func TestARetrySendsIdenticalBytesAndTheirHash(t *testing.T) {
	var bodies []string
	var headers []http.Header
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies = append(bodies, string(body))
		headers = append(headers, r.Header)
		streamOf(wholeAnswer)(w, r)
	})
	client := newClient(t, provider.Options{})
	target := targetAt(url + "/v1")
	target.Secret = "  " + secret + "\n" // as secrets are often stored
	target.Headers = []provider.Header{{Name: "X-Team", Value: "blue"}}
	prepared := prepare(t, client, target)
	first := client.Do(t.Context(), target, prepared, provider.Try{Number: 1})
	second := client.Do(t.Context(), target, prepared, provider.Try{Number: 2})
	if first.Failure != nil || second.Failure != nil || len(bodies) != 2 || bodies[0] != bodies[1] {
		t.Fatalf("got %+v, %+v, bodies %q", first.Failure, second.Failure, bodies)
	}
	sum := sha256.Sum256([]byte("a\x00m1\x00" + bodies[0]))
	if want := hex.EncodeToString(sum[:]); prepared.SHA256 != want || first.BodySHA256 != want || second.BodySHA256 != want {
		t.Errorf("hashes %s, %s, %s, want %s", prepared.SHA256, first.BodySHA256, second.BodySHA256, want)
	}
	if prepared.BodyBytes != len(bodies[0]) {
		t.Errorf("size %d, want %d", prepared.BodyBytes, len(bodies[0]))
	}
	for name, want := range map[string]string{"Authorization": "Bearer " + secret, "X-Team": "blue",
		"Content-Type": "application/json", "Accept": "text/event-stream", "User-Agent": "belay"} {
		if got := headers[0].Get(name); got != want {
			t.Errorf("header %s is %q, want %q", name, got, want)
		}
	}
	if headers[0].Get("Accept-Encoding") != "" {
		t.Error("asked for compression")
	}
}

func TestTheDialectsPathIsAppendedToTheBaseURL(t *testing.T) {
	var paths []string
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.Method+" "+r.RequestURI)
		streamOf(wholeAnswer)(w, r)
	})
	client := newClient(t, provider.Options{})
	for _, suffix := range []string{"", "/", "/v1", "/v1/", "/a%2Fb/v1"} {
		if got := attemptAt(t.Context(), t, client, targetAt(url+suffix)); got.Failure != nil {
			t.Errorf("%q: %+v", suffix, got.Failure)
		}
	}
	want := []string{"POST /chat/completions", "POST /chat/completions", "POST /v1/chat/completions", "POST /v1/chat/completions", "POST /a%2Fb/v1/chat/completions"}
	if diff := cmp.Diff(want, paths); diff != "" {
		t.Error(diff)
	}
}

func TestAProvidersHeaderReplacesTheDialectsButNotTheCredential(t *testing.T) {
	var seen http.Header
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		seen = r.Header
		w.WriteHeader(http.StatusTeapot)
	})
	client := provider.NewClient(provider.Options{}, anthropic.Dialect{})
	defer client.Close()
	target := targetAt(url)
	target.Route.Dialect = route.AnthropicMessages
	target.Headers = []provider.Header{{Name: "anthropic-version", Value: "2027-01-01"}, {Name: "anthropic-beta", Value: "a"}, {Name: "anthropic-beta", Value: "b"}}
	attemptAt(t.Context(), t, client, target)
	if got := seen.Values("Anthropic-Version"); len(got) != 1 || got[0] != "2027-01-01" {
		t.Errorf("version %q", got)
	}
	if got := seen.Values("Anthropic-Beta"); len(got) != 2 {
		t.Errorf("beta %q", got)
	}
	if got := seen.Values("X-Api-Key"); len(got) != 1 || got[0] != secret {
		t.Error("the credential is not the target's")
	}
}

func TestTheHashCoversLegAndModel(t *testing.T) {
	client := newClient(t, provider.Options{})
	target := targetAt("https://api.example.com/v1")
	base := prepare(t, client, target).SHA256
	otherLeg := target
	otherLeg.Leg = "b"
	otherModel := target
	otherModel.Route.Model = "m2"
	otherKey := target
	otherKey.Secret = "another"
	if prepare(t, client, otherLeg).SHA256 == base || prepare(t, client, otherModel).SHA256 == base {
		t.Error("another leg or model has the same hash")
	}
	if prepare(t, client, otherKey).SHA256 != base {
		t.Error("a rotated key changes the hash")
	}
}

func TestTheInputEstimateIsRatherTooHigh(t *testing.T) {
	client := newClient(t, provider.Options{})
	// 4,000 words of English are about 5,300 tokens; at 3 bytes a token their 24,000 bytes are at least 8,000.
	req := provider.Request{Messages: hello.Messages, System: strings.Repeat("words ", 4000)}
	p, err := client.Prepare(targetAt("https://api.example.com/v1"), req)
	if err != nil || p.InputEstimate < 8000 || p.InputEstimate > 8200 {
		t.Errorf("estimate %d, %v", p.InputEstimate, err)
	}
}
