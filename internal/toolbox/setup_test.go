package toolbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestASetupStepRunsOnce(t *testing.T) {
	dir := t.TempDir()
	step := Setup{
		Name: "seed", Marker: filepath.Join(dir, ".belay", "setup", "seed"), Dir: dir,
		Command: []string{"sh", "-c", "echo ran >> log"},
	}
	for range 3 {
		if code, err := step.Run(t.Context()); code != 0 || err != nil {
			t.Fatalf("Run = %d, %v", code, err)
		}
	}
	log, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil || string(log) != "ran\n" {
		t.Errorf("log = %q, %v; want one line", log, err)
	}
}

func TestAFailedSetupStepLeavesNoMarkerAndGivesItsExitCode(t *testing.T) {
	for name, test := range map[string]struct {
		command []string
		code    int
		message string
	}{
		"exit code":     {[]string{"sh", "-c", "exit 3"}, 3, ""},
		"signal":        {[]string{"sh", "-c", "kill -KILL $$"}, 137, ""},
		"no program":    {[]string{"/no/such/program"}, 127, "setup seed: start /no/such/program"},
		"not a program": {[]string{"/"}, 126, "setup seed: start /"},
		"no command":    {nil, 1, "no command"},
	} {
		t.Run(name, func(t *testing.T) {
			step := Setup{Name: "seed", Marker: filepath.Join(t.TempDir(), "seed"), Command: test.command}
			code, err := step.Run(t.Context())
			if code != test.code {
				t.Errorf("code = %d, want %d", code, test.code)
			}
			if test.message == "" && err != nil || test.message != "" && (err == nil || !strings.Contains(err.Error(), test.message)) {
				t.Errorf("error = %v, want one with %q", err, test.message)
			}
			if _, err := os.Stat(step.Marker); !os.IsNotExist(err) {
				t.Errorf("a marker was left: %v", err)
			}
		})
	}
}
