package provider_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"belay.dev/belay/internal/runtime/provider"
	"belay.dev/belay/internal/runtime/provider/openaichat"
	"belay.dev/belay/internal/runtime/sse"
)

// longAnswer is an answer of 300 pieces, about what a turn of a coding task has.
func longAnswer() string {
	var b strings.Builder
	for i := range 300 {
		fmt.Fprintf(&b, `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1772366400,"model":"m1","choices":[{"index":0,"delta":{"content":" word%d"},"logprobs":null,"finish_reason":null}]}`+"\n\n", i)
	}
	return b.String() + finishEvent + usageEvent + doneEvent
}

// BenchmarkAttempt measures what an attempt adds to the plain way: the same request with net/http, its stream cut into
// events, and each event decoded into the fields that an answer needs. Both run in turns over the same connection kind,
// so that the machine's noise meets both; added-µs/op is the difference in time, added-CPU-µs/op that in processor time
// of the process, which includes the server's, equal for both.
func BenchmarkAttempt(b *testing.B) {
	stream := longAnswer()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		streamOf(stream)(w, r)
	}))
	defer server.Close()
	client := provider.NewClient(provider.Options{}, openaichat.Dialect{})
	defer client.Close()
	target := targetAt(server.URL)
	request := provider.Request{System: strings.Repeat("Be careful. ", 200), Messages: hello.Messages}
	plain := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	defer plain.CloseIdleConnections()
	prepared, err := client.Prepare(target, request)
	if err != nil {
		b.Fatal(err)
	}
	body := bytes.Repeat([]byte("x"), prepared.BodyBytes)

	var ours, raw, oursCPU, rawCPU time.Duration
	b.ReportAllocs()
	for b.Loop() {
		start, cpu := time.Now(), processorTime()
		plainAttempt(b, plain, server.URL, body)
		raw, rawCPU = raw+time.Since(start), rawCPU+processorTime()-cpu

		start, cpu = time.Now(), processorTime()
		p, err := client.Prepare(target, request)
		if err != nil {
			b.Fatal(err)
		}
		if got := client.Do(b.Context(), target, p, provider.Try{Number: 1}); got.Failure != nil {
			b.Fatal(got.Failure)
		}
		ours, oursCPU = ours+time.Since(start), oursCPU+processorTime()-cpu
	}
	n := float64(b.N)
	b.ReportMetric(float64((ours-raw).Microseconds())/n, "added-µs/op")
	b.ReportMetric(float64((oursCPU-rawCPU).Microseconds())/n, "added-CPU-µs/op")
	b.ReportMetric(float64(raw.Microseconds())/n, "plain-µs/op")
}

func plainAttempt(b *testing.B, client *http.Client, url string, body []byte) {
	response, err := client.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	plainDecode(b, response.Body)
}

func plainDecode(b *testing.B, body io.Reader) {
	reader := sse.NewReader(body, sse.Limits{})
	var text strings.Builder
	for {
		event, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			b.Fatal(err)
		}
		var chunk struct {
			Choices []struct {
				Delta struct {
					Content string `json:"content"`
				} `json:"delta"`
				FinishReason string `json:"finish_reason"`
			} `json:"choices"`
		}
		if string(event.Data) == "[DONE]" {
			continue
		}
		if err := json.Unmarshal(event.Data, &chunk); err != nil {
			b.Fatal(err)
		}
		for _, c := range chunk.Choices {
			text.WriteString(c.Delta.Content)
		}
	}
	if text.Len() == 0 {
		b.Fatal("no text")
	}
}

func processorTime() time.Duration {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkDecode is the part of BenchmarkAttempt without sockets: the stream to an answer.
func BenchmarkDecode(b *testing.B) {
	stream := []byte(longAnswer())
	target := targetAt("http://127.0.0.1/v1")
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	start := processorTime()
	for b.Loop() {
		decoder := openaichat.Dialect{}.NewDecoder(target)
		answer, _ := provider.ReadAnswer(sse.NewReader(bytes.NewReader(stream), sse.Limits{}), decoder, func([]byte, provider.Step) {})
		if answer == nil {
			b.Fatal("no answer")
		}
	}
	b.ReportMetric(float64((processorTime()-start).Microseconds())/float64(b.N), "CPU-µs/op")
}

// BenchmarkPlainDecode is the plain way's counterpart of BenchmarkDecode.
func BenchmarkPlainDecode(b *testing.B) {
	stream := []byte(longAnswer())
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	start := processorTime()
	for b.Loop() {
		plainDecode(b, bytes.NewReader(stream))
	}
	b.ReportMetric(float64((processorTime()-start).Microseconds())/float64(b.N), "CPU-µs/op")
}

// BenchmarkPrepare is the rendering of a request with a conversation of 100 turns.
func BenchmarkPrepare(b *testing.B) {
	client := provider.NewClient(provider.Options{}, openaichat.Dialect{})
	defer client.Close()
	target := targetAt("http://127.0.0.1/v1")
	request := provider.Request{System: strings.Repeat("Be careful. ", 200)}
	for range 100 {
		request.Messages = append(request.Messages, userMessage(strings.Repeat("text ", 200)))
	}
	b.ReportAllocs()
	start := processorTime()
	for b.Loop() {
		p, err := client.Prepare(target, request)
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(p.BodyBytes))
	}
	b.ReportMetric(float64((processorTime()-start).Microseconds())/float64(b.N), "CPU-µs/op")
}
