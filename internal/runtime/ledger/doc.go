// Package ledger keeps the append-only record of one run: JSON lines in
// segments on the run's volume, with content-addressed blobs beside them.
//
// The ledger is the only truth about a run. A restarted runner rebuilds
// everything from it, so the package promises exactly this:
//
//   - A record is acknowledged by the first [Ledger.Sync] that returns nil after
//     its Append. An acknowledged record is there after any crash, or Open
//     refuses with a typed error. A record is never half there.
//   - Damage is repaired only where a crash can cause it, in the unfinished tail
//     of the last segment; those bytes are saved aside and named by a "recovered"
//     record. Any other damage is refused and nothing is touched.
//   - One writer at a time. A lock guards against a second opener on the same
//     machine; the EPOCH file and the size of the segment, checked at every
//     barrier, stop a stale writer where locks do not work. Records that a stale
//     writer still managed to append are recognised by their epoch and ignored.
//
// Allowed order of calls: [Open], then Append, AppendBatch, PutBlob, Blob and
// Sync in any order and from any goroutine, then Close. A write or fsync that
// leaves the tail in doubt poisons the ledger: every later call returns the same
// error, and the process has to exit and open the directory anew.
//
// [Replay], [Verify] and [Follow] need no lock, never write, and may run beside a
// live writer.
//
// Payloads are opaque here; package record gives them types. The package may
// import the standard library only. Time comes from [Options.Now] and is a label:
// the order of records is their sequence number and nothing else.
package ledger
