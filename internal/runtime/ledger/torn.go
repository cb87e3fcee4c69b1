package ledger

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// tornName names the file of a torn tail: <seq>-<offset>, with a counter if the
// same place was torn before. The offset of a later segment is <segment>.<offset>.
func tornName(seq uint64, segment int, offset int64, attempt int) string {
	place := fmt.Sprintf("%d-%d", seq, offset)
	if segment > 1 {
		place = fmt.Sprintf("%d-%d.%d", seq, segment, offset)
	}
	if attempt > 1 {
		place += fmt.Sprintf("-%d", attempt)
	}
	return place
}

func parseTornName(name string) (t TornTail, ok bool) {
	seq, place, found := strings.Cut(name, "-")
	if !found {
		return TornTail{}, false
	}
	place, counter, repeated := strings.Cut(place, "-")
	attempt := 1
	t.Segment = 1
	ok = scan(seq, &t.Seq)
	if segment, offset, later := strings.Cut(place, "."); later {
		ok = ok && scan(segment, &t.Segment) && scan(offset, &t.Offset)
	} else {
		ok = ok && scan(place, &t.Offset)
	}
	if repeated {
		ok = ok && scan(counter, &attempt)
	}
	return t, ok && tornName(t.Seq, t.Segment, t.Offset, attempt) == name
}

func scan(text string, into any) bool {
	_, err := fmt.Sscan(text, into)
	return err == nil
}

// recordTorn appends a "recovered" record for each saved tail that has none yet.
func (l *Ledger) recordTorn(s *survey, found *Recovered) error {
	dir := filepath.Join(l.dir, tornDir)
	names, err := l.fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing %s: %w", dir, err)
	}
	for _, name := range names {
		torn, ok := parseTornName(name)
		saved := filepath.ToSlash(filepath.Join(tornDir, name))
		if !ok || s.recorded[saved] {
			continue
		}
		torn.RunUID = l.opts.RunUID
		torn.Saved = saved
		if torn.Size, err = l.fsys.Stat(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("reading a saved torn tail: %w", err)
		}
		if _, err := l.Append(recoveredType, false, torn); err != nil {
			return err
		}
		found.Torn = append(found.Torn, torn)
	}
	if len(found.Torn) == 0 {
		return nil
	}
	return l.Sync()
}
