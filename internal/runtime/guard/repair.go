package guard

import (
	"fmt"
	"slices"
	"strings"
)

// failingTurn is a turn that charges the repair budget: at least one of its calls failed correctably, and none of its
// tools worked.
//
// A command that ran and ended by itself with a failure is a tool that worked. The budget is for calls that the model
// cannot get right; whether the build passes is the task, and an agent whose tests fail three times in a row is at work.
// What bounds it are the loop rules, which see that output does not change, and the limits of the run. (The outcome of
// the run is another question: a last turn of failing tests is no evidence of success.)
//
// A turn in which no tool worked and nothing failed correctably (denied, withdrawn, crashed, in doubt, refused as a
// loop, polls within their time) neither charges the budget nor refills it. A turn without calls is no turn here.
type failingTurn struct {
	turn     int
	failures []failure // the first maxFailures of them
	more     int
}

// maxFailures bounds what is kept of a turn's failures.
const maxFailures = 8

func (s *State) countFailingTurn() {
	next := failingTurn{turn: s.turn.number}
	for _, j := range s.turn.results {
		switch {
		case j.worked:
			s.failing = nil
			return
		case j.failed && len(next.failures) < maxFailures:
			next.failures = append(next.failures, j.failure)
		case j.failed:
			next.more++
		}
	}
	if len(next.failures) == 0 {
		return
	}
	s.failing = append(s.failing, next)
	if len(s.failing) > RepairTurns {
		s.failing = slices.Delete(s.failing, 0, 1)
	}
}

// chargedNow reports whether the newest turn is the n-th failing one in a row.
func (s *State) chargedNow(n int) bool {
	return len(s.failing) == n && s.failing[n-1].turn == s.turn.number
}

// Limits of a directive's size.
const (
	// maxDirectiveBytes is the length that a directive does not exceed by taking in a schema. A schema is told whole or not
	// at all: a part of one would be another schema.
	maxDirectiveBytes = 16 << 10
	maxInventory      = 200
)

// Tool is a tool as the model was given it.
type Tool struct {
	Name string
	// Schema is the JSON Schema of its arguments, as it was given to the model.
	Schema string
}

// directive is what the model is told after the last but one failing turn.
func (s *State) directive(tools []Tool) string {
	newest := s.failing[len(s.failing)-1]
	var b strings.Builder
	fmt.Fprintf(&b, "In %d turns in a row, all your tool calls failed. If the next one fails in the same way, the run is stopped.\n", len(s.failing))
	for _, f := range newest.failures {
		fmt.Fprintf(&b, "\n%s failed with %s:\n%s\n", toolName(f.call.Tool), f.kind, f.text)
	}
	if newest.more > 0 {
		fmt.Fprintf(&b, "\n%d more calls failed.\n", newest.more)
	}
	unknown := false
	var told []string
	for _, f := range newest.failures {
		at := slices.IndexFunc(tools, func(t Tool) bool { return t.Name == f.call.Tool })
		if at < 0 {
			unknown = true
			continue
		}
		if !slices.Contains(told, f.call.Tool) {
			told = append(told, f.call.Tool)
			restate(&b, tools[at])
		}
	}
	if unknown {
		inventory(&b, tools)
	}
	b.WriteString("\nCheck each argument against the schema before you call. If no tool can do what is needed, say so in plain words and call none.")
	return b.String()
}

func restate(b *strings.Builder, t Tool) {
	if b.Len()+len(t.Schema) > maxDirectiveBytes {
		fmt.Fprintf(b, "\nThe schema of %s is too large to be repeated here; it is the one that the tool was declared with.\n", t.Name)
		return
	}
	fmt.Fprintf(b, "\nThe arguments of %s must fit this JSON Schema:\n%s\n", t.Name, t.Schema)
}

func inventory(b *strings.Builder, tools []Tool) {
	if len(tools) == 0 {
		b.WriteString("\nThere are no tools.\n")
		return
	}
	list := make([]string, len(tools))
	for i, t := range tools {
		list[i] = t.Name
	}
	fmt.Fprintf(b, "\nThese are all the tools there are: %s.\n", names(list, maxInventory))
}

// repairStop is the stop of a spent repair budget.
func (s *State) repairStop() *Stop {
	if !s.chargedNow(RepairTurns) {
		return nil
	}
	var turns, what []string
	for _, t := range s.failing {
		turns = append(turns, fmt.Sprint(t.turn))
		for _, f := range t.failures {
			what = append(what, fmt.Sprintf("%s %s", toolName(f.call.Tool), f.kind))
		}
	}
	stop := stopped(ToolRepairExhausted, fmt.Sprintf(
		"All tool calls of %d turns in a row failed (turns %s: %s), although the model was told how the calls must look.",
		RepairTurns, strings.Join(turns, ", "), names(what, maxNamedTools)))
	var b strings.Builder
	for _, t := range s.failing {
		fmt.Fprintf(&b, "\n\nTurn %d:", t.turn)
		for i, f := range t.failures {
			if i == maxFailuresTold {
				break
			}
			fmt.Fprintf(&b, "\n- %s failed with %s: %s", toolName(f.call.Tool), f.kind, clip(f.text, failureToldBytes))
		}
		if more := len(t.failures) + t.more - maxFailuresTold; more > 0 {
			fmt.Fprintf(&b, "\n- %d more failed", more)
		}
	}
	stop.Text += b.String()
	return stop
}

// What a final text tells of each failing turn, so that it fits MaxFinalTextBytes.
const (
	maxFailuresTold  = 4
	failureToldBytes = 160
)
