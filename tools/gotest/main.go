// Command gotest runs "go test", prints what "go test" prints, and judges
// skipped tests: in CI a test may skip only if a list says so and why.
//
//	gotest [-skips FILE] [-strict] [--] [arguments of go test]
//
// A test that skips where it should have run is a hole that a green run hides.
// With -strict (the default where the environment has CI=true) a skip that FILE
// does not list fails the run; without it skips are only named at the end. Each
// line of FILE is "package TestName reason"; "#" starts a comment, a listed test
// covers its subtests, and a missing FILE lists nothing. Specs that a Ginkgo
// suite leaves out count as a skip of the test function that runs the suite.
//
// The exit code is that of "go test", else 1 for an unlisted skip or when no
// test ran at all, 2 for a usage error.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// quietFor is how long a run may print nothing before it names what it waits for.
const quietFor = time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)

	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("gotest", flag.ContinueOnError)
	flags.SetOutput(stderr)
	skipsFile := flags.String("skips", "", "`file` that lists the tests that may skip")
	strict := flags.Bool("strict", os.Getenv("CI") == "true", "fail on a skip that is not listed")

	if err := flags.Parse(args); err != nil {
		return 2
	}

	allowed, err := readSkipList(*skipsFile)
	if err != nil {
		fmt.Fprintln(stderr, "gotest:", err)
		return 2
	}

	report := newReport(stdout)

	code, err := goTest(ctx, flags.Args(), report, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "gotest:", err)
		return 1
	}

	unlisted := report.close(allowed)

	switch {
	case code != 0:
		return code
	case report.passed+len(report.skips) == 0:
		fmt.Fprintln(stderr, "gotest: no test ran")
		return 1
	case *strict && unlisted > 0:
		fmt.Fprintf(stderr, "gotest: %d skipped tests are not listed in %q; make them run, or list them there with the reason\n",
			unlisted, *skipsFile)

		return 1
	}

	return 0
}

// goTest runs "go test -json" and feeds its events to the report until it ends.
// It returns the exit code of "go test".
func goTest(ctx context.Context, args []string, report *report, stderr io.Writer) (int, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second

	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return 0, fmt.Errorf("connect to go test: %w", err)
	}

	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start go test: %w", err)
	}

	lines := make(chan []byte)
	readErr := make(chan error, 1)

	go func() {
		readErr <- readLines(pipe, lines)

		close(lines)
	}()

	start := time.Now()
	ticker := time.NewTicker(quietFor)

	defer ticker.Stop()

	for open := true; open; {
		select {
		case line, ok := <-lines:
			open = ok

			if ok && report.line(line) {
				ticker.Reset(quietFor)
			}
		case <-ticker.C:
			report.waiting(time.Since(start))
		}
	}

	if err := <-readErr; err != nil {
		return 0, fmt.Errorf("read the events of go test: %w", err)
	}

	var exit *exec.ExitError
	if err := cmd.Wait(); errors.As(err, &exit) && exit.ExitCode() > 0 {
		return exit.ExitCode(), nil
	} else if err != nil {
		return 0, fmt.Errorf("go test: %w", err)
	}

	return 0, nil
}

// readLines sends every line with its newline; a line may have any length.
func readLines(from io.Reader, to chan<- []byte) error {
	reader := bufio.NewReader(from)

	for {
		line, err := reader.ReadBytes('\n')
		if len(line) > 0 {
			to <- line
		}

		if errors.Is(err, io.EOF) {
			return nil
		}

		if err != nil {
			return err
		}
	}
}
