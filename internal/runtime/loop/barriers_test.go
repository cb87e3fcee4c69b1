package loop_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"belay.dev/belay/internal/runtime/ladder"
	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/loop"
	"belay.dev/belay/internal/runtime/message"
	"belay.dev/belay/internal/runtime/provider"
	"belay.dev/belay/internal/runtime/tools"
)

// TestATurnWaitsForTheDiskAsOftenAsItMust counts the fsyncs of each turn, from its plan to the next one's. A request is on
// disk before it is sent; so is the start of a call before its dispatch, which one barrier does for calls that only read.
func TestATurnWaitsForTheDiskAsOftenAsItMust(t *testing.T) {
	s := newScene(t, `legs: {a: {steps: [
	  {answer: "cut", finishReason: length},
	  {calls: [{name: look, arguments: {count: 1}}, {name: look, arguments: {count: 2}}, {name: look, arguments: {count: 3}}, {name: look, arguments: {count: 4}}]},
	  {calls: [{name: act, arguments: {count: 1}}, {name: post, arguments: {count: 2}}, {name: act, arguments: {count: 3}}, {name: post, arguments: {count: 4}}]},
	  {calls: [{name: look, arguments: {count: 5}}, {name: look, arguments: {count: 6}}, {name: act, arguments: {count: 7}}, {name: missing, arguments: {}}]},
	  {answer: "done"}]}}`, "a")
	tight(s)
	var book *ledger.Ledger
	s.disk = func(l loop.Ledger) loop.Ledger { book = l.(*ledger.Ledger); return l }
	s.workspace.answer = func(c tools.Call) tools.Outcome {
		if durable, written := int64(book.Head().Seq), book.Stats().Records; durable != written {
			t.Errorf("%s was dispatched with %d of %d records on disk", c.Tool, durable, written)
		}
		return tools.Outcome{Status: tools.OK, Text: "done"}
	}
	var at []int64
	s.watch = func(p any) {
		switch p.(type) {
		case *record.TurnPlan, *record.RunEnd:
			at = append(at, book.Stats().FileSyncs)
		}
	}
	s.expectEnd("Completed", "done")
	var got []int64
	for i := 1; i < len(at); i++ {
		got = append(got, at[i]-at[i-1])
	}
	if want := []int64{1, 2, 5, 3, 1}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("fsyncs %v, want %v: an answer alone, four calls that read, four in order, both, an answer alone", got, want)
	}
}

// caller answers with the calls of one kind, and ends each run after benchTurns answers.
type caller struct {
	instant
	calls []string
	turns int
}

func (m *caller) Do(ctx context.Context, target provider.Target, p provider.Prepared, try provider.Try) provider.Attempt {
	out := m.instant.Do(ctx, target, p, try)
	if out.Answer.Stop == message.StopEnd {
		return out
	}
	out.Answer.Stop = message.StopCalls
	m.turns++ // each turn asks for something else: a run that repeats itself is stopped
	for _, name := range m.calls {
		arguments := fmt.Appendf(nil, `{"count":%d}`, m.turns)
		out.Answer.Blocks = append(out.Answer.Blocks, message.Block{Kind: message.BlockCall, Call: &message.Call{Name: name, Arguments: arguments}})
	}
	return out
}

// BenchmarkToolTurn measures turns with tool calls on a disk that is waited for, and counts how often: fsyncs/turn.
func BenchmarkToolTurn(b *testing.B) {
	for _, c := range []struct {
		name  string
		calls []string
	}{
		{"four calls that read", []string{"look", "look", "look", "look"}},
		{"four calls in order", []string{"act", "post", "act", "post"}},
	} {
		b.Run(strings.ReplaceAll(c.name, " ", "-"), func(b *testing.B) {
			syncs := int64(0)
			for i := 0; b.Loop(); i++ {
				dir := filepath.Join(b.TempDir(), fmt.Sprint(i), testUID)
				book := openBook(b, dir)
				before := book.Stats().FileSyncs
				cfg := benchConfig(b, book, dir, &caller{instant: instant{b: b}, calls: c.calls},
					func() (ladder.Leg, provider.Target) { return benchLeg("a", "http://127.0.0.1:1") })
				cfg.Open = func(context.Context) (loop.Workspace, []tools.Tool, error) {
					w := newWorkspace()
					return w, w.tools, nil
				}
				mustComplete(b, cfg)
				syncs += book.Stats().FileSyncs - before
				if err := book.Close(); err != nil {
					b.Fatal(err)
				}
			}
			// The start and the end of each run have a barrier of their own.
			b.ReportMetric(float64(syncs-2*int64(b.N))/float64(b.N*benchTurns), "fsyncs/turn")
			b.ReportMetric(micro(b.Elapsed())/float64(b.N*benchTurns), "µs/turn")
		})
	}
}
