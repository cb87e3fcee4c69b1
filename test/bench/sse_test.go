// Package bench holds the benchmarks that need a peer from outside: each measures Belay's own part and the peers on the
// same input in the same run.
package bench

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	anthropicstream "github.com/anthropics/anthropic-sdk-go/v2/packages/ssestream"
	openaistream "github.com/openai/openai-go/v3/packages/ssestream"
	gosse "github.com/tmaxmax/go-sse"

	"belay.dev/belay/internal/runtime/sse"
)

// events is how many events the recorded stream has.
const events = 2000

// stream is an answer as a chat API sends it: a chunk of a few words in each event, and a comment now and then.
func stream() []byte {
	var b bytes.Buffer
	for i := range events {
		if i%50 == 0 {
			b.WriteString(": keep-alive\n\n")
		}
		fmt.Fprintf(&b, `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1764500000,"model":"m","choices":[{"index":0,"delta":{"content":"word %d and a few more "},"finish_reason":null}]}`+"\n\n", i)
	}
	return b.Bytes()
}

// BenchmarkStreamReader reads the events of one stream, without decoding their data.
func BenchmarkStreamReader(b *testing.B) {
	in := stream()
	response := func() *http.Response {
		return &http.Response{
			StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(bytes.NewReader(in)),
		}
	}
	for name, read := range map[string]func() (int, error){
		"belay": func() (int, error) {
			r, n := sse.NewReader(bytes.NewReader(in), sse.Limits{}), 0
			for {
				_, err := r.Next()
				if errors.Is(err, io.EOF) {
					return n, nil
				}
				if err != nil {
					return n, err
				}
				n++
			}
		},
		"go-sse": func() (int, error) {
			n := 0
			for _, err := range gosse.Read(bytes.NewReader(in), nil) {
				if err != nil {
					return n, err
				}
				n++
			}
			return n, nil
		},
		"openai-go": func() (int, error) {
			d, n := openaistream.NewDecoder(response()), 0
			for d.Next() {
				if strings.HasPrefix(string(d.Event().Data), "{") {
					n++
				}
			}
			return n, d.Err()
		},
		"anthropic-sdk-go": func() (int, error) {
			d, n := anthropicstream.NewDecoder(response()), 0
			for d.Next() {
				if strings.HasPrefix(string(d.Event().Data), "{") {
					n++
				}
			}
			return n, d.Err()
		},
	} {
		b.Run("reader="+name, func(b *testing.B) {
			b.SetBytes(int64(len(in)))
			b.ReportAllocs()
			for b.Loop() {
				if n, err := read(); err != nil || n != events {
					b.Fatalf("%s read %d events, %v; want %d", name, n, err, events)
				}
			}
		})
	}
}
