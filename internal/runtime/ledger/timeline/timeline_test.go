package timeline_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"belay.dev/belay/internal/runtime/budget"
	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/ledger/timeline"
	"belay.dev/belay/internal/runtime/message"
)

// signature must not leave the ledger.
const signature = "opaque-signature"

func at(clock string) time.Time {
	t, err := time.Parse("2006-01-02 15:04:05", "2026-01-01 "+clock)
	if err != nil {
		panic(err)
	}
	return t
}

// book collects entries as a run would write them.
type book struct {
	entries []ledger.Entry
	epoch   uint64
	blobs   map[string][]byte
}

func (b *book) add(t *testing.T, clock string, payload any) {
	t.Helper()
	data, err := record.Encode(payload, func(large []byte) (record.Blob, error) {
		b.blobs[string(rune('0'+len(b.blobs)))] = large
		return record.Blob{SHA256: string(rune('0' + len(b.blobs) - 1)), Size: int64(len(large))}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	b.raw(clock, string(record.TypeOf(payload)), data)
}

func (b *book) raw(clock, typ string, data []byte) {
	b.entries = append(b.entries, ledger.Entry{
		Seq: uint64(len(b.entries) + 1), Epoch: b.epoch, At: at(clock), Type: typ, Data: data,
	})
}

func (b *book) blob(ref record.Blob) ([]byte, error) {
	if data, ok := b.blobs[ref.SHA256]; ok {
		return data, nil
	}
	return nil, errors.New("no such blob")
}

func (b *book) all() iter.Seq2[ledger.Entry, error] {
	return func(yield func(ledger.Entry, error) bool) {
		for _, e := range b.entries {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func call(id, name, arguments string) message.Block {
	return message.Block{
		Kind: message.BlockCall, Call: &message.Call{ID: id, Name: name, Arguments: json.RawMessage(arguments)},
		Credentials: []message.Credential{{Kind: "signature", Data: []byte(signature)}},
	}
}

// incident is a run whose primary leg fails, which loses its pod in the midst of a
// request and of a tool call, and which parks before it completes.
func incident(t *testing.T) *book {
	t.Helper()
	until := at("10:00:33")
	b := &book{epoch: 1, blobs: map[string][]byte{}}
	b.add(t, "10:00:00", record.RunStart{
		RunUID: "6d0d5a2e", Namespace: "demo", Name: "nightly", Ladder: record.Ladder{Name: "main", Generation: 3},
		Contract: record.Contract{System: "Be brief.", Task: "Write the nightly report.\nThen stop."},
	})
	b.add(t, "10:00:00", record.EpochStart{PodName: "nightly-1", Version: "v0.1.0"})
	b.add(t, "10:00:00", record.TurnPlan{Turn: 1, Legs: []string{"a", "b"}, Skipped: []record.Skipped{
		{Leg: "c", Reason: "NoPrice"}, {Leg: "d", Reason: "Open", Until: &until},
	}})
	b.add(t, "10:00:01", record.LLMRequest{Turn: 1, Attempt: 1, Leg: "a", Reserved: budget.Charge{CostMicroUSD: 500}})
	b.add(t, "10:00:01", record.LLMAttempt{Turn: 1, Attempt: 1, Leg: "a", DurationMilliseconds: 212, Failure: &failure.Failure{
		Kind: failure.ServerError, HTTPStatus: 503, Message: "the provider answered 503",
	}})
	b.add(t, "10:00:01", record.RetryScheduled{Turn: 1, Leg: "a", Kind: failure.ServerError, DelayMilliseconds: 1500, Reason: "Backoff"})
	b.add(t, "10:00:03", record.LLMRequest{Turn: 1, Attempt: 2, Leg: "a", Reserved: budget.Charge{CostMicroUSD: 500}})
	b.add(t, "10:00:03", record.LLMAttempt{Turn: 1, Attempt: 2, Leg: "a", DurationMilliseconds: 75, Failure: &failure.Failure{
		Kind: failure.Network, Message: "connection refused",
	}})
	b.add(t, "10:00:03", record.BreakerChanged{Leg: "a", From: "Closed", To: "Open", Until: &until, Kind: failure.Network})
	b.add(t, "10:00:03", record.RouteFallback{Turn: 1, From: "a", To: "b", Kind: failure.Network, Reason: "BreakerOpened"})
	b.add(t, "10:00:03", record.LLMRequest{Turn: 1, Attempt: 3, Leg: "b", Reserved: budget.Charge{CostMicroUSD: 900}})
	b.add(t, "10:00:06", record.LLMAttempt{
		Turn: 1, Attempt: 3, Leg: "b", FailoverFrom: "a", DurationMilliseconds: 2150,
		Charge: budget.Charge{Usage: budget.Usage{InputTokens: 1200, OutputTokens: 80}, CostMicroUSD: 4200},
	})
	b.add(t, "10:00:06", record.LLMResponse{Turn: 1, Attempt: 3, Leg: "b", Message: message.Message{
		Role: message.RoleAssistant, Origin: &message.Scope{Model: "m2"}, Stop: message.StopCalls,
		Blocks: []message.Block{{Kind: message.BlockText, Text: "I look\naround."}, call("Ab3dE9xQ1", "shell", `{"command":"ls"}`), call("Zz3dE9xQ2", "write", `{"path":"report"}`)},
	}})
	b.add(t, "10:00:06", record.ToolStart{Turn: 1, Call: "Ab3dE9xQ1", Attempt: 1, Tool: "shell", Effect: "Supervised"})
	b.add(t, "10:00:07", record.ToolResult{Turn: 1, Attempt: 1, DurationMilliseconds: 730, Result: message.Result{
		CallID: "Ab3dE9xQ1", Name: "shell", Status: message.ResultError, ErrorKind: "ExecutionFailed", Text: "exit status 2\x1b[31m red",
	}})
	b.add(t, "10:00:07", record.ToolStart{Turn: 1, Call: "Zz3dE9xQ2", Attempt: 1, Tool: "write", Effect: "Opaque"})
	b.epoch = 2
	b.raw("10:05:00", "recovered", []byte(`{"runUID":"6d0d5a2e","segment":1,"offset":4000,"seq":17,"size":70,"saved":"torn/17-4000"}`))
	b.add(t, "10:05:00", record.EpochStart{PodName: "nightly-2", Version: "v0.1.0", ReplayedTurns: 1})
	b.add(t, "10:05:00", record.ToolResult{Turn: 1, Attempt: 1, Recovered: true, Result: message.Result{
		CallID: "Zz3dE9xQ2", Name: "write", Status: message.ResultInDoubt, Text: "The call was started; its outcome was not observed.",
	}})
	b.add(t, "10:05:00", record.Control{Turn: 1, Kind: record.ControlInDoubt, Text: "Check the state before repeating."})
	b.add(t, "10:05:00", record.TurnEnd{Turn: 1})
	b.add(t, "10:05:01", record.LLMRequest{Turn: 2, Attempt: 4, Leg: "b", Reserved: budget.Charge{
		Usage: budget.Usage{InputTokens: 1300, OutputTokens: 700}, CostMicroUSD: 9000,
	}})
	b.epoch = 3
	b.add(t, "10:09:00", record.EpochStart{PodName: "nightly-3", Version: "v0.1.0", ReplayedTurns: 1})
	b.add(t, "10:09:01", record.RunPark{Turn: 2, Reason: "RoutesUnavailable", Until: at("10:30:00"), Message: "all allowed legs are open"})
	b.epoch = 4
	b.add(t, "10:30:00", record.EpochStart{PodName: "nightly-4", Version: "v0.1.0", ReplayedTurns: 1})
	b.add(t, "10:30:00", record.LLMRequest{Turn: 2, Attempt: 5, Leg: "b"})
	// The wall clock steps back.
	b.add(t, "10:20:00", record.LLMAttempt{
		Turn: 2, Attempt: 5, Leg: "b", DurationMilliseconds: 61000,
		Charge: budget.Charge{Usage: budget.Usage{InputTokens: 1500, OutputTokens: 20, Estimated: true}, CostMicroUSD: 800},
	})
	b.add(t, "10:20:00", record.LLMResponse{Turn: 2, Attempt: 5, Leg: "b", Message: message.Message{
		Role: message.RoleAssistant, Stop: message.StopEnd, Blocks: []message.Block{{Kind: message.BlockText, Text: "Done."}},
	}})
	b.raw("10:20:00", "weather.report", []byte(`{"sky":"grey","credentials":"x"}`))
	b.add(t, "10:20:01", record.RunEnd{Turn: 2, Reason: "Completed", Message: "the model has ended its work", Text: "Done."})
	return b
}

const incidentText = `2026-01-01
10:00:00  run demo/nightly, ladder main (generation 3)
10:00:00    task: Write the nightly report. Then stop.
10:00:00  epoch 1 in pod nightly-1 (belay v0.1.0)
10:00:00  turn 1
10:00:00    plan a, b; skipped c (NoPrice), d (Open until 10:00:33)
10:00:01    a failed in 212ms: ServerError (HTTP 503): the provider answered 503
10:00:01    wait 1.5s, then a again (Backoff, ServerError)
10:00:03    a failed in 75ms: Network: connection refused
10:00:03    breaker of a: Closed -> Open until 10:00:33 (Network)
10:00:03    fallback a -> b (BreakerOpened, Network)
10:00:06    b (from a) answered in 2.1s, 1200 in + 80 out tokens, $0.0042
10:00:06    says: I look around.
10:00:06    calls Ab3dE9xQ1 shell {"command":"ls"}
10:00:06    calls Zz3dE9xQ2 write {"path":"report"}
10:00:06    start Ab3dE9xQ1 shell (Supervised)
10:00:07    Ab3dE9xQ1 shell: Error (ExecutionFailed) in 730ms
10:00:07      exit status 2` + "\ufffd" + `[31m red
10:00:07    start Zz3dE9xQ2 write (Opaque)
10:05:00  recovered: a crash tore record 17; its 70 bytes are kept in
            torn/17-4000
10:05:00  epoch 2 in pod nightly-2, resumed: 1 turn replayed (belay v0.1.0)
10:05:00  turn 1
10:05:00    Zz3dE9xQ2 write: InDoubt, recovered
10:05:00    control InDoubt: Check the state before repeating.
10:05:01  turn 2
10:09:00    request 4 to b was lost with its process; $0.009 reserved for it are
              charged
10:09:00  epoch 3 in pod nightly-3, resumed: 1 turn replayed (belay v0.1.0)
10:09:01  parked until 10:30:00 (RoutesUnavailable): all allowed legs are open
10:30:00  epoch 4 in pod nightly-4, resumed: 1 turn replayed (belay v0.1.0)
10:30:00  turn 2
10:20:00    b answered in 1m01s, about 1500 in + 20 out tokens, $0.0008
10:20:00    says: Done.
10:20:00  record 29 has the type weather.report, which this version does not
            know
10:20:01  ended: Completed: the model has ended its work
10:20:01    answer: Done.

Completed: 2 turns in 4 epochs; 5 requests, 2 failed, 1 lost; 1 fallback; 1
wait; parked 1 time; 2 calls, 1 failed, 1 in doubt
cost $0.014, 4800 tokens
a: $0.00, 0 in + 0 out tokens
b: $0.014, 4000 in + 800 out tokens
`

func TestTimelineTellsTheStoryOfARun(t *testing.T) {
	b := incident(t)
	var out bytes.Buffer
	if err := timeline.Write(&out, b.all(), timeline.Options{Blob: b.blob}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(incidentText, out.String()); diff != "" {
		t.Errorf("timeline (-want +got):\n%s", diff)
	}
}

func TestNoLineIsWiderThanAsked(t *testing.T) {
	b := incident(t)
	b.add(t, "10:40:00", record.Diagnostic{Turn: 3, Reason: "SomethingLong", Text: strings.Repeat("word ", 50) + strings.Repeat("ä", 300)})
	b.add(t, "10:40:00", record.Control{Turn: 3, Kind: "Note", Text: strings.Repeat("long words ", 100)})
	for _, width := range []int{0, 40, 60, 80, 132} {
		var out bytes.Buffer
		if err := timeline.Write(&out, b.all(), timeline.Options{Width: width, Blob: b.blob}); err != nil {
			t.Fatal(err)
		}
		limit := width
		if width == 0 {
			limit = 80
		}
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > limit {
				t.Errorf("width %d: a line of %d characters: %s", width, n, line)
			}
		}
	}
}

func TestTimesAreShownInTheZoneAskedFor(t *testing.T) {
	b := incident(t)
	var out bytes.Buffer
	zone := time.FixedZone("far east", 14*3600)
	if err := timeline.Write(&out, b.all(), timeline.Options{Location: zone}); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out.String(), "2026-01-02\n00:00:00  run demo/nightly") || !strings.Contains(out.String(), "until 00:00:33") {
		t.Errorf("begins with %.60q", out.String())
	}
}

// Text from models, tools and providers is not to be trusted: it may try to move the
// cursor, hide itself or forge lines.
func TestUntrustedTextCannotControlTheTerminal(t *testing.T) {
	b := &book{epoch: 1, blobs: map[string][]byte{}}
	hostile := "a\x1b[2J\x07\u202eb\u200b\r\n10:00:00  ended: Completed\u0085\x9b31m"
	b.add(t, "10:00:00", record.LLMResponse{Turn: 1, Leg: hostile, Message: message.Message{Blocks: []message.Block{
		{Kind: message.BlockText, Text: hostile}, call("Ab3dE9xQ1", hostile, `{}`),
		{Kind: message.BlockCall, Call: &message.Call{ID: "x", Name: "y", RawArguments: hostile}},
	}}})
	b.add(t, "10:00:00", record.ToolResult{Turn: 1, Result: message.Result{CallID: "x", Name: hostile, Status: message.ResultError, Text: hostile}})
	b.add(t, "10:00:00", record.Diagnostic{Turn: 1, Reason: hostile, Text: hostile})
	b.add(t, "10:00:00", record.RunEnd{Reason: hostile, Message: hostile, Text: hostile})
	b.raw("10:00:00", "note", []byte(`{}`))
	var out bytes.Buffer
	if err := timeline.Write(&out, b.all(), timeline.Options{}); err != nil {
		t.Fatal(err)
	}
	for _, r := range out.String() {
		if r != '\n' && (r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) || r == '\u202e' || r == '\u200b') {
			t.Errorf("%q in the output", r)
		}
	}
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "10:00:00  ended: Completed") {
			t.Errorf("a forged line: %s", line)
		}
	}
}

func TestJSONHasOneObjectForEachRecordAndNoCredential(t *testing.T) {
	b := incident(t)
	var out bytes.Buffer
	if err := timeline.Write(&out, b.all(), timeline.Options{Format: timeline.JSON, Blob: b.blob}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != len(b.entries) {
		t.Fatalf("%d lines for %d records", len(lines), len(b.entries))
	}
	for i, line := range lines {
		var event struct {
			Seq  uint64         `json:"seq"`
			Type string         `json:"type"`
			Data map[string]any `json:"data"`
		}
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatalf("line %d: %v", i+1, err)
		}
		if event.Seq != uint64(i+1) || event.Type != b.entries[i].Type || event.Data == nil {
			t.Errorf("line %d is %s", i+1, line)
		}
	}
	want := `{"seq":14,"epoch":1,"at":"2026-01-01T10:00:06Z","type":"tool.start","data":{"turn":1,"call":"Ab3dE9xQ1","attempt":1,"tool":"shell","effect":"Supervised","argsSHA256":"","deadline":"0001-01-01T00:00:00Z"}}`
	if lines[13] != want {
		t.Errorf("line 14 is\n%s, want\n%s", lines[13], want)
	}
	noCredential(t, out.String())
}

func noCredential(t *testing.T, out string) {
	t.Helper()
	encoded, err := json.Marshal([]byte(signature))
	if err != nil {
		t.Fatal(err)
	}
	for _, forbidden := range []string{signature, string(bytes.Trim(encoded, `"`)), "credentials"} {
		if strings.Contains(out, forbidden) {
			t.Errorf("the output contains %q", forbidden)
		}
	}
}

func TestExportIsTheConversationAndNothingElse(t *testing.T) {
	b := incident(t)
	var out bytes.Buffer
	if err := timeline.Export(&out, b.all(), timeline.ExportOptions{Blob: b.blob}); err != nil {
		t.Fatal(err)
	}
	want := `{"run":{"version":1,"namespace":"demo","name":"nightly","uid":"6d0d5a2e","system":"Be brief.","task":"Write the nightly report.\nThen stop."}}
{"message":{"seq":13,"turn":1,"leg":"b","model":"m2","role":"Assistant","blocks":[{"kind":"Text","text":"I look\naround."},{"kind":"Call","call":{"id":"Ab3dE9xQ1","name":"shell","arguments":{"command":"ls"}}},{"kind":"Call","call":{"id":"Zz3dE9xQ2","name":"write","arguments":{"path":"report"}}}],"stop":"Calls"}}
{"message":{"seq":15,"turn":1,"role":"Tool","blocks":[{"kind":"Result","result":{"callID":"Ab3dE9xQ1","name":"shell","status":"Error","errorKind":"ExecutionFailed","text":"exit status 2\u001b[31m red"}}]}}
{"message":{"seq":19,"turn":1,"role":"Tool","blocks":[{"kind":"Result","result":{"callID":"Zz3dE9xQ2","name":"write","status":"InDoubt","text":"The call was started; its outcome was not observed."}}]}}
{"message":{"seq":20,"turn":1,"role":"Control","blocks":[{"kind":"Text","text":"Check the state before repeating."}]}}
{"message":{"seq":28,"turn":2,"leg":"b","role":"Assistant","blocks":[{"kind":"Text","text":"Done."}],"stop":"End"}}
{"end":{"reason":"Completed","message":"the model has ended its work","text":"Done."}}
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("transcript (-want +got):\n%s", diff)
	}
	noCredential(t, out.String())
}

func TestLargePayloadsAreFetchedFromTheirBlobs(t *testing.T) {
	b := &book{epoch: 1, blobs: map[string][]byte{}}
	b.add(t, "10:00:00", record.RunStart{Namespace: "demo", Name: "nightly"})
	long := strings.Repeat("x", record.MaxInline)
	b.add(t, "10:00:00", record.ToolResult{Turn: 1, Result: message.Result{CallID: "Ab3dE9xQ1", Name: "shell", Status: message.ResultOK, Text: long}})
	if len(b.blobs) != 1 {
		t.Fatal("the payload was not put into a blob")
	}
	var out bytes.Buffer
	if err := timeline.Export(&out, b.all(), timeline.ExportOptions{Blob: b.blob}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), long) {
		t.Error("the transcript lacks the text")
	}
	// A timeline goes on without the blob, a transcript does not.
	out.Reset()
	if err := timeline.Write(&out, b.all(), timeline.Options{}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "record 2 (tool.result) cannot be read") {
		t.Errorf("the timeline says\n%s", &out)
	}
	if err := timeline.Export(&out, b.all(), timeline.ExportOptions{}); err == nil || !strings.Contains(err.Error(), "record 2") {
		t.Errorf("exporting without the blob: %v, want an error that names record 2", err)
	}
}

func TestErrorOfTheLedgerComesAfterWhatWasReadable(t *testing.T) {
	b := incident(t)
	damage := &ledger.CorruptError{Segment: "ledger.jsonl", Seq: 3}
	damaged := func(yield func(ledger.Entry, error) bool) {
		for _, e := range b.entries[:2] {
			if !yield(e, nil) {
				return
			}
		}
		yield(ledger.Entry{}, damage)
	}
	var out bytes.Buffer
	if err := timeline.Write(&out, damaged, timeline.Options{}); !errors.Is(err, damage) {
		t.Errorf("writing: %v, want the ledger's error", err)
	}
	if !strings.Contains(out.String(), "epoch 1 in pod nightly-1") || strings.Contains(out.String(), "cost") {
		t.Errorf("the timeline says\n%s", &out)
	}
	if err := timeline.Export(&out, damaged, timeline.ExportOptions{}); !errors.Is(err, damage) {
		t.Errorf("exporting: %v, want the ledger's error", err)
	}
}

func TestEmptyLedger(t *testing.T) {
	var out bytes.Buffer
	empty := (&book{}).all()
	if err := timeline.Write(&out, empty, timeline.Options{}); err != nil || out.Len() != 0 {
		t.Errorf("an empty timeline: %v, %q", err, &out)
	}
	if err := timeline.Export(&out, empty, timeline.ExportOptions{}); err == nil {
		t.Error("a transcript of nothing was written")
	}
	if err := timeline.Write(&out, empty, timeline.Options{Format: "yaml"}); err == nil {
		t.Error("format yaml was accepted")
	}
}

// Every record type has its line: a new one must not be forgotten here.
func TestEveryRecordTypeHasALine(t *testing.T) {
	payloads := []any{
		record.RunStart{}, record.EpochStart{}, record.TurnPlan{}, record.LLMRequest{}, record.LLMAttempt{}, record.RetryScheduled{},
		record.RouteFallback{}, record.BreakerChanged{}, record.LLMResponse{}, record.ToolStart{}, record.ToolResult{}, record.Control{},
		record.Diagnostic{}, record.TurnEnd{}, record.RunPark{}, record.RunSuspend{}, record.RunEnd{},
	}
	b := &book{epoch: 1, blobs: map[string][]byte{}}
	for _, p := range payloads {
		b.add(t, "10:00:00", p)
	}
	var out bytes.Buffer
	if err := timeline.Write(&out, b.all(), timeline.Options{}); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"has no line", "does not know", "cannot be read"} {
		if i := slices.IndexFunc(strings.Split(out.String(), "\n"), func(l string) bool { return strings.Contains(l, bad) }); i >= 0 {
			t.Errorf("line %d of the timeline says %q:\n%s", i+1, bad, &out)
		}
	}
}
