package provider_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.uber.org/goleak"

	"belay.dev/belay/internal/runtime/message"
	"belay.dev/belay/internal/runtime/provider"
	"belay.dev/belay/internal/runtime/provider/openaichat"
	"belay.dev/belay/internal/runtime/route"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// secret is the credential of all tests; it may be seen by the target's own host only.
const secret = "sk-test-5f1d"

const (
	deltaEvent  = `data: {"id":"c1","choices":[{"index":0,"delta":{"content":"Hello"}}]}` + "\n\n"
	finishEvent = `data: {"id":"c1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	usageEvent  = `data: {"id":"c1","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}` + "\n\n"
	doneEvent   = "data: [DONE]\n\n"
	wholeAnswer = deltaEvent + finishEvent + usageEvent + doneEvent
)

func newClient(t *testing.T, options provider.Options) *provider.Client {
	t.Helper()
	client := provider.NewClient(options, openaichat.Dialect{})
	t.Cleanup(client.Close)
	return client
}

func targetAt(baseURL string) provider.Target {
	return provider.Target{
		Leg:      "a",
		Route:    route.Route{BaseURL: baseURL, Dialect: route.OpenAIChat, Model: "m1", SecretName: "keys", SecretKey: "a"},
		Secret:   secret,
		Insecure: provider.InsecureLoopback,
		Timeouts: provider.DefaultTimeouts(),
	}
}

func userMessage(text string) message.Message {
	return message.Message{Role: message.RoleUser, Blocks: []message.Block{{Kind: message.BlockText, Text: text}}}
}

var hello = provider.Request{Messages: []message.Message{userMessage("Hi")}}

func prepare(t *testing.T, client *provider.Client, target provider.Target) provider.Prepared {
	t.Helper()
	p, err := client.Prepare(target, hello)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func attemptAt(ctx context.Context, t *testing.T, client *provider.Client, target provider.Target) provider.Attempt {
	t.Helper()
	return client.Do(ctx, target, prepare(t, client, target), provider.Try{Number: 1})
}

// serve answers every request with the handler on a real socket.
func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

// streamOf answers with an event stream.
func streamOf(events string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, events)
	}
}

// rawServer reads one request from each connection and hands the connection to the function, which owns it until it
// returns; then it is closed.
func rawServer(t *testing.T, serve func(c *net.TCPConn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			if readRequest(c) == nil {
				serve(c.(*net.TCPConn))
			}
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = listener.Close(); <-done })
	return "http://" + listener.Addr().String()
}

func readRequest(c net.Conn) error {
	request, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, request.Body)
	return err
}

const streamHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

// chunk frames bytes as one chunk of a chunked body.
func chunk(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

const lastChunk = "0\r\n\r\n"
