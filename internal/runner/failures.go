package runner

import (
	"errors"
	"os"
	"path/filepath"

	"belay.dev/belay/api/v1alpha1"
	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/loop"
	"belay.dev/belay/internal/runtime/tools"
)

// ledgerFailure turns an error into the end that it is: of the run, if its ledger or contract cannot be worked with; of
// the epoch, if a newer one exists. Any other error comes back: another pod may do better.
func ledgerFailure(err error) (v1alpha1.Final, error) {
	var (
		corrupt   *ledger.CorruptError
		unknown   *ledger.UnknownCriticalError
		blob      *ledger.BlobError
		regressed *ledger.RegressedError
		unwritten *ledger.UnwritableError
		fenced    *ledger.FencedError
		decode    *record.DecodeError
		contract  *loop.ContractError
	)
	failed := func(reason string) (v1alpha1.Final, error) {
		return v1alpha1.Final{Outcome: v1alpha1.FinalFailed, Reason: reason, Message: tools.HeadText([]byte(err.Error()), maxMessage)}, nil
	}
	switch {
	case errors.As(err, &fenced):
		final, _ := failed(v1alpha1.ReasonRunning)
		final.Outcome, final.LedgerEpoch = v1alpha1.FinalFenced, int64(fenced.Epoch)
		return final, nil
	case errors.Is(err, ledger.ErrFenced), errors.Is(err, tools.ErrFenced):
		// Somebody else is at work, and the ledger does not name an epoch of theirs.
		final, _ := failed(v1alpha1.ReasonRunning)
		final.Outcome = v1alpha1.FinalFenced
		return final, nil
	case errors.As(err, &regressed):
		return failed(v1alpha1.ReasonLedgerRegressed)
	case errors.As(err, &corrupt), errors.As(err, &unknown), errors.As(err, &blob), errors.As(err, &decode), errors.As(err, &contract),
		errors.Is(err, ledger.ErrForeignRun), errors.Is(err, ledger.ErrNewerVersion):
		return failed(v1alpha1.ReasonLedgerCorrupt)
	case errors.As(err, &unwritten):
		return failed(v1alpha1.ReasonLedgerUnwritable)
	}
	return v1alpha1.Final{}, err
}

// writeResult puts the whole answer beside the ledger. Epochs that find the run ended write it again.
func writeResult(path, text string) error {
	temp := filepath.Join(filepath.Dir(path), ".result.new")
	if err := os.WriteFile(temp, []byte(text), 0o600); err != nil {
		return &ledger.UnwritableError{Op: "writing", Path: temp, Err: err}
	}
	if err := os.Rename(temp, path); err != nil {
		return &ledger.UnwritableError{Op: "renaming", Path: path, Err: err}
	}
	return nil
}
