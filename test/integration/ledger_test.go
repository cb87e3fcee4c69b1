package integration

import (
	"path/filepath"
	"strings"

	"belay.dev/belay/api/v1alpha1"
	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/ledger/record"
)

// entry is a record of a ledger with its payload.
type entry struct {
	ledger.Entry
	payload any
}

func (s *scene) ledgerDir(run *v1alpha1.AgentRun) string {
	s.t.Helper()
	return filepath.Join(s.volume(run), "ledger", string(run.UID))
}

// ledger reads the ledger of a run.
func (s *scene) ledger(run *v1alpha1.AgentRun) []entry {
	s.t.Helper()
	dir := s.ledgerDir(run)
	var entries []entry
	for e, err := range ledger.Replay(nil, dir) {
		if err != nil {
			s.t.Fatalf("read the ledger: %v", err)
		}
		payload, err := record.Decode(e.Type, e.Data, func(b record.Blob) ([]byte, error) {
			return ledger.ReadBlob(nil, dir, ledger.BlobRef{SHA256: b.SHA256, Size: b.Size})
		})
		if err != nil {
			s.t.Fatalf("record %d of the ledger: %v", e.Seq, err)
		}
		entries = append(entries, entry{e, payload})
	}
	if len(entries) == 0 {
		s.t.Fatalf("there is no ledger in %s", dir)
	}
	return entries
}

// payloads are the payloads of one type, in order.
func payloads[T any](entries []entry) []*T {
	var out []*T
	for _, e := range entries {
		if p, ok := e.payload.(*T); ok {
			out = append(out, p)
		}
	}
	return out
}

// wantIntact fails the test unless the command that users have for it finds nothing wrong with the ledger, and the pods
// wrote it one after the other.
func (s *scene) wantIntact(run *v1alpha1.AgentRun) {
	s.t.Helper()
	if out, err := shared.Belay(s.ctx, "ledger", "verify", s.ledgerDir(run)); err != nil {
		s.t.Errorf("belay ledger verify: %v\n%s", err, out)
	}
	var epoch uint64
	for _, e := range s.ledger(run) {
		if e.Epoch < epoch {
			s.t.Errorf("record %d is of epoch %d and comes after one of epoch %d: two runners wrote at once", e.Seq, e.Epoch, epoch)
		}
		epoch = e.Epoch
	}
}

// wantOnce fails the test unless the command that writes effects.log was started once and had its effect once.
func (s *scene) wantOnce(run *v1alpha1.AgentRun) {
	s.t.Helper()
	entries := s.ledger(run)
	marked := map[string]bool{}
	for _, answer := range payloads[record.LLMResponse](entries) {
		for _, call := range answer.Message.Calls() {
			if strings.Contains(string(call.Arguments), "effects.log;") {
				marked[call.ID] = true
			}
		}
	}
	starts := 0
	for _, start := range payloads[record.ToolStart](entries) {
		if marked[start.Call] {
			starts++
		}
	}
	if len(marked) != 1 || starts != 1 {
		s.t.Errorf("the ledger has %d calls that write effects.log and %d starts of them, want 1 and 1", len(marked), starts)
	}
	if got := s.lines(run, "effects.log"); len(got) != 1 {
		s.t.Errorf("effects.log has the lines %q, want one", got)
	}
}
