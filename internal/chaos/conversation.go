package chaos

import (
	"fmt"
	"slices"
	"strings"
)

// conversation is what a checked request says, in the words of no dialect.
type conversation struct {
	model  string
	stream bool
	// reserved is the output limit asked for, in tokens.
	reserved       int64
	includeUsage   bool
	messages       int
	assistantTurns int
	system         string
	// last is the text of the last message, or of all tool results after the last assistant turn.
	last string
	// all is every text of the conversation.
	all []string
	// calls are the ids of all tool calls, in order.
	calls []string
	// results are the texts of the tool results by call id.
	results map[string]string
	tools   []string
}

// unmet returns what the request lacks. The texts name the script's words, never the conversation's.
func (e *Expectation) unmet(c conversation) []string {
	var unmet []string
	fail := func(format string, args ...any) { unmet = append(unmet, fmt.Sprintf(format, args...)) }
	if !strings.Contains(c.last, e.LastContains) {
		fail("the last message does not contain %q", e.LastContains)
	}
	if e.LastOmits != "" && strings.Contains(c.last, e.LastOmits) {
		fail("the last message contains %q", e.LastOmits)
	}
	if !strings.Contains(c.system, e.SystemContains) {
		fail("the system prompt does not contain %q", e.SystemContains)
	}
	within := func(text string) bool {
		return slices.ContainsFunc(c.all, func(s string) bool { return strings.Contains(s, text) })
	}
	for _, text := range e.Contains {
		if !within(text) {
			fail("the conversation does not contain %q", text)
		}
	}
	for _, text := range e.Omits {
		if within(text) {
			fail("the conversation contains %q", text)
		}
	}
	for _, r := range e.ToolResults {
		unmet = append(unmet, r.unmet(c)...)
	}
	for _, name := range e.Tools {
		if !slices.Contains(c.tools, name) {
			fail("the tool %q is not declared", name)
		}
	}
	if e.AssistantTurns != nil && *e.AssistantTurns != c.assistantTurns {
		fail("there are %d assistant turns, not %d", c.assistantTurns, *e.AssistantTurns)
	}
	return unmet
}

func (r ResultExpectation) unmet(c conversation) []string {
	number := r.Call
	if number == 0 {
		number = len(c.calls)
	}
	if number < 1 || number > len(c.calls) {
		return []string{fmt.Sprintf("there is no tool call %d, only %d calls", number, len(c.calls))}
	}
	text, answered := c.results[c.calls[number-1]]
	switch {
	case !answered:
		return []string{fmt.Sprintf("tool call %d has no result", number)}
	case !strings.Contains(text, r.Contains):
		return []string{fmt.Sprintf("the result of tool call %d does not contain %q", number, r.Contains)}
	case r.Omits != "" && strings.Contains(text, r.Omits):
		return []string{fmt.Sprintf("the result of tool call %d contains %q", number, r.Omits)}
	}
	return nil
}
