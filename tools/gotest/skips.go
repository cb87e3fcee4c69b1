package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"
)

// skip is a test that did not run, and what it said about why.
type skip struct {
	testID

	reason string
}

// skipList holds the tests that may skip.
type skipList map[testID]bool

// allows says whether the test or one of its parents is listed.
func (l skipList) allows(id testID) bool {
	for {
		if l[id] {
			return true
		}

		slash := strings.LastIndexByte(id.test, '/')
		if slash < 0 {
			return false
		}

		id.test = id.test[:slash]
	}
}

// readSkipList reads lines of "package TestName reason". No name and a missing
// file are empty lists.
func readSkipList(name string) (skipList, error) {
	if name == "" {
		return nil, nil
	}

	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}

	if err != nil {
		return nil, fmt.Errorf("read the list of tests that may skip: %w", err)
	}

	list := skipList{}

	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}

		fields := strings.Fields(line)
		if len(fields) < 3 {
			return nil, fmt.Errorf("%s:%d: want \"package TestName reason\", got %q", name, i+1, line)
		}

		list[testID{pkg: fields[0], test: fields[1]}] = true
	}

	return list, nil
}

// position is the "file_test.go:12: " that the testing package puts before a message.
var position = regexp.MustCompile(`^[^\s:]+\.go:\d+: `)

// skipReason finds the message of t.Skip in what the test printed.
func skipReason(output []string) string {
	for i := len(output) - 1; i >= 0; i-- {
		line := strings.TrimSpace(output[i])
		if loc := position.FindStringIndex(line); loc != nil {
			return line[loc[1]:]
		}
	}

	return "no reason given"
}
