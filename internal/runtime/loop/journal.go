package loop

import (
	"fmt"
	"time"

	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/ledger/record"
)

// Ledger is where the loop writes. What it must hold is said in package ledger.
type Ledger interface {
	AppendBatch(records []ledger.Record) ([]ledger.Pos, error)
	Sync() error
	// FreeBallast makes room for the records that say why the run stops, after a write that found the disk full.
	FreeBallast() error
	PutBlob(data []byte) (ledger.BlobRef, error)
	Blob(ref ledger.BlobRef) ([]byte, error)
	Head() ledger.Head
	Epoch() uint64
}

// journal writes records and applies each to the state right after, so that the state of a living run and that of a
// resumed one come about in the same way.
type journal struct {
	ledger  Ledger
	state   *State
	observe func(at time.Time, payload any)
	// published is called after each barrier: from then on the state may be shown to others.
	published func()
}

// write appends payloads with one write. They are durable after the next sync only.
func (j *journal) write(payloads ...any) error {
	records := make([]ledger.Record, len(payloads))
	for i, p := range payloads {
		t := record.TypeOf(p)
		data, err := record.Encode(p, j.blob)
		if err != nil {
			return err
		}
		records[i] = ledger.Record{Type: string(t), Crit: t.Critical(), Data: data}
	}
	at, err := j.ledger.AppendBatch(records)
	if err != nil {
		return err
	}
	for i, r := range records {
		// The state, and with it every later request, is made from what the ledger holds, not from what it was given: no secret
		// that the ledger leaves out reaches a provider, and a resumed run sends what this one would have sent.
		payload, err := record.Decode(r.Type, at[i].Data, j.fetch)
		if err != nil {
			return err
		}
		if err := j.state.Apply(Entry{Seq: at[i].Seq, Epoch: j.ledger.Epoch(), At: at[i].At, Payload: payload}); err != nil {
			return fmt.Errorf("apply the %s record %d just written: %w", r.Type, at[i].Seq, err)
		}
		if j.observe != nil {
			j.observe(at[i].At, payload)
		}
	}
	return nil
}

// sync is the barrier before anything that others can observe.
func (j *journal) sync() error {
	if err := j.ledger.Sync(); err != nil {
		return err
	}
	if j.published != nil {
		j.published()
	}
	return nil
}

func (j *journal) blob(data []byte) (record.Blob, error) {
	ref, err := j.ledger.PutBlob(data)
	if err != nil {
		return record.Blob{}, err
	}
	return record.Blob{SHA256: ref.SHA256, Size: ref.Size}, nil
}

func (j *journal) fetch(b record.Blob) ([]byte, error) {
	return j.ledger.Blob(ledger.BlobRef{SHA256: b.SHA256, Size: b.Size})
}
