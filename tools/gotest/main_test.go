package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// inModule puts the test into a module of the given files.
func inModule(t *testing.T, files map[string]string) {
	t.Helper()

	dir := t.TempDir()
	files["go.mod"] = "module example.test/m\n\ngo 1.26.0\n"

	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	t.Chdir(dir)
	t.Setenv("GOWORK", "off")
}

// gotest runs the command under test and returns its exit code and output.
func gotest(t *testing.T, args ...string) (int, string) {
	t.Helper()

	var stdout, stderr bytes.Buffer // Two: the command writes to both at once.

	code := run(t.Context(), append(args, "./..."), &stdout, &stderr)

	return code, stdout.String() + stderr.String()
}

func want(t *testing.T, output string, parts ...string) {
	t.Helper()

	for _, part := range parts {
		if !strings.Contains(output, part) {
			t.Errorf("output lacks %q:\n%s", part, output)
		}
	}
}

func wantNot(t *testing.T, output string, parts ...string) {
	t.Helper()

	for _, part := range parts {
		if strings.Contains(output, part) {
			t.Errorf("output has %q:\n%s", part, output)
		}
	}
}

const skipping = `package m

import "testing"

func TestRuns(t *testing.T) {}

func TestGroup(t *testing.T) {
	t.Run("sub", func(t *testing.T) { t.Skip("needs a moon") })
}
`

func TestSkipFailsAStrictRunUnlessListed(t *testing.T) {
	inModule(t, map[string]string{
		"m_test.go": skipping,
		"SKIPS":     "# what may skip\n\nexample.test/m TestGroup there is no moon here\n",
		"OTHER":     "example.test/m TestRuns another test\n",
	})

	for name, test := range map[string]struct {
		args []string
		code int
		line string
	}{
		"listed by its parent": {[]string{"-strict", "-skips", "SKIPS"}, 0, "skipped (listed): example.test/m TestGroup/sub: needs a moon"},
		"another is listed":    {[]string{"-strict", "-skips", "OTHER"}, 1, "skipped (NOT LISTED): example.test/m TestGroup/sub: needs a moon"},
		"no such list":         {[]string{"-strict", "-skips", "NONE"}, 1, "1 skipped tests are not listed"},
		"not strict":           {[]string{"-strict=false"}, 0, "skipped (NOT LISTED): example.test/m TestGroup/sub: needs a moon"},
	} {
		t.Run(name, func(t *testing.T) {
			code, output := gotest(t, test.args...)
			if code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}

			want(t, output, test.line, "ok  \texample.test/m", "2 passed, 0 failed, 1 skipped")
		})
	}
}

func TestStrictIsTheDefaultInCI(t *testing.T) {
	inModule(t, map[string]string{"m_test.go": skipping})
	t.Setenv("CI", "true")

	if code, output := gotest(t); code != 1 {
		t.Errorf("exit code %d, want 1:\n%s", code, output)
	}
}

func TestFailureShowsTheOutputOfTheFailedTestOnly(t *testing.T) {
	inModule(t, map[string]string{"m_test.go": `package m

import "testing"

func TestGood(t *testing.T) { t.Log("all is well") }
func TestBad(t *testing.T)  { t.Error("something is off") }
`})

	code, output := gotest(t)
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}

	want(t, output, "--- FAIL: TestBad", "something is off", "FAIL\texample.test/m", "1 passed, 1 failed, 0 skipped")
	wantNot(t, output, "all is well", "=== RUN", `{"Time"`)
}

func TestPanicShowsTheTestThatNeverEnded(t *testing.T) {
	inModule(t, map[string]string{"m_test.go": `package m

import (
	"os"
	"testing"
)

func TestExits(t *testing.T) { println("last words"); os.Exit(3) }
`})

	code, output := gotest(t)
	if code == 0 {
		t.Error("exit code 0 for a test binary that exited with 3")
	}

	want(t, output, "last words", "FAIL\texample.test/m", "0 passed, 1 failed, 0 skipped")
}

func TestBuildFailureShowsTheCompilersWords(t *testing.T) {
	inModule(t, map[string]string{"m_test.go": "package m\n\nfunc broken() { undefinedName() }\n"})

	code, output := gotest(t)
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}

	want(t, output, "undefined: undefinedName")
}

func TestRunWithoutTestsFails(t *testing.T) {
	inModule(t, map[string]string{"m.go": "package m\n"})

	code, output := gotest(t)
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}

	want(t, output, "no test ran")
}

func TestSpecsLeftOutByGinkgoCountAsASkip(t *testing.T) {
	inModule(t, map[string]string{"m_test.go": `package m

import (
	"fmt"
	"testing"
)

func TestSuite(t *testing.T) {
	fmt.Println("\x1b[1mSUCCESS!\x1b[0m -- \x1b[32m3 Passed\x1b[0m | \x1b[91m0 Failed\x1b[0m | \x1b[33m1 Pending\x1b[0m | \x1b[36m2 Skipped\x1b[0m")
}
`})

	code, output := gotest(t, "-strict")
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}

	want(t, output, "skipped (NOT LISTED): example.test/m TestSuite: 1 specs pending, 2 skipped")
}

func TestListWithoutAReasonIsAUsageError(t *testing.T) {
	inModule(t, map[string]string{"m_test.go": skipping, "SKIPS": "example.test/m TestGroup\n"})

	code, output := gotest(t, "-skips", "SKIPS")
	if code != 2 {
		t.Errorf("exit code %d, want 2", code)
	}

	want(t, output, "SKIPS:1:")
}
