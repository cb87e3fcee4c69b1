package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"belay.dev/belay/internal/runtime/budget"
	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/message"
)

// every is one payload of every type, by its type.
func every() map[Type]any {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	charge := budget.Charge{Usage: budget.Usage{InputTokens: 3, OutputTokens: 4, Estimated: true}, CostMicroUSD: 5}
	return map[Type]any{
		"run.start": &RunStart{RunUID: "u", Namespace: "n", Name: "r", ContractSHA256: "ab", Ladder: Ladder{Name: "l", UID: "v", Generation: 2}, Warnings: []string{"w"},
			Contract: Contract{Task: "t", System: "s", Tools: []ToolGrant{{Name: "shell", Timeout: time.Minute}}, Routing: Routing{Metered: "Allow", Legs: []string{"a"}}}},
		"epoch.start":     &EpochStart{PodName: "p", PodUID: "u", Version: "v", BootID: "b", ReplayedTurns: 3},
		"turn.plan":       &TurnPlan{Turn: 1, PlannerVersion: 1, Legs: []string{"a"}, Skipped: []Skipped{{Leg: "b", Reason: "RouteOpen", Until: &at}}},
		"llm.request":     &LLMRequest{Turn: 1, Attempt: 2, Leg: "a", Route: "h-m-0123456789", FailoverFrom: "b", Try: 1, RequestSHA256: "ab", BodyBytes: 9, Reserved: charge, Probe: true},
		"llm.attempt":     &LLMAttempt{Turn: 1, Attempt: 2, Leg: "a", CircuitState: "Closed", Failure: &failure.Failure{Kind: failure.Timeout, Message: "m"}, Charge: charge, Partial: &Blob{SHA256: "ab", Size: 1}},
		"retry.scheduled": &RetryScheduled{Turn: 1, Leg: "a", Kind: failure.Timeout, DelayMilliseconds: 500, Reason: "Backoff"},
		"route.fallback":  &RouteFallback{Turn: 1, From: "a", To: "b", Kind: failure.Timeout, Reason: "TriesSpent"},
		"breaker.changed": &BreakerChanged{Route: "h-m-0123456789", Leg: "a", From: "Closed", To: "Open", Until: &at, Kind: failure.Timeout},
		"llm.response":    &LLMResponse{Turn: 1, Attempt: 2, Leg: "a", Message: message.Message{Role: message.RoleAssistant, Blocks: []message.Block{{Kind: message.BlockText, Text: "<&>\u2028"}}}},
		"tool.start":      &ToolStart{Turn: 1, Call: "Ab3dE9xQ1", Attempt: 1, Tool: "shell", Effect: "Supervised", ArgsSHA256: "ab", BootID: "b", Deadline: at},
		"tool.result":     &ToolResult{Turn: 1, Attempt: 1, Result: message.Result{CallID: "Ab3dE9xQ1", Name: "shell", Status: message.ResultOK, Text: "x"}, Recovered: true},
		"control":         &Control{Turn: 1, Kind: ControlContinue, Text: "go on"},
		"diagnostic":      &Diagnostic{Turn: 1, Reason: "LegRefused", Text: "x"},
		"turn.end":        &TurnEnd{Turn: 1},
		"run.park":        &RunPark{Turn: 1, Reason: "RoutesUnavailable", Until: at, Message: "m"},
		"run.suspend":     &RunSuspend{Turn: 1, Reason: "Shutdown"},
		"run.end":         &RunEnd{Turn: 1, Reason: ReasonCompleted, Message: "m", Text: "t"},
	}
}

func noBlob(Blob) ([]byte, error) { return nil, errors.New("no blob was stored") }

func TestEveryPayloadComesBackAsItWasWritten(t *testing.T) {
	for typ, payload := range every() {
		if got := TypeOf(payload); got != typ {
			t.Errorf("a %T is a %s, want %s", payload, got, typ)
		}
		if got := TypeOf(reflect.ValueOf(payload).Elem().Interface()); got != typ {
			t.Errorf("a value of %T is a %s, want %s", payload, got, typ)
		}
		if !Known(string(typ)) {
			t.Errorf("%s is not known", typ)
		}
		data, err := Encode(payload, nil)
		if err != nil {
			t.Fatal(err)
		}
		back, err := Decode(string(typ), data, noBlob)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(payload, back); diff != "" {
			t.Errorf("%s (-written +read):\n%s", typ, diff)
		}
	}
}

// A reader that skips one of the others loses nothing of the conversation, the books or the fencing.
func TestOnlyRecordsThatNothingDependsOnMayBeSkipped(t *testing.T) {
	skippable := map[Type]bool{"turn.plan": true, "retry.scheduled": true, "route.fallback": true, "breaker.changed": true, "diagnostic": true, "run.suspend": true}
	for typ := range every() {
		if typ.Critical() == skippable[typ] {
			t.Errorf("%s: critical is %v", typ, typ.Critical())
		}
	}
}

func TestATypeOfNobodyIsNoPayload(t *testing.T) {
	payload, err := Decode("llm.dream", json.RawMessage(`not even JSON`), noBlob)
	if payload != nil || err != nil || Known("llm.dream") || Type("llm.dream").Critical() {
		t.Errorf("an unknown type decodes to %v, %v", payload, err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a payload that is no record has a type")
		}
	}()
	TypeOf("text")
}

