package provider_test

import (
	"bufio"
	"context"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/provider"
)

// The tests of this file run against real sockets whose other end misbehaves.

// flood writes the pattern until it has written n bytes or the other side is gone, and counts what it wrote.
func flood(w io.Writer, pattern string, n int64, written *atomic.Int64) {
	block := []byte(strings.Repeat(pattern, max(1, 64<<10/len(pattern))))
	for written.Load() < n {
		m, err := w.Write(block)
		written.Add(int64(m))
		if err != nil {
			return
		}
	}
}

// heapGrowth runs f and returns how many bytes it allocated in all; garbage counts too.
func heapGrowth(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestAnEndlessAnswerIsCutAtABoundAndHeldNowhere(t *testing.T) {
	for _, tt := range []struct {
		name, head, prefix, pattern string
		bytes                       int64
		want                        failure.Kind
		mostRead                    int64
		mostAllocated               uint64
	}{
		{"an error page of 1 GB", "HTTP/1.1 500 E\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n", "<html>", "x", 1 << 30,
			failure.ServerError, 16 << 20, 8 << 20},
		{"an HTML page of 1 GB with status 200", "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n", "<html>", "x", 1 << 30,
			failure.StreamMalformed, 16 << 20, 8 << 20},
		{"a JSON document of 1 GB", "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n", `{"a":"`, "x", 1 << 30,
			failure.StreamMalformed, 16 << 20, 8 << 20},
		{"an event of 100 MB", "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n", "data: ", "x", 100 << 20,
			failure.StreamMalformed, 24 << 20, 40 << 20},
		{"a comment of 100 MB", "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n", ":", "x", 100 << 20,
			failure.StreamMalformed, 24 << 20, 40 << 20},
		{"comments of 1 GB", "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n", "", ": ping\n\n", 1 << 30,
			failure.StreamMalformed, 80 << 20, 8 << 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var written atomic.Int64
			url := rawServer(t, func(c *net.TCPConn) {
				_, _ = io.WriteString(c, tt.head+tt.prefix)
				flood(c, tt.pattern, tt.bytes, &written)
			})
			client := newClient(t, provider.Options{})
			var got provider.Attempt
			allocated := heapGrowth(func() { got = attemptAt(t.Context(), t, client, targetAt(url)) })
			if got.Failure == nil || got.Failure.Kind != tt.want {
				t.Errorf("got %+v, want %s", got.Failure, tt.want)
			}
			if written.Load() > tt.mostRead {
				t.Errorf("the server could send %d bytes, want at most %d", written.Load(), tt.mostRead)
			}
			if allocated > tt.mostAllocated {
				t.Errorf("allocated %d bytes, want at most %d", allocated, tt.mostAllocated)
			}
		})
	}
}

func TestManyCommentsBeforeTheAnswerDoNoHarm(t *testing.T) {
	url := serve(t, streamOf(strings.Repeat(": PROCESSING\n\n", 100_000)+wholeAnswer))
	got := attemptAt(t.Context(), t, newClient(t, provider.Options{}), targetAt(url))
	if got.Failure != nil || got.Answer.Text() != "Hello" {
		t.Errorf("got %+v", got.Failure)
	}
}

func TestANULInTheStreamIsMalformed(t *testing.T) {
	url := serve(t, streamOf("data: {\"choices\":\x00}\n\n"+wholeAnswer))
	got := attemptAt(t.Context(), t, newClient(t, provider.Options{}), targetAt(url))
	if got.Answer != nil || got.Failure.Kind != failure.StreamMalformed {
		t.Errorf("got %+v", got.Failure)
	}
}

func TestAHugeHeaderIsRefused(t *testing.T) {
	url := rawServer(t, func(c *net.TCPConn) {
		var written atomic.Int64
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nX-Long: ")
		flood(c, "x", 1<<20, &written)
		_, _ = io.WriteString(c, "\r\n\r\n")
	})
	got := attemptAt(t.Context(), t, newClient(t, provider.Options{}), targetAt(url))
	if got.Failure == nil || got.Failure.Kind != failure.Network {
		t.Errorf("got %+v", got.Failure)
	}
}

