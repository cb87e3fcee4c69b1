package toolbox_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"belay.dev/belay/internal/runtime/tools"
)

// BenchmarkRoundTrip is the price of a call over the socket: reading a file of
// 1 KiB as a tool, and the same read as a function.
func BenchmarkRoundTrip(b *testing.B) {
	w := newWorkspace(b)
	w.tree(map[string]string{"file": fmt.Sprintf("%01024d", 0)})
	w.start()
	client := w.dial()
	b.Run("read over the socket", func(b *testing.B) {
		for b.Loop() {
			if got := client.Call(b.Context(), newCall("read", map[string]any{"path": "file"})); got.Status != tools.OK {
				b.Fatal(got.Text)
			}
		}
	})
	b.Run("read directly", func(b *testing.B) {
		for b.Loop() {
			if _, err := os.ReadFile(filepath.Join(w.dir, "file")); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("shell true", func(b *testing.B) { // with its spool: three files made durable
		for b.Loop() {
			if got := client.Call(b.Context(), shell("true")); got.Status != tools.OK {
				b.Fatal(got.Text)
			}
		}
	})
	b.Run("known call", func(b *testing.B) {
		call := shell("true")
		for b.Loop() {
			if got := client.Call(b.Context(), call); got.Status != tools.OK {
				b.Fatal(got.Text)
			}
		}
	})
}

// BenchmarkKillTree is how long it takes to end a tree of 1,000 processes in
// sessions of their own that ignore SIGTERM.
func BenchmarkKillTree(b *testing.B) {
	w := newWorkspace(b)
	w.start()
	client := w.dial()
	var killing time.Duration
	for b.Loop() {
		_ = os.Remove(w.path("ready"))
		_ = os.Remove(w.path("go"))
		// The command ends by itself once it is told to; what is left is the toolbox's work.
		call := shell(`trap '' TERM
			for i in $(seq 25); do setsid sh -c 'for j in $(seq 39); do sleep 1000 & done; wait' & done
			until [ $(ls -d /proc/[0-9]* | wc -l) -gt 1000 ]; do sleep 0.05; done
			echo x > ready; until [ -e go ]; do sleep 0.01; done`)
		answer := w.begin(client, call, "ready")
		began := time.Now()
		if err := os.WriteFile(w.path("go"), nil, 0o600); err != nil {
			b.Fatal(err)
		}
		if got := <-answer; got.Status != tools.OK {
			b.Fatal(got.Text)
		}
		killing += time.Since(began)
	}
	b.ReportMetric(float64(killing.Milliseconds())/float64(b.N), "ms/kill")
}
