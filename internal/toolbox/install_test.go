package toolbox_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"belay.dev/belay/internal/toolbox"
)

func TestInstallCopiesTheProgramAndMayRunAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "bin")
	own, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		path, err := toolbox.Install(dir)
		if err != nil || path != filepath.Join(dir, "toolbox") {
			t.Fatalf("got %q, %v", path, err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode() != 0o755 {
			t.Errorf("mode: %v, %v", info.Mode(), err)
		}
		copied, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(copied, own) {
			t.Errorf("the copy has %d bytes, the program %d: %v", len(copied), len(own), err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the directory has %v, %v", entries, err)
	}
}

func TestInstallIntoNoDirectoryLeavesNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := toolbox.Install(file); err == nil || !strings.Contains(err.Error(), "install") {
		t.Errorf("got %v", err)
	}
}

func TestARefusedConfigurationIsAClearError(t *testing.T) {
	dir := t.TempDir()
	for want, config := range map[string]toolbox.Config{
		"epochs count from 1": {Socket: dir + "/s", Workspace: dir},
		"workspace":           {Socket: dir + "/s", Workspace: dir + "/missing", Epoch: 1},
	} {
		if err := toolbox.Serve(t.Context(), config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestRunLimitedRefusesWhatItCannotRun(t *testing.T) {
	for _, arguments := range [][]string{nil, {"5"}, {"many", "/bin/true"}} {
		if err := toolbox.RunLimited(arguments); err == nil || !strings.Contains(err.Error(), toolbox.LimitedCommand) {
			t.Errorf("%q: %v", arguments, err)
		}
	}
}
