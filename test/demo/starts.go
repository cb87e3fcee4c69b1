package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/ledger/record"
)

// starts counts the tool.start records of the command that writes effects.log.
func (s *story) starts() (int, error) {
	marked := map[string]bool{}
	starts := 0
	for e, err := range ledger.Replay(nil, s.ledgerDir()) {
		if err != nil {
			return 0, err
		}
		payload, err := record.Decode(e.Type, e.Data, func(b record.Blob) ([]byte, error) {
			return ledger.ReadBlob(nil, s.ledgerDir(), ledger.BlobRef{SHA256: b.SHA256, Size: b.Size})
		})
		if err != nil {
			return 0, err
		}
		switch p := payload.(type) {
		case *record.LLMResponse:
			for _, c := range p.Message.Calls() {
				var arguments struct{ Command string }
				if err := json.Unmarshal(c.Arguments, &arguments); err == nil && strings.Contains(arguments.Command, ">> effects.log") {
					marked[c.ID] = true
				}
			}
		case *record.ToolStart:
			if marked[p.Call] {
				starts++
			}
		}
	}
	if len(marked) != 1 {
		return 0, fmt.Errorf("the ledger has %d calls that write effects.log, want 1", len(marked))
	}
	return starts, nil
}
