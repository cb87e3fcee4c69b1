package toolbox

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// keptOutput is the output file of a call that has ended.
type keptOutput struct {
	callID  string
	size    int64
	written time.Time
}

// keptOutputs finds the output files that earlier boots have left, oldest first.
func (s *spool) keptOutputs() ([]keptOutput, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	var kept []keptOutput
	for _, entry := range entries {
		info, err := os.Lstat(filepath.Join(s.dir, entry.Name(), outputFile))
		if err != nil {
			continue // not a call, or a call without output
		}
		kept = append(kept, keptOutput{callID: entry.Name(), size: info.Size(), written: info.ModTime()})
	}
	slices.SortStableFunc(kept, func(a, b keptOutput) int {
		return cmp.Or(a.written.Compare(b.written), cmp.Compare(a.callID, b.callID))
	})
	return kept, nil
}

// keepOutput decides which output files stay when a call has ended. One that
// the outcome shows whole is of no more use. Of the others the oldest go until
// all that is left fits the limit; the newest always stays. Starts and outcomes
// are never removed: they are what tells that a call must not run again.
func (s *spool) keepOutput(callID string, size int64, wanted bool, limit int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !wanted {
		return s.removeOutput(callID)
	}
	s.kept = append(s.kept, keptOutput{callID: callID, size: size})
	var total int64
	for _, output := range s.kept {
		total += output.size
	}
	var err error
	for len(s.kept) > 1 && total > limit {
		err = errors.Join(err, s.removeOutput(s.kept[0].callID))
		total -= s.kept[0].size
		s.kept = s.kept[1:]
	}
	return err
}

func (s *spool) removeOutput(callID string) error {
	if err := os.Remove(filepath.Join(s.callDir(callID), outputFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("spool: %w", err)
	}
	return nil
}
