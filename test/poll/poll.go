// Package poll waits in tests for what becomes true by itself, with a deadline and without sleeping longer than needed.
// It imports the standard library only.
package poll

import (
	"testing"
	"time"
)

// every is short against everything that is waited for here.
const every = 10 * time.Millisecond

// Until calls holds until it returns nil, and fails the test with its last error when the limit has passed.
func Until(t testing.TB, limit time.Duration, what string, holds func() error) {
	t.Helper()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	for {
		err := holds()
		if err == nil {
			return
		}
		select {
		case <-deadline.C:
			t.Fatalf("not within %s: %s: %v", limit, what, err)
		case <-ticker.C:
		}
	}
}
