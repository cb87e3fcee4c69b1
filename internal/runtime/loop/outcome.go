package loop

import (
	"fmt"
	"strings"

	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/message"
)

// Reason is why a run or an epoch ended, in the words of the AgentRun's Succeeded condition.
type Reason string

const (
	// Completed is a natural end with evidence.
	Completed Reason = record.ReasonCompleted
	// OutcomeUnknown is a natural end whose last tool calls all failed: a text is no evidence.
	OutcomeUnknown Reason = "OutcomeUnknown"
	// OutputTruncated is an answer that the output limit cut again and again.
	OutputTruncated Reason = "OutputTruncated"
	// ModelRefused is a refusal by the model.
	ModelRefused Reason = "ModelRefused"
	// DeadlineExceeded is limits.activeDeadlineSeconds of pod time spent.
	DeadlineExceeded Reason = "DeadlineExceeded"
	// PolicyConflict is a ladder with a leg that the run's policy forbids and its selection does not exclude.
	PolicyConflict Reason = "PolicyConflict"
	// AllRoutesTripped is a run that waited for its routes longer than it may.
	AllRoutesTripped Reason = "AllRoutesTripped"
)

// maxLengthStops is how often in a row an answer may be cut before the run ends.
const maxLengthStops = 3

// continueText asks for the rest of a cut answer.
const continueText = "Your answer was cut by the output limit. Continue exactly where it stopped, without repeating anything."

// verdict is how the committed turn ends the run; ok is false when the run goes on.
func (s *State) verdict() (end record.RunEnd, ok bool) {
	if s.Committed == 0 || s.Committed != s.Turn || len(s.Pending) > 0 {
		return record.RunEnd{}, false
	}
	last, found := s.lastAnswer()
	if !found || len(last.Calls()) > 0 && s.LengthStops < maxLengthStops {
		return record.RunEnd{}, false
	}
	end = record.RunEnd{Turn: s.Committed, Text: s.finalText()}
	switch last.Stop {
	case message.StopRefusal:
		end.Reason = string(ModelRefused)
		end.Message = fmt.Sprintf("The model of leg %s refused to go on in turn %d.", s.LastLeg, s.Committed)
		return end, true
	case message.StopLength:
		if s.LengthStops < maxLengthStops {
			return record.RunEnd{}, false
		}
		end.Reason = string(OutputTruncated)
		end.Message = fmt.Sprintf("%d answers in a row were cut by the output limit of leg %s. Raise maxOutputTokens of the leg, or ask for less.", s.LengthStops, s.LastLeg)
		return end, true
	case message.StopPaused:
		return record.RunEnd{}, false
	case message.StopEnd, message.StopCalls:
	}
	if t := s.LastToolTurn; t.Correctable > 0 && t.Succeeded == 0 {
		end.Reason = string(OutcomeUnknown)
		end.Message = fmt.Sprintf("The model ended with a text, but all calls of its last tool turn (turn %d) failed, so nothing shows that the task is done.", t.Turn)
		return end, true
	}
	end.Reason = string(Completed)
	end.Message = fmt.Sprintf("Completed in %s on leg %s.", turns(s.Committed), s.LastLeg)
	return end, true
}

// lastAnswer is the newest assistant message.
func (s *State) lastAnswer() (message.Message, bool) {
	for i := len(s.Messages) - 1; i >= 0; i-- {
		if s.Messages[i].Role == message.RoleAssistant {
			return s.Messages[i], true
		}
	}
	return message.Message{}, false
}

// finalText is the text of the last answer, together with the pieces before it that the output limit cut.
func (s *State) finalText() string {
	text := ""
	for i := len(s.Messages) - 1; i >= 0; i-- {
		m := s.Messages[i]
		switch {
		case m.Role == message.RoleControl:
			continue
		case m.Role == message.RoleAssistant && (text == "" || m.Stop == message.StopLength):
			text = m.Text() + text
		default:
			return text
		}
	}
	return text
}

// exceeded is the limit that forbids another model call; ok is false when there is none.
func (s *State) exceeded(l record.Limits) (end record.RunEnd, ok bool) {
	if e := s.Account.MayTurn(); e != nil {
		end.Reason, end.Message = e.Reason, sentence(e.Message)
	} else if l.ActiveDeadline > 0 && s.Active >= l.ActiveDeadline {
		end.Reason = string(DeadlineExceeded)
		end.Message = fmt.Sprintf("The run was active for %d s of the %d s of limits.activeDeadlineSeconds.", int(s.Active.Seconds()), int(l.ActiveDeadline.Seconds()))
	} else {
		return record.RunEnd{}, false
	}
	end.Turn = s.Committed
	end.Text = s.finalText()
	return end, true
}

// sentence makes a clause stand by itself.
func sentence(clause string) string {
	if clause == "" {
		return ""
	}
	return strings.ToUpper(clause[:1]) + clause[1:] + "."
}

func turns(n int) string {
	if n == 1 {
		return "1 turn"
	}
	return fmt.Sprintf("%d turns", n)
}
