package guard

// Reason is why the guard ends a run, in the words of the AgentRun's Succeeded condition.
type Reason string

const (
	// ToolRepairExhausted: RepairTurns turns in a row had failed calls only.
	ToolRepairExhausted Reason = "ToolRepairExhausted"
	// LoopDetected: the run repeats itself.
	LoopDetected Reason = "LoopDetected"
)

// NoteKind is what a note is for. It is the kind of the control record that carries the note.
type NoteKind string

const (
	// NoteRepair re-states how the failed calls must look.
	NoteRepair NoteKind = "Repair"
	// NoteLoop warns of failures of one class.
	NoteLoop NoteKind = "LoopWarning"
)

// Note is what the model is to be told before it is asked again, as the runtime's words.
type Note struct {
	Kind NoteKind
	Text string
}

// Stop ends the run.
type Stop struct {
	Reason Reason
	// Message is for the condition, the event and the diagnostic: names, kinds and counts, no text of tools or models
	// beyond the names of tools.
	Message string
	// Text is the final text of the run, at most MaxFinalTextBytes. It says that the runtime wrote it.
	Text string
}

const (
	// MaxFinalTextBytes bounds Stop.Text: what a run's status shows of a final text.
	MaxFinalTextBytes = 4 << 10
	// MaxNoteBytes bounds the text of a note.
	MaxNoteBytes = 32 << 10
	// maxNamedTools bounds a list of tools in a message.
	maxNamedTools = 8
)

// finalTextMark opens every final text that the guard writes.
const finalTextMark = "[This text was written by the runtime, not by the model.]"

func stopped(reason Reason, message string) *Stop {
	return &Stop{Reason: reason, Message: message, Text: finalTextMark + "\n\nThe run was stopped before the task was done. " + message}
}

// Decision is what follows from the newest turn: a stop, or notes, or neither.
type Decision struct {
	Stop  *Stop
	Notes []Note
}

// Decide says what is due before the model is asked again. It is to be asked whenever all calls are answered, after a
// restart too: a note stays due until Noted is applied, a stop until the next Answer. The first rule that calls for a
// stop decides; notes of a stopped run are not told. tools are the tools that the model is offered.
func (s *State) Decide(tools []Tool) Decision {
	if !s.closed || len(s.turn.calls) == 0 {
		return Decision{}
	}
	for _, rule := range []func() *Stop{s.repairStop, s.loopStop, s.classStop} {
		if stop := rule(); stop != nil {
			stop.Text = clip(stop.Text, MaxFinalTextBytes)
			return Decision{Stop: stop}
		}
	}
	var d Decision
	for _, kind := range s.due {
		note := Note{Kind: kind}
		switch kind {
		case NoteRepair:
			note.Text = s.directive(tools)
		case NoteLoop:
			note.Text = s.classWarning()
		}
		d.Notes = append(d.Notes, note)
	}
	return d
}