func TestSomethingThatIsNoHTTPIsANetworkFailure(t *testing.T) {
	url := rawServer(t, func(c *net.TCPConn) { _, _ = io.WriteString(c, "SSH-2.0-OpenSSH_9.2\r\n") })
	got := attemptAt(t.Context(), t, newClient(t, provider.Options{}), targetAt(url))
	if got.Failure == nil || got.Failure.Kind != failure.Network || strings.Contains(got.Failure.Message, "SSH") {
		t.Errorf("got %+v", got.Failure)
	}
}

func TestABrokenConnectionIsToldByWhenItBroke(t *testing.T) {
	for _, tt := range []struct {
		name, said string
		reset      bool
		want       failure.Kind
	}{
		{"closed before the answer", "", false, failure.Network},
		{"reset before the answer", "", true, failure.Network},
		{"closed in the header", "HTTP/1.1 200 OK\r\nContent-", false, failure.Network},
		{"reset after the header", streamHead, true, failure.StreamTruncated},
		{"reset in the stream", streamHead + chunk(deltaEvent), true, failure.StreamTruncated},
		{"closed in the stream without its last chunk", streamHead + chunk(deltaEvent), false, failure.StreamTruncated},
		{"ended cleanly in the stream", streamHead + chunk(deltaEvent) + lastChunk, false, failure.StreamTruncated},
		{"ended in half a call", streamHead + chunk(`data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"x","function":{"name":"shell","arguments":"{\"cmd\":\"rm"}}]}}]}`+"\n\n") + lastChunk, false, failure.StreamTruncated},
		{"ended in half an event", streamHead + chunk(deltaEvent+`data: {"choices":[{"index":0,"delta":{},"finish_rea`) + lastChunk, false, failure.StreamTruncated},
	} {
		url := rawServer(t, func(c *net.TCPConn) {
			_, _ = io.WriteString(c, tt.said)
			if tt.reset {
				_ = c.SetLinger(0)
			}
		})
		got := attemptAt(t.Context(), t, newClient(t, provider.Options{}), targetAt(url))
		if got.Answer != nil || got.Failure.Kind != tt.want {
			t.Errorf("%s: got %+v, want %s", tt.name, got.Failure, tt.want)
		}
	}
}

func TestARequestIsNeverSentTwice(t *testing.T) {
	var requests atomic.Int32
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := listener.Accept()
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		in := bufio.NewReader(c)
		// The first request is answered, and its connection kept; the second is read and dropped. A client that sent it again
		// would have to open another connection.
		for range 2 {
			request, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, request.Body)
			if requests.Add(1) == 1 {
				_, _ = io.WriteString(c, streamHead+chunk(wholeAnswer)+lastChunk)
			}
		}
	}()
	client := newClient(t, provider.Options{})
	target := targetAt("http://" + listener.Addr().String())
	target.Timeouts.FirstByte = 2 * time.Second
	if got := attemptAt(t.Context(), t, client, target); got.Failure != nil {
		t.Fatal(got.Failure)
	}
	got := attemptAt(t.Context(), t, client, target)
	if got.Failure == nil || got.Failure.Kind != failure.Network {
		t.Errorf("got %+v, want a Network failure at once", got.Failure)
	}
	_ = listener.Close()
	<-done
	if n := requests.Load(); n != 2 {
		t.Errorf("the server saw %d requests, want 2", n)
	}
}

func TestACutAfterTheTerminalMarkerCostsNoAnswer(t *testing.T) {
	url := rawServer(t, func(c *net.TCPConn) { _, _ = io.WriteString(c, streamHead+chunk(deltaEvent+finishEvent)) })
	got := attemptAt(t.Context(), t, newClient(t, provider.Options{}), targetAt(url))
	if got.Failure != nil || got.Answer.Text() != "Hello" {
		t.Errorf("got %+v", got.Failure)
	}
}

