package guard

import "strings"

// Kind is why a call did not end well, in the words of package tools. Only the kinds that another call may cure have a
// name here; every other is not the model's to correct.
type Kind string

// The correctable kinds.
const (
	// UnknownTool: there is no tool of that name.
	UnknownTool Kind = "UnknownTool"
	// InvalidArguments: the arguments do not fit the tool's schema.
	InvalidArguments Kind = "InvalidArguments"
	// NotFound: what the arguments name does not exist.
	NotFound Kind = "NotFound"
	// ExecutionFailed: the tool ran and failed.
	ExecutionFailed Kind = "ExecutionFailed"
	// Timeout: the tool did not end in time.
	Timeout Kind = "Timeout"
)

const (
	// kindCancelled is the kind of a call that was withdrawn, such as one of an answer that the output limit cut.
	kindCancelled Kind = "Cancelled"
	// Denied is the kind of a call that policy refused; the loop guard's refusals are of it.
	Denied Kind = "Denied"
)

// Correctable reports whether the model can cure the failure by another call.
func (k Kind) Correctable() bool { return k.Hint() != "" }

// rejected reports whether the call itself was wrong, so that no tool ever saw it.
func (k Kind) rejected() bool { return k == UnknownTool || k == InvalidArguments }

// harmless reports whether a call that ended so has changed nothing.
func (k Kind) harmless() bool { return k.rejected() || k == NotFound }

// MaxHintBytes bounds a hint.
const MaxHintBytes = 320

// Hint is what the result of a correctable failure tells the model beside the failure itself; it is empty for every
// other kind. A command that failed by itself (Result.CommandFailed) needs none: its output says what happened.
func (k Kind) Hint() string {
	switch k {
	case UnknownTool:
		return "Hint: call one of the tools you were given, by its exact name. If none of them can do it, say so instead of guessing a name."
	case InvalidArguments:
		return "Hint: nothing was executed. Send the call again with every required argument, with no argument that the schema does not name, and with values of the types that it states."
	case NotFound:
		return "Hint: do not send the same call again. Look up what exists first, by listing or searching, and then use a name or path that you have seen."
	case ExecutionFailed:
		return "Hint: the same call will most likely fail in the same way. Read the message, look at the present state, and change the arguments or the approach."
	case Timeout:
		return "Hint: the call may have had effects, so check the present state first. Then ask for less at a time, or for a longer time limit if the tool has one."
	case kindCancelled, Denied:
		return ""
	}
	return ""
}

// WithHint appends the hint to the text of a failure, if the kind has one. A text as it stands in a Result may carry its
// hint; what the guard tells of a failure leaves it out again.
func (k Kind) WithHint(text string) string {
	hint := k.Hint()
	if hint == "" {
		return text
	}
	if text != "" {
		text = strings.TrimSuffix(text, "\n") + "\n"
	}
	return text + hint
}

func (k Kind) withoutHint(text string) string {
	return strings.TrimSuffix(strings.TrimSuffix(text, k.Hint()), "\n")
}
