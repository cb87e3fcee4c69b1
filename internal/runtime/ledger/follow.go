package ledger

import (
	"context"
	"errors"
	"iter"
	"time"
)

// Follow yields the records of a ledger directory like [Replay], and then each new
// one. It looks for new records at every tick, for instance of a time.Ticker, and
// ends without an error when ctx is done or tick is closed. A nil FS means [OS].
func Follow(ctx context.Context, fsys FS, dir string, tick <-chan time.Time) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		w := newWalker(orOS(fsys), dir)
		w.visit = yieldTo(yield)
		for ctx.Err() == nil {
			if err := w.advance(); err != nil {
				if !errors.Is(err, errStop) {
					yield(Entry{}, err)
				}
				return
			}
			select {
			case <-ctx.Done():
				return
			case _, open := <-tick:
				if !open {
					return
				}
			}
		}
	}
}