func TestAPortThatNobodyServesIsANetworkFailure(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + listener.Addr().String()
	_ = listener.Close()
	got := attemptAt(t.Context(), t, newClient(t, provider.Options{}), targetAt(url))
	if got.Failure == nil || got.Failure.Kind != failure.Network || got.Failure.Message != "the endpoint refused the connection" {
		t.Errorf("got %+v", got.Failure)
	}
}

func TestAPortThatNeverSpeaksTimesOut(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	target := targetAt("http://" + listener.Addr().String())
	target.Timeouts.FirstByte = 50 * time.Millisecond
	got := attemptAt(t.Context(), t, newClient(t, provider.Options{}), target)
	if got.Failure == nil || got.Failure.Kind != failure.Timeout {
		t.Errorf("got %+v", got.Failure)
	}
}

func TestANameThatDoesNotResolveIsANetworkFailure(t *testing.T) {
	target := targetAt("https://no-such-host.invalid/v1")
	target.Timeouts.Connect = 5 * time.Second
	got := attemptAt(t.Context(), t, newClient(t, provider.Options{}), target)
	if got.Failure == nil || got.Failure.Kind != failure.Network || strings.Contains(got.Failure.Message, "invalid") {
		t.Errorf("got %+v", got.Failure)
	}
}

func TestACertificateIsCheckedAgainstTheSystemAndTheBundle(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		var protocol atomic.Value
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			protocol.Store(r.Proto)
			streamOf(wholeAnswer)(w, r)
		}))
		server.EnableHTTP2 = http2
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.StartTLS()
		client := newClient(t, provider.Options{RootCAs: x509.NewCertPool()})

		target := targetAt(server.URL)
		target.Insecure = provider.InsecureForbid
		got := attemptAt(t.Context(), t, client, target)
		if got.Failure == nil || got.Failure.Kind != failure.Network || got.Failure.Sub != failure.SubConfiguration || protocol.Load() != nil {
			t.Errorf("without the bundle: got %+v", got.Failure)
		}

		target.CABundle = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
		got = attemptAt(t.Context(), t, client, target)
		want := map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[http2]
		if got.Failure != nil || protocol.Load() != want {
			t.Errorf("with the bundle: got %+v over %v, want %s", got.Failure, protocol.Load(), want)
		}

		target.CABundle = []byte("no certificate")
		got = attemptAt(t.Context(), t, client, target)
		if got.Failure == nil || got.Failure.Sub != failure.SubConfiguration {
			t.Errorf("with a broken bundle: got %+v", got.Failure)
		}
		client.Close()
		server.Close()
	}
}

func TestHTTPSToAPlainPortIsAConfigurationFault(t *testing.T) {
	url := serve(t, streamOf(wholeAnswer))
	got := attemptAt(t.Context(), t, newClient(t, provider.Options{}), targetAt(strings.Replace(url, "http:", "https:", 1)))
	if got.Failure == nil || got.Failure.Kind != failure.Network || got.Failure.Sub != failure.SubConfiguration {
		t.Errorf("got %+v", got.Failure)
	}
}

func TestCancellationOfAnHTTP2StreamEndsTheHandlerWithinASecond(t *testing.T) {
	ended := make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, deltaEvent)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(ended)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	client := newClient(t, provider.Options{RootCAs: roots})
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	got := attemptAt(ctx, t, client, targetAt(server.URL))
	if got.Failure == nil || got.Failure.Kind != failure.Cancelled || got.Partial != "Hello" {
		t.Errorf("got %+v", got.Failure)
	}
	select {
	case <-ended:
	case <-time.After(time.Second):
		t.Error("the server did not see the cancellation within a second")
	}
}
