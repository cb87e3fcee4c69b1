package timeline

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"

	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/message"
)

// ExportVersion is the version of the transcript's format.
const ExportVersion = 1

var errNoRun = errors.New("the ledger has no run.start record yet")

// Line is one line of an exported transcript. Exactly one of its pointers is set.
type Line struct {
	// Run is the first line.
	Run *ExportedRun `json:"run,omitempty"`
	// Message is one entry of the conversation, in order.
	Message *ExportedMessage `json:"message,omitempty"`
	// End is the last line of a finished run.
	End *ExportedEnd `json:"end,omitempty"`
}

// ExportedRun says whose transcript it is.
type ExportedRun struct {
	Version   int    `json:"version"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	System    string `json:"system,omitempty"`
	Task      string `json:"task"`
}

// ExportedMessage is what was said, without the credentials of its issuer.
type ExportedMessage struct {
	Seq  uint64 `json:"seq"`
	Turn int    `json:"turn"`
	// Leg and Model answered; for an assistant message only.
	Leg    string             `json:"leg,omitempty"`
	Model  string             `json:"model,omitempty"`
	Role   message.Role       `json:"role"`
	Blocks []message.Block    `json:"blocks"`
	Stop   message.StopReason `json:"stop,omitempty"`
}

// ExportedEnd says how the run ended.
type ExportedEnd struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Text    string `json:"text"`
}

// ExportOptions say how to export.
type ExportOptions struct {
	// Blob fetches the payload of a record that was too large for its line.
	Blob func(record.Blob) ([]byte, error)
}

// Export writes the conversation of a run as JSON lines: a run, its messages in
// order, and its end if it has ended. It holds no credentials, requests, plans or
// failed attempts, and media only by the name of their blob. A record that cannot be
// decoded is an error, since the transcript would be incomplete.
func Export(w io.Writer, entries iter.Seq2[ledger.Entry, error], opts ExportOptions) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	started := false
	for e, err := range entries {
		if err != nil {
			return err
		}
		payload, err := decode(e, opts.Blob)
		if err != nil {
			return fmt.Errorf("exporting ledger record %d: %w", e.Seq, err)
		}
		line, ok := lineOf(e.Seq, payload)
		if !ok {
			continue
		}
		started = started || line.Run != nil
		if !started {
			return fmt.Errorf("exporting ledger record %d, a %s: %w", e.Seq, e.Type, errNoRun)
		}
		if err := encoder.Encode(line); err != nil {
			return fmt.Errorf("exporting ledger record %d: %w", e.Seq, err)
		}
	}
	if !started {
		return fmt.Errorf("exporting a ledger: %w", errNoRun)
	}
	return nil
}

// lineOf returns false for a record that is no part of the conversation.
func lineOf(seq uint64, payload any) (Line, bool) {
	switch p := withoutCredentials(payload).(type) {
	case *record.RunStart:
		return Line{Run: &ExportedRun{
			Version: ExportVersion, Namespace: p.Namespace, Name: p.Name, UID: p.RunUID, System: p.Contract.System, Task: p.Contract.Task,
		}}, true
	case *record.LLMResponse:
		m := &ExportedMessage{Seq: seq, Turn: p.Turn, Leg: p.Leg, Role: message.RoleAssistant, Blocks: p.Message.Blocks, Stop: p.Message.Stop}
		if p.Message.Origin != nil {
			m.Model = p.Message.Origin.Model
		}
		return Line{Message: m}, true
	case *record.ToolResult:
		return Line{Message: &ExportedMessage{
			Seq: seq, Turn: p.Turn, Role: message.RoleTool, Blocks: []message.Block{{Kind: message.BlockResult, Result: &p.Result}},
		}}, true
	case *record.Control:
		return Line{Message: &ExportedMessage{
			Seq: seq, Turn: p.Turn, Role: message.RoleControl, Blocks: []message.Block{{Kind: message.BlockText, Text: p.Text}},
		}}, true
	case *record.RunEnd:
		return Line{End: &ExportedEnd{Reason: p.Reason, Message: p.Message, Text: p.Text}}, true
	}
	return Line{}, false
}
