package loop_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"belay.dev/belay/internal/runtime/breaker"
	"belay.dev/belay/internal/runtime/budget"
	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/ladder"
	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/loop"
	"belay.dev/belay/internal/runtime/message"
	"belay.dev/belay/internal/runtime/provider"
	"belay.dev/belay/internal/runtime/provider/anthropic"
	"belay.dev/belay/internal/runtime/route"
	"belay.dev/belay/internal/runtime/sse"
	"belay.dev/belay/internal/runtime/tools"
)

// benchTurns is the length of a run in the benchmarks, so that its start and end weigh little.
const benchTurns = 20

// pausedStream is an answer of 300 pieces, about what a turn of a coding task has. All but the last of a run end in a pause,
// after which the loop asks again: turns without tools.
func pausedStream(stop string) string {
	var b strings.Builder
	event := func(name, data string) { fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", name, data) }
	event("message_start", `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"usage":{"input_tokens":500,"output_tokens":1}}}`)
	event("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`)
	for i := range 300 {
		event("content_block_delta", fmt.Sprintf(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" word%d"}}`, i))
	}
	event("content_block_stop", `{"type":"content_block_stop","index":0}`)
	event("message_delta", fmt.Sprintf(`{"type":"message_delta","delta":{"stop_reason":%q,"stop_sequence":null},"usage":{"output_tokens":300}}`, stop))
	event("message_stop", `{"type":"message_stop"}`)
	return b.String()
}

// streams answers every request with the paused stream, and the last of each run with the end.
type streams struct {
	paused, ended string
	served        atomic.Int64
	mu            sync.Mutex
	sizes         []int
}

func (s *streams) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n, _ := io.Copy(io.Discard, r.Body)
	stream := s.paused
	if s.served.Add(1)%benchTurns == 0 {
		stream = s.ended
	}
	s.mu.Lock()
	s.sizes = append(s.sizes, int(n))
	s.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, stream)
}

// take returns the sizes of the requests since the last call.
func (s *streams) take() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.sizes
	s.sizes = nil
	return out
}

// unsynced is a ledger that counts its barriers and does not wait for the disk.
type unsynced struct {
	loop.Ledger
	syncs *int
}

func (u unsynced) Sync() error { *u.syncs++; return nil }

type fixedLadder struct{ loop.Ladder }

func (f fixedLadder) Current(context.Context) (loop.Ladder, error) { return f.Ladder, nil }

type fixedHealth map[route.Name]breaker.Shared

func (f fixedHealth) Shared() map[route.Name]breaker.Shared { return f }
func (f fixedHealth) Changed() <-chan struct{}              { return nil }

func benchLeg(name, baseURL string) (ladder.Leg, provider.Target) {
	r := route.Route{BaseURL: baseURL, Dialect: route.AnthropicMessages, Model: "m", SecretName: "keys", SecretKey: name}
	price := budget.NewPrice(1_000_000, 2_000_000, nil, nil)
	return ladder.Leg{Name: name, Provider: name, Route: r, ContextWindow: 1_000_000, Price: &price},
		provider.Target{Leg: name, Route: r, Secret: "key", Insecure: provider.InsecureLoopback, MaxOutputTokens: 4096, Timeouts: provider.DefaultTimeouts()}
}

// benchConfig is a run over the legs, on a ledger of its own in dir.
func benchConfig(b *testing.B, book loop.Ledger, dir string, models loop.Models, legs ...func() (ladder.Leg, provider.Target)) loop.Config {
	b.Helper()
	targets := map[string]provider.Target{}
	var chain []ladder.Leg
	for _, make := range legs {
		leg, target := make()
		chain, targets[leg.Name] = append(chain, leg), target
	}
	return loop.Config{
		Identity: loop.Identity{RunUID: testUID, Namespace: "default", Name: "r", Version: "bench"},
		Contract: record.Contract{Task: "Do it. " + strings.Repeat("Mind the details. ", 100), System: strings.Repeat("Be careful. ", 200), Routing: record.Routing{Metered: "Allow"}},
		Ledger:   book, Entries: ledger.Replay(nil, dir), Ladders: fixedLadder{loop.Ladder{Ladder: ladder.New("bench", chain...), Targets: targets}},
		Models: models, Clock: clock.RealClock{}, Random: func() float64 { return 0 },
		Open: func(context.Context) (loop.Workspace, []tools.Tool, error) { return newWorkspace(), nil, nil },
	}
}

func openBook(b *testing.B, dir string) *ledger.Ledger {
	b.Helper()
	book, _, err := ledger.Open(ledger.Options{Dir: dir, RunUID: testUID, Now: time.Now})
	if err != nil {
		b.Fatal(err)
	}
	return book
}

func mustComplete(b *testing.B, cfg loop.Config) {
	b.Helper()
	end, err := loop.Run(b.Context(), cfg)
	if err != nil || end.Finished == nil || end.Finished.Reason != string(loop.Completed) {
		b.Fatalf("%+v, %v", end.Finished, err)
	}
}

// BenchmarkTurn measures what a turn without tools costs beyond the plain way: the same requests with net/http, their
// streams cut into events and decoded into text. Both run in the same process by turns, so that the machine's noise meets
// both. Waiting for the disk is left out, and the barriers are counted instead: fsyncs/turn.
func BenchmarkTurn(b *testing.B) {
	server := &streams{paused: pausedStream("pause_turn"), ended: pausedStream("end_turn")}
	listener := httptest.NewServer(server)
	defer listener.Close()
	client := provider.NewClient(provider.Options{}, anthropic.Dialect{})
	defer client.Close()
	plain := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	defer plain.CloseIdleConnections()

	var added, addedCPU []time.Duration
	var plainCPU time.Duration
	syncs := 0
	for i := 0; b.Loop(); i++ {
		dir := filepath.Join(b.TempDir(), fmt.Sprint(i), testUID)
		book := openBook(b, dir)
		cfg := benchConfig(b, unsynced{book, &syncs}, dir, client, func() (ladder.Leg, provider.Target) { return benchLeg("a", listener.URL) })
		server.take()

		start, cpu := time.Now(), processorTime()
		mustComplete(b, cfg)
		ours, oursCPU := time.Since(start), processorTime()-cpu

		sizes := server.take()
		start, cpu = time.Now(), processorTime()
		for _, size := range sizes {
			plainAttempt(b, plain, listener.URL, bytes.Repeat([]byte("x"), size))
		}
		raw, rawCPU := time.Since(start), processorTime()-cpu
		plainCPU += rawCPU
		added, addedCPU = append(added, (ours-raw)/benchTurns), append(addedCPU, (oursCPU-rawCPU)/benchTurns)
		if err := book.Close(); err != nil {
			b.Fatal(err)
		}
		server.take()
	}
	turns := float64(b.N * benchTurns)
	b.ReportMetric(micro(median(added)), "added-µs/turn")
	b.ReportMetric(micro(median(addedCPU)), "added-CPU-µs/turn")
	b.ReportMetric(micro(plainCPU)/turns, "plain-CPU-µs/turn")
	b.ReportMetric(float64(syncs)/turns, "fsyncs/turn")
}

func micro(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

func plainAttempt(b *testing.B, client *http.Client, url string, body []byte) {
	response, err := client.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	reader := sse.NewReader(response.Body, sse.Limits{})
	var text strings.Builder
	for {
		event, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			b.Fatal(err)
		}
		var delta struct {
			Type  string `json:"type"`
			Delta struct {
				Text string `json:"text"`
			} `json:"delta"`
		}
		if err := json.Unmarshal(event.Data, &delta); err != nil {
			b.Fatal(err)
		}
		text.WriteString(delta.Delta.Text)
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

// instant answers at once, without a socket, and fails the benchmark when a leg is asked that must not be.
type instant struct {
	b         *testing.B
	forbidden string
	asked     int
}

func (m *instant) Prepare(provider.Target, provider.Request) (provider.Prepared, error) {
	return provider.Prepared{SHA256: "0"}, nil
}

func (m *instant) Refused(err error) provider.Attempt {
	m.b.Fatal(err)
	return provider.Attempt{}
}

func (m *instant) Do(_ context.Context, target provider.Target, _ provider.Prepared, _ provider.Try) provider.Attempt {
	if target.Leg == m.forbidden {
		m.b.Fatalf("leg %s was asked although its route is open", target.Leg)
	}
	m.asked++
	answer := &message.Message{Role: message.RoleAssistant, Stop: message.StopPaused, Blocks: []message.Block{{Kind: message.BlockText, Text: "on"}}}
	if m.asked%benchTurns == 0 {
		answer.Stop = message.StopEnd
	}
	return provider.Attempt{Answer: answer}
}

// BenchmarkSkipOfAnOpenLeg measures what a leg with an open route in front of the one that answers adds to a turn.
func BenchmarkSkipOfAnOpenLeg(b *testing.B) {
	first := func() (ladder.Leg, provider.Target) { return benchLeg("a", "http://127.0.0.1:1") }
	second := func() (ladder.Leg, provider.Target) { return benchLeg("b", "http://127.0.0.1:2") }
	leg, _ := first()
	open := fixedHealth{leg.Route.Name(): {UID: "u", Generation: 1, Position: breaker.Open, Trips: 1, OpenUntil: time.Now().Add(time.Hour), LastKind: failure.ServerError}}
	syncs := 0
	run := func(i int, name string, legs ...func() (ladder.Leg, provider.Target)) time.Duration {
		dir := filepath.Join(b.TempDir(), fmt.Sprint(name, i), testUID)
		book := openBook(b, dir)
		cfg := benchConfig(b, unsynced{book, &syncs}, dir, &instant{b: b, forbidden: "a"}, legs...)
		cfg.Health = open
		ladders := cfg.Ladders.(fixedLadder)
		ladders.Breaker.MaxCooldown = 2 * time.Hour
		cfg.Ladders = ladders
		start := time.Now()
		mustComplete(b, cfg)
		took := time.Since(start)
		if err := book.Close(); err != nil {
			b.Fatal(err)
		}
		return took / benchTurns
	}
	var added []time.Duration
	for i := 0; b.Loop(); i++ {
		without := run(i, "without", second)
		added = append(added, run(i, "with", first, second)-without)
	}
	b.ReportMetric(micro(median(added)), "added-µs/turn")
}

// stopwatch measures from the end of leg a's request to the first byte that is written to leg b.
type stopwatch struct {
	loop.Models
	mu    sync.Mutex
	from  time.Time
	took  []time.Duration
	syncs int
	armed bool
}

func (s *stopwatch) Do(ctx context.Context, t provider.Target, p provider.Prepared, try provider.Try) provider.Attempt {
	out := s.Models.Do(ctx, t, p, try)
	if t.Leg == "a" {
		s.mu.Lock()
		s.from, s.armed = time.Now(), true
		s.mu.Unlock()
	}
	return out
}

// written stops the watch at the first byte.
func (s *stopwatch) written() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.armed {
		s.armed, s.took = false, append(s.took, time.Since(s.from))
	}
}

type timedConn struct {
	net.Conn
	watch *stopwatch
}

func (c timedConn) Write(p []byte) (int, error) {
	c.watch.written()
	return c.Conn.Write(p)
}

// timedLedger waits for the disk, and counts how often while the watch runs.
type timedLedger struct {
	loop.Ledger
	watch *stopwatch
	wait  *time.Duration
}

func (l timedLedger) Sync() error {
	start := time.Now()
	err := l.Ledger.Sync()
	l.watch.mu.Lock()
	defer l.watch.mu.Unlock()
	if l.watch.armed {
		l.watch.syncs++
		*l.wait += time.Since(start)
	}
	return err
}

// BenchmarkAdvance measures the way from a leg that failed for good to the next: from the end of its answer to the first
// byte sent to the next leg, on a disk that is waited for. fsync-µs is the part of it that was waiting for the disk.
func BenchmarkAdvance(b *testing.B) {
	spent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusPaymentRequired)
		_, _ = io.WriteString(w, `{"type":"error","error":{"type":"billing_error","message":"x"}}`)
	}))
	defer spent.Close()
	next := httptest.NewServer(&streams{paused: pausedStream("end_turn"), ended: pausedStream("end_turn")})
	defer next.Close()
	watch := &stopwatch{}
	client := provider.NewClient(provider.Options{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		if err == nil && address == next.Listener.Addr().String() {
			c = timedConn{c, watch}
		}
		return c, err
	}}, anthropic.Dialect{})
	defer client.Close()
	watch.Models = client
	var disk time.Duration
	for i := 0; b.Loop(); i++ {
		dir := filepath.Join(b.TempDir(), fmt.Sprint(i), testUID)
		book := openBook(b, dir)
		mustComplete(b, benchConfig(b, timedLedger{book, watch, &disk}, dir, watch,
			func() (ladder.Leg, provider.Target) { return benchLeg("a", spent.URL) },
			func() (ladder.Leg, provider.Target) { return benchLeg("b", next.URL) }))
		if err := book.Close(); err != nil {
			b.Fatal(err)
		}
	}
	if len(watch.took) != b.N {
		b.Fatalf("%d advances in %d runs", len(watch.took), b.N)
	}
	b.ReportMetric(micro(median(watch.took)), "advance-µs/op")
	b.ReportMetric(micro(disk)/float64(b.N), "fsync-µs/op")
	b.ReportMetric(float64(watch.syncs)/float64(b.N), "fsyncs/op")
}
