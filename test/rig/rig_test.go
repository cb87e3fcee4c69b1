package rig

import (
	"os"
	"testing"
	"time"
)

func TestX(t *testing.T) {
	now := time.Now()
	r, err := Start(t.Context(), Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Log("started in", time.Since(now))
	now = time.Now()
	r.Stop()
	t.Log("stopped in", time.Since(now))
	_ = os.Stdout
}