func TestALargePayloadLivesInABlob(t *testing.T) {
	fits := RunEnd{Text: strings.Repeat("x", MaxInline-len(`{"turn":0,"reason":"","message":"","text":""}`))}
	data, err := Encode(fits, func([]byte) (Blob, error) { return Blob{}, errors.New("must not be stored") })
	if err != nil || len(data) != MaxInline {
		t.Fatalf("the largest inline payload has %d bytes, %v", len(data), err)
	}

	large := &RunEnd{Text: fits.Text + "x"}
	var stored []byte
	blob := Blob{SHA256: strings.Repeat("ab", 32), Size: MaxInline + 1}
	data, err = Encode(large, func(b []byte) (Blob, error) { stored = b; return blob, nil })
	if err != nil || int64(len(stored)) != blob.Size {
		t.Fatalf("%d bytes were stored, %v", len(stored), err)
	}
	if want := `{"spilled":{"sha256":"` + blob.SHA256 + `","size":196609}}`; string(data) != want {
		t.Errorf("the envelope holds %s, want %s", data, want)
	}
	back, err := Decode("run.end", data, func(b Blob) ([]byte, error) {
		if b != blob {
			return nil, fmt.Errorf("asked for %v", b)
		}
		return stored, nil
	})
	if diff := cmp.Diff(large, back); err != nil || diff != "" {
		t.Errorf("%v (-written +read):\n%s", err, diff)
	}
}

func TestErrorsOfTheBlobStoreComeThrough(t *testing.T) {
	full := errors.New("disk full")
	if _, err := Encode(RunEnd{Text: strings.Repeat("x", MaxInline)}, func([]byte) (Blob, error) { return Blob{}, full }); !errors.Is(err, full) {
		t.Errorf("encode says %v", err)
	}
	gone := errors.New("blob is gone")
	_, err := Decode("run.end", json.RawMessage(`{"spilled":{"sha256":"ab","size":1}}`), func(Blob) ([]byte, error) { return nil, gone })
	if decode := (*DecodeError)(nil); !errors.Is(err, gone) || errors.As(err, &decode) {
		t.Errorf("decode says %v", err)
	}
}

func TestAPayloadOfAnotherShapeIsNamedWithItsType(t *testing.T) {
	for _, data := range []string{`[]`, `{"turn":"one"}`, `{"turn":1`, ``} {
		_, err := Decode("turn.end", json.RawMessage(data), noBlob)
		var decode *DecodeError
		if !errors.As(err, &decode) || decode.Type != "turn.end" || !strings.Contains(err.Error(), "turn.end") {
			t.Errorf("%q: %v", data, err)
		}
	}
}

func TestAMemberOfALaterVersionIsNoError(t *testing.T) {
	got, err := Decode("turn.end", json.RawMessage(`{"turn":7,"mood":"good"}`), noBlob)
	if diff := cmp.Diff(&TurnEnd{Turn: 7}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestTheContractsHashLeavesOutTheLimitsOnly(t *testing.T) {
	base := Contract{Task: "t", System: "s", Tools: []ToolGrant{{Name: "read"}}, Routing: Routing{Metered: "Allow"}, Limits: Limits{MaxTurns: 1}}
	// printf '{"task":"t","system":"s","tools":[{"name":"read"}],"routing":{"metered":"Allow"},"limits":{}}' | sha256sum
	if got, want := base.SHA256(), "6b850afb6c5fb69c44c8906f208c1d3b628d2827893d21fffc0b9f4247d187c4"; got != want {
		t.Errorf("the hash is %s, want %s", got, want)
	}
	raised := base
	raised.Limits = Limits{MaxTurns: 2, MaxCostMicroUSD: 5}
	if raised.SHA256() != base.SHA256() {
		t.Error("raised limits make another contract")
	}
	for what, change := range map[string]func(*Contract){
		"task":    func(c *Contract) { c.Task = "u" },
		"system":  func(c *Contract) { c.System = "" },
		"tools":   func(c *Contract) { c.Tools = nil },
		"timeout": func(c *Contract) { c.Tools = []ToolGrant{{Name: "read", Timeout: time.Second}} },
		"class":   func(c *Contract) { c.Routing.SecurityClass = "Internal" },
		"metered": func(c *Contract) { c.Routing.Metered = "" },
		"legs":    func(c *Contract) { c.Routing.Legs = []string{"a"} },
	} {
		changed := base
		change(&changed)
		if changed.SHA256() == base.SHA256() {
			t.Errorf("a changed %s is the same contract", what)
		}
	}
}

func FuzzDecodeTakesWhateverALedgerHolds(f *testing.F) {
	for typ, payload := range every() {
		data, err := Encode(payload, nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(typ), []byte(data))
	}
	f.Add("run.end", []byte(`{"spilled":{"sha256":"ab","size":-1}}`))
	f.Add("nothing", []byte(`{}`))
	f.Fuzz(func(t *testing.T, typ string, data []byte) {
		payload, err := Decode(typ, data, noBlob)
		if err != nil || payload == nil {
			return
		}
		if got := TypeOf(payload); string(got) != typ {
			t.Fatalf("a %s decodes to a %s", typ, got)
		}
		again, err := Encode(payload, func([]byte) (Blob, error) { return Blob{}, nil })
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if len(again) > MaxInline || strings.Contains(string(again), `"spilled"`) {
			return
		}
		back, err := Decode(typ, again, noBlob)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		third, err := Encode(back, nil)
		if err != nil || string(third) != string(again) {
			t.Errorf("%s became %s, %v", again, third, err)
		}
	})
}
