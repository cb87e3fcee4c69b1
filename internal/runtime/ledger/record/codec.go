package record

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// MaxInline is the largest payload that is kept in its envelope, in bytes; it leaves room for the envelope within the
// ledger's record limit. A larger payload is spilled to a blob.
const MaxInline = 192 << 10

// spilled stands in an envelope for a payload that lives in a blob.
type spilled struct {
	Spilled *Blob `json:"spilled,omitempty"`
	// RunUID stays in the envelope of a run's start, by which the ledger knows whose it is.
	RunUID string `json:"runUID,omitempty"`
}

// Encode returns what belongs into the data member for a payload. put is called with a payload over MaxInline; it must
// have made the bytes durable when it returns.
func Encode(payload any, put func([]byte) (Blob, error)) (json.RawMessage, error) {
	data, err := json.Marshal(payload)
	if err != nil {
		return nil, fmt.Errorf("encode a %T record: %w", payload, err)
	}
	if len(data) <= MaxInline {
		return data, nil
	}
	blob, err := put(data)
	if err != nil {
		return nil, fmt.Errorf("store the %d bytes of a %T record as a blob: %w", len(data), payload, err)
	}
	return json.Marshal(spilled{Spilled: &blob, RunUID: runUID(payload)})
}

// spilledPrefix begins every spilled payload, as Encode writes it.
var spilledPrefix = []byte(`{"spilled":`)

func runUID(payload any) string {
	switch p := payload.(type) {
	case RunStart:
		return p.RunUID
	case *RunStart:
		return p.RunUID
	}
	return ""
}

// DecodeError says that a payload is not what its type says. Its checksum was right, so a program wrote it so.
type DecodeError struct {
	Type string
	Err  error
}

func (e *DecodeError) Error() string {
	return fmt.Sprintf("decode a %s record: %v; a program wrote it so: keep the ledger for a report, and start a new run", e.Type, e.Err)
}

func (e *DecodeError) Unwrap() error { return e.Err }

// Decode returns the payload of a record, as a pointer to the type that belongs to typ, or nil for a type that this
// build does not know. get fetches a spilled payload; its errors come back wrapped. Any other error is a *DecodeError.
func Decode(typ string, data json.RawMessage, get func(Blob) ([]byte, error)) (any, error) {
	payload := empty(Type(typ))
	if payload == nil {
		return nil, nil
	}
	var s spilled
	if bytes.HasPrefix(data, spilledPrefix) { // most payloads are not, and need not be read twice
		if err := json.Unmarshal(data, &s); err != nil {
			return nil, &DecodeError{Type: typ, Err: err}
		}
	}
	if s.Spilled != nil {
		whole, err := get(*s.Spilled)
		if err != nil {
			return nil, fmt.Errorf("read blob %s of a %s record: %w", s.Spilled.SHA256, typ, err)
		}
		data = whole
	}
	if err := json.Unmarshal(data, payload); err != nil {
		return nil, &DecodeError{Type: typ, Err: err}
	}
	return payload, nil
}

func empty(t Type) any {
	switch t {
	case TypeRunStart:
		return new(RunStart)
	case TypeEpochStart:
		return new(EpochStart)
	case TypeTurnPlan:
		return new(TurnPlan)
	case TypeLLMRequest:
		return new(LLMRequest)
	case TypeLLMAttempt:
		return new(LLMAttempt)
	case TypeRetryScheduled:
		return new(RetryScheduled)
	case TypeRouteFallback:
		return new(RouteFallback)
	case TypeBreakerChanged:
		return new(BreakerChanged)
	case TypeLLMResponse:
		return new(LLMResponse)
	case TypeToolStart:
		return new(ToolStart)
	case TypeToolResult:
		return new(ToolResult)
	case TypeControl:
		return new(Control)
	case TypeDiagnostic:
		return new(Diagnostic)
	case TypeTurnEnd:
		return new(TurnEnd)
	case TypeRunPark:
		return new(RunPark)
	case TypeRunSuspend:
		return new(RunSuspend)
	case TypeRunEnd:
		return new(RunEnd)
	}
	return nil
}

// TypeOf returns the record type of a payload, which may be a value or a pointer. It panics for a foreign type: records
// are written by this program only.
func TypeOf(payload any) Type {
	switch payload.(type) {
	case RunStart, *RunStart:
		return TypeRunStart
	case EpochStart, *EpochStart:
		return TypeEpochStart
	case TurnPlan, *TurnPlan:
		return TypeTurnPlan
	case LLMRequest, *LLMRequest:
		return TypeLLMRequest
	case LLMAttempt, *LLMAttempt:
		return TypeLLMAttempt
	case RetryScheduled, *RetryScheduled:
		return TypeRetryScheduled
	case RouteFallback, *RouteFallback:
		return TypeRouteFallback
	case BreakerChanged, *BreakerChanged:
		return TypeBreakerChanged
	case LLMResponse, *LLMResponse:
		return TypeLLMResponse
	case ToolStart, *ToolStart:
		return TypeToolStart
	case ToolResult, *ToolResult:
		return TypeToolResult
	case Control, *Control:
		return TypeControl
	case Diagnostic, *Diagnostic:
		return TypeDiagnostic
	case TurnEnd, *TurnEnd:
		return TypeTurnEnd
	case RunPark, *RunPark:
		return TypeRunPark
	case RunSuspend, *RunSuspend:
		return TypeRunSuspend
	case RunEnd, *RunEnd:
		return TypeRunEnd
	}
	panic(fmt.Sprintf("record: %T is no record payload", payload))
}
