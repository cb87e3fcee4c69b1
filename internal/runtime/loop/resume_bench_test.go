package loop_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"belay.dev/belay/internal/runtime/budget"
	"belay.dev/belay/internal/runtime/ladder"
	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/loop"
	"belay.dev/belay/internal/runtime/message"
	"belay.dev/belay/internal/runtime/provider"
)

// resumeTurns is the length of the run that BenchmarkResumeRun goes on with, unless BELAY_BENCH_TURNS says another. A turn
// takes about 100 KiB: 10,000 turns are a ledger of 1 GB.
const resumeTurns = 1000

// toolText is what a tool shows to the model: at most 32 KiB of lines.
func toolText(n int) string {
	line := fmt.Sprintf("%06d  \"quoted\" and <escaped> output of a build, with a path such as internal/runtime/loop\n", n)
	return strings.Repeat(line, 30_000/len(line))
}

// writeRun fills a ledger with a run of so many turns of three calls each, and returns its size and that of its conversation.
func writeRun(b *testing.B, dir string, turns int, contract record.Contract) (size, conversation int64) {
	b.Helper()
	book := openBook(b, dir)
	write := func(payloads ...any) {
		for _, p := range payloads {
			data, err := record.Encode(p, nil)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := book.Append(string(record.TypeOf(p)), record.TypeOf(p).Critical(), data); err != nil {
				b.Fatal(err)
			}
		}
	}
	leg, _ := benchLeg("a", "http://127.0.0.1:1")
	charge := budget.Charge{Usage: budget.Usage{InputTokens: 50_000, OutputTokens: 500}, CostMicroUSD: 51_000}
	write(record.RunStart{RunUID: testUID, Namespace: "default", Name: "r", Contract: contract, ContractSHA256: contract.SHA256()}, record.EpochStart{Version: "bench"})
	for turn := 1; turn <= turns; turn++ {
		answer := message.Message{Role: message.RoleAssistant, Stop: message.StopCalls, Blocks: []message.Block{{Kind: message.BlockText, Text: strings.Repeat("I look at the next file. ", 40)}}}
		var calls []any
		for i := range 3 {
			id := message.CallID(testUID, turn, i, 0)
			answer.Blocks = append(answer.Blocks, message.Block{Kind: message.BlockCall, Call: &message.Call{ID: id, Name: "act", Arguments: []byte(`{"count":` + strconv.Itoa(turn) + `}`)}})
			text := toolText(3*turn + i)
			conversation += int64(len(text))
			calls = append(calls, record.ToolStart{Turn: turn, Call: id, Attempt: 1, Tool: "act", Effect: "Supervised", ArgsSHA256: strings.Repeat("0", 64)},
				record.ToolResult{Turn: turn, Attempt: 1, Result: message.Result{CallID: id, Name: "act", Status: message.ResultOK, Text: text}})
		}
		write(record.TurnPlan{Turn: turn, PlannerVersion: 1, Legs: []string{"a"}},
			record.LLMRequest{Turn: turn, Attempt: turn, Leg: "a", Route: leg.Route.Name(), Try: 1, RequestSHA256: strings.Repeat("0", 64), Reserved: charge},
			record.LLMAttempt{Turn: turn, Attempt: turn, Leg: "a", Route: leg.Route.Name(), CircuitState: "Closed", Charge: charge},
			record.LLMResponse{Turn: turn, Attempt: turn, Leg: "a", Message: answer})
		write(calls...)
		write(record.TurnEnd{Turn: turn})
		conversation += int64(len(answer.Text()))
	}
	size = book.Stats().Bytes
	if err := book.Close(); err != nil {
		b.Fatal(err)
	}
	return size, conversation
}

// BenchmarkResumeRun goes on with a long run: it opens the ledger, which verifies every record, folds it into the state, and
// stops where the next turn would begin. heap/context is the live heap after that over the size of the conversation, and
// peak/context the most that the process held on the way.
func BenchmarkResumeRun(b *testing.B) {
	turns := resumeTurns
	if s := os.Getenv("BELAY_BENCH_TURNS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			b.Fatalf("BELAY_BENCH_TURNS is %q, want a number from 1", s)
		}
		turns = n
	}
	dir := filepath.Join(b.TempDir(), testUID)
	cfg := benchConfig(b, nil, dir, &instant{b: b}, func() (ladder.Leg, provider.Target) { return benchLeg("a", "http://127.0.0.1:1") })
	cfg.Limits = record.Limits{MaxTurns: turns}
	size, conversation := writeRun(b, dir, turns, cfg.Contract)
	b.SetBytes(size)
	b.ReportAllocs()
	var live, peak uint64
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		// A run that has its end on record would not be folded to the same state; each resume has a copy of its own.
		copied := filepath.Join(b.TempDir(), "copy", testUID)
		if err := os.RemoveAll(copied); err != nil {
			b.Fatal(err)
		}
		if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
			b.Fatal(err)
		}
		runtime.GC()
		sampled := make(chan uint64)
		stop := make(chan struct{})
		go samplePeak(stop, sampled)
		b.StartTimer()

		book := openBook(b, copied)
		cfg.Ledger, cfg.Entries = book, ledger.Replay(nil, copied)
		end, err := loop.Run(b.Context(), cfg)
		b.StopTimer()
		if err != nil || end.Finished == nil || end.Finished.Reason != budget.ReasonMaxTurnsReached || end.State.Committed != turns {
			b.Fatalf("%+v, %v", end.Finished, err)
		}
		close(stop)
		peak = max(peak, <-sampled)
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		live = max(live, m.HeapAlloc)
		runtime.KeepAlive(end)
		if err := book.Close(); err != nil {
			b.Fatal(err)
		}
		debug.FreeOSMemory()
		b.StartTimer()
	}
	b.ReportMetric(float64(size)/1e6, "MB")
	b.ReportMetric(float64(live)/float64(conversation), "heap/context")
	b.ReportMetric(float64(peak)/float64(conversation), "peak/context")
}

// samplePeak watches the heap until it is told to stop.
func samplePeak(stop <-chan struct{}, out chan<- uint64) {
	var most uint64
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		most = max(most, m.HeapAlloc)
		select {
		case <-tick.C:
		case <-stop:
			out <- most
			return
		}
	}
}
