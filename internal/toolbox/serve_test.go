package toolbox_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"belay.dev/belay/internal/runtime/tools"
)

func TestShellRunsACommandAndReportsItsExitCode(t *testing.T) {
	w := newWorkspace(t)
	w.start()
	client := w.dial()

	ok := client.Call(t.Context(), shell("echo out; echo err >&2; pwd"))
	if ok.Status != tools.OK || ok.Text != "out\nerr\n"+w.dir+"\n[exit code 0]" {
		t.Errorf("got %+v", ok)
	}
	if ok.ExitCode == nil || *ok.ExitCode != 0 || ok.StartedAt.IsZero() || ok.Duration <= 0 {
		t.Errorf("exit code, start and duration: got %+v", ok)
	}
	failed := client.Call(t.Context(), shell("echo no; exit 3"))
	if failed.Status != tools.Error || failed.ErrorKind != tools.KindExecutionFailed || failed.ExitCode == nil || *failed.ExitCode != 3 {
		t.Errorf("got %+v", failed)
	}
	signalled := client.Call(t.Context(), shell("kill -KILL $$"))
	if signalled.Status != tools.Error || signalled.Signal != "SIGKILL" || signalled.ExitCode != nil {
		t.Errorf("got %+v", signalled)
	}
}

func TestWrittenFilesCanBeRead(t *testing.T) {
	w := newWorkspace(t)
	w.start()
	client := w.dial()

	written := client.Call(t.Context(), newCall("write", map[string]any{"path": "a/b/c.txt", "content": "one\ntwo\n"}))
	if written.Status != tools.OK {
		t.Fatalf("got %+v", written)
	}
	onDisk, err := os.ReadFile(filepath.Join(w.dir, "a/b/c.txt"))
	if err != nil || string(onDisk) != "one\ntwo\n" {
		t.Errorf("on disk: %q, %v", onDisk, err)
	}
	read := client.Call(t.Context(), newCall("read", map[string]any{"path": "a/b/c.txt"}))
	if read.Status != tools.OK || read.Text != "     1\tone\n     2\ttwo\n" {
		t.Errorf("got %+v", read)
	}
	missing := client.Call(t.Context(), newCall("read", map[string]any{"path": "nothing"}))
	if missing.ErrorKind != tools.KindNotFound || !strings.Contains(missing.Text, "nothing") {
		t.Errorf("got %+v", missing)
	}
}
