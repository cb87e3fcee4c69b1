package guard

import (
	"fmt"
	"slices"
	"strings"
)

// class is the failures of one tool with one kind. They are counted whatever their arguments: a call that is wrong in
// ever new ways is no less a loop than one that stays the same. Unknown tools are one class, under whatever names.
//
// A turn counts once. The count starts anew when the tool works, and a failure is forgotten after ClassWindow turns.
// Success of another tool does not help: that is what tells this rule from the repair budget.
type class struct {
	tool string // empty for unknown tools
	kind Kind
	at   []int // the ordinals of the turns
	text string
}

func classOf(f failure) (tool string, kind Kind) {
	if f.kind == UnknownTool {
		return "", UnknownTool
	}
	return f.call.Tool, f.kind
}

// countClasses counts the failures of the closed turn and reports whether a class has got as far as the warning.
func (s *State) countClasses() (warned bool) {
	var worked []string
	for _, j := range s.turn.results {
		if j.worked {
			worked = append(worked, j.call.Tool)
		}
	}
	s.classes = slices.DeleteFunc(s.classes, func(c class) bool { return slices.Contains(worked, c.tool) })
	for _, j := range s.turn.results {
		if j.failed && !slices.Contains(worked, j.call.Tool) {
			s.count(j.failure)
		}
	}
	for i := range s.classes {
		c := &s.classes[i]
		c.at = slices.DeleteFunc(c.at, func(at int) bool { return at <= s.ordinal-ClassWindow })
		warned = warned || s.warns(*c)
	}
	s.classes = slices.DeleteFunc(s.classes, func(c class) bool { return len(c.at) == 0 })
	return warned
}

func (s *State) count(f failure) {
	tool, kind := classOf(f)
	at := slices.IndexFunc(s.classes, func(c class) bool { return c.tool == tool && c.kind == kind })
	if at < 0 {
		at = len(s.classes)
		s.classes = append(s.classes, class{tool: tool, kind: kind})
	}
	c := &s.classes[at]
	c.text = f.text
	if !s.current(*c) {
		c.at = append(c.at, s.ordinal)
	}
}

// current reports whether the newest turn had a failure of the class.
func (s *State) current(c class) bool { return len(c.at) > 0 && c.at[len(c.at)-1] == s.ordinal }

func (s *State) warns(c class) bool { return s.current(c) && len(c.at) == ClassWarning }

func (c class) subject() string {
	if c.tool == "" {
		return "Calls of tools that do not exist"
	}
	return "Calls of " + toolName(c.tool)
}

// classWarning is what the model is told about the classes that have just got as far.
func (s *State) classWarning() string {
	var b strings.Builder
	for _, c := range s.classes {
		if !s.warns(c) || b.Len() > maxWarningBytes {
			continue
		}
		fmt.Fprintf(&b, "%s have failed %d times with %s, in whatever way they were written. The newest failure:\n%s\n",
			c.subject(), len(c.at), c.kind, c.text)
	}
	fmt.Fprintf(&b, "Stop and find out why before you try again. The run is stopped after %d such failures.", ClassStop)
	return b.String()
}

// maxWarningBytes is the length from which on a warning takes in no further class.
const maxWarningBytes = 4 << 10

// classStop is the stop for failures of one class.
func (s *State) classStop() *Stop {
	for _, c := range s.classes {
		if s.current(c) && len(c.at) >= ClassStop {
			stop := stopped(LoopDetected, fmt.Sprintf("%s failed %d times with %s within %d turns of calls, with different arguments or the same.",
				c.subject(), len(c.at), c.kind, s.ordinal-c.at[0]+1))
			stop.Text += "\n\nThe newest failure:\n" + c.text
			return stop
		}
	}
	return nil
}
