package main

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
)

// event is one line of "go test -json" (cmd/test2json documents the fields).
type event struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Output     string
}

// testID names a test function, or a package where test is empty.
type testID struct{ pkg, test string }

// report turns events back into the lines that "go test" prints without -v:
// the output of failed tests, and one line for each package.
type report struct {
	out     io.Writer
	output  map[testID][]string
	running []testID
	skips   []skip
	passed  int
	failed  int
}

func newReport(out io.Writer) *report {
	return &report{out: out, output: map[testID][]string{}}
}

// line takes one line of "go test -json" and says whether it printed anything.
func (r *report) line(line []byte) bool {
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		// Not an event, so not for a program: the go command talks to the user.
		r.print(string(line))
		return true
	}

	id := testID{pkg: e.Package, test: e.Test}

	switch e.Action {
	case "build-output":
		r.print(e.Output)
		return true
	case "run":
		r.running = append(r.running, id)
	case "output":
		r.output[id] = append(r.output[id], e.Output)
		r.ginkgo(id, e.Output)
	case "pass", "fail", "skip":
		if id.test == "" {
			return r.endPackage(id, e.Action)
		}

		return r.endTest(id, e.Action)
	}

	return false
}

func (r *report) endTest(id testID, action string) bool {
	output := r.output[id]
	delete(r.output, id)
	r.running = slices.DeleteFunc(r.running, func(other testID) bool { return other == id })

	switch action {
	case "fail":
		r.failed++
		r.printOutput(output)

		return true
	case "skip":
		r.skips = append(r.skips, skip{testID: id, reason: skipReason(output)})
	default:
		r.passed++
	}

	return false
}

// endPackage prints the package's line. Of a failed package it prints all that
// was not printed yet: tests that a panic, a timeout or os.Exit cut off have no
// end of their own.
func (r *report) endPackage(id testID, action string) bool {
	output := r.output[id]
	delete(r.output, id)

	if action == "fail" {
		for _, test := range r.running {
			if test.pkg == id.pkg {
				r.failed++
				r.printOutput(r.output[test])
				delete(r.output, test)
			}
		}

		r.printOutput(output)
	} else {
		for _, line := range output {
			if strings.HasPrefix(line, "ok  \t") || strings.HasPrefix(line, "?   \t") {
				r.print(line)
			}
		}
	}

	r.running = slices.DeleteFunc(r.running, func(test testID) bool { return test.pkg == id.pkg })

	return true
}

var (
	ansi = regexp.MustCompile("\x1b\\[[0-9;]*m")
	// The last line of a Ginkgo suite.
	ginkgoSummary = regexp.MustCompile(`(\d+) Passed \| \d+ Failed \| (\d+) Pending \| (\d+) Skipped`)
)

// ginkgo records the specs that a suite did not run; "go test" knows nothing of
// them. A failed suite is left alone: after a failure Ginkgo skips the rest.
func (r *report) ginkgo(id testID, output string) {
	plain := ansi.ReplaceAllString(output, "")

	match := ginkgoSummary.FindStringSubmatch(plain)
	if match == nil || !strings.HasPrefix(plain, "SUCCESS!") || (match[2] == "0" && match[3] == "0") {
		return
	}

	r.skips = append(r.skips, skip{testID: id, reason: fmt.Sprintf("%s specs pending, %s skipped", match[2], match[3])})
}

// waiting tells that the run goes on, and what it waits for.
func (r *report) waiting(elapsed time.Duration) {
	doing := "building"
	if len(r.running) > 0 {
		last := r.running[len(r.running)-1]
		doing = last.pkg + " " + last.test
	}

	r.print(fmt.Sprintf("... %s: %s\n", elapsed.Round(time.Second), doing))
}

// close prints the skipped tests and the totals, and returns how many of the
// skips the list does not allow.
func (r *report) close(allowed skipList) (unlisted int) {
	for _, s := range r.skips {
		verdict := "listed"
		if !allowed.allows(s.testID) {
			verdict = "NOT LISTED"
			unlisted++
		}

		r.print(fmt.Sprintf("skipped (%s): %s %s: %s\n", verdict, s.pkg, s.test, s.reason))
	}

	r.print(fmt.Sprintf("%d passed, %d failed, %d skipped\n", r.passed, r.failed, len(r.skips)))

	return unlisted
}

// framing are the lines that "go test" prints with -v only.
var framing = regexp.MustCompile(`^=== (RUN|PAUSE|CONT|NAME)\s`)

func (r *report) printOutput(lines []string) {
	for _, line := range lines {
		if !framing.MatchString(line) {
			r.print(line)
		}
	}
}

// print writes text; where standard output is gone there is nobody left to tell.
func (r *report) print(text string) { _, _ = io.WriteString(r.out, text) }
