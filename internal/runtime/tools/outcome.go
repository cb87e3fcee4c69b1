package tools

import "time"

// Status says how a call ended.
type Status string

const (
	// OK: the tool did what it was asked to.
	OK Status = "OK"
	// Error: the tool ran, or refused to run, and said why.
	Error Status = "Error"
	// Timeout: the call was stopped at its time limit. It may have had effects.
	Timeout Status = "Timeout"
	// Cancelled: the call was stopped because nobody wanted its result any more.
	// It may have had effects.
	Cancelled Status = "Cancelled"
	// InDoubt: the call was started and its outcome was not observed.
	InDoubt Status = "InDoubt"
	// NotRun: the call was provably never started.
	NotRun Status = "NotRun"
)

// ErrorKind is the closed list of reasons why a call did not end well.
type ErrorKind string

// The correctable kinds: another call by the model may do better.
const (
	// KindNone is the kind of a call that ended well.
	KindNone ErrorKind = ""
	// KindUnknownTool: there is no tool of that name.
	KindUnknownTool ErrorKind = "UnknownTool"
	// KindInvalidArguments: the arguments do not fit the tool's schema.
	KindInvalidArguments ErrorKind = "InvalidArguments"
	// KindNotFound: what the arguments name does not exist.
	KindNotFound ErrorKind = "NotFound"
	// KindExecutionFailed: the tool ran and failed. A command that ended with a
	// non-zero exit code is of this kind and has Outcome.ExitCode set.
	KindExecutionFailed ErrorKind = "ExecutionFailed"
	// KindTimeout: the tool did not end in time.
	KindTimeout ErrorKind = "Timeout"
)

// The kinds that no other arguments would cure.
const (
	// KindCancelled: the caller withdrew the call.
	KindCancelled ErrorKind = "Cancelled"
	// KindDenied: policy or a person refused the call.
	KindDenied ErrorKind = "Denied"
	// KindRevoked: the caller is no longer entitled to make calls, such as a
	// runner of an older epoch.
	KindRevoked ErrorKind = "Revoked"
	// KindAuth: the tool's server refused the credential.
	KindAuth ErrorKind = "Auth"
	// KindRateLimited: the tool's server asked for a pause.
	KindRateLimited ErrorKind = "RateLimited"
	// KindProcessCrashed: the tool's server ended or its transport broke.
	KindProcessCrashed ErrorKind = "ProcessCrashed"
	// KindInDoubt: the outcome was not observed.
	KindInDoubt ErrorKind = "InDoubt"
)

// Correctable reports whether the model can cure the failure by another call.
func (k ErrorKind) Correctable() bool {
	switch k {
	case KindUnknownTool, KindInvalidArguments, KindNotFound, KindExecutionFailed, KindTimeout:
		return true
	case KindNone, KindCancelled, KindDenied, KindRevoked, KindAuth, KindRateLimited, KindProcessCrashed, KindInDoubt:
		return false
	}
	return false
}

// Outcome is what a call came to. It is data: no failure of a tool is a Go error.
type Outcome struct {
	Status    Status    `json:"status"`
	ErrorKind ErrorKind `json:"errorKind,omitempty"`
	// Text is what the model is shown: valid UTF-8, at most MaxTextBytes.
	Text string `json:"text"`
	// Media are images and sounds that the tool returned.
	Media []Media `json:"media,omitempty"`
	// ExitCode is set when a command ended by itself. Status Error together
	// with an ExitCode means that the tool worked and the command reported a
	// failure, as a failing test suite does.
	ExitCode *int `json:"exitCode,omitempty"`
	// Signal names the signal that ended a command, such as "SIGKILL".
	Signal string `json:"signal,omitempty"`
	// Truncated is set when Text is not the whole output.
	Truncated *Truncation `json:"truncated,omitempty"`
	// StartedAt is when the tool began; zero when it never did.
	StartedAt time.Time `json:"startedAt,omitzero"`
	// Duration is how long it ran.
	Duration time.Duration `json:"durationNanoseconds,omitempty"`
}

// Failed reports whether the call did anything but end well.
func (o Outcome) Failed() bool { return o.Status != OK }

// Media is one piece of binary content.
type Media struct {
	MIMEType string `json:"mimeType"`
	Data     []byte `json:"data"`
}

// Truncation says how much of an output Outcome.Text shows.
type Truncation struct {
	// TotalBytes is the size of the output as the tool wrote it.
	TotalBytes int64 `json:"totalBytes"`
	// OmittedBytes is how many of them Text leaves out.
	OmittedBytes int64 `json:"omittedBytes"`
	// Path is the file in the workspace that has the output, relative to the
	// workspace's root; empty when none does.
	Path string `json:"path,omitempty"`
	// StoredBytes is how many bytes of the output the file has.
	StoredBytes int64 `json:"storedBytes,omitempty"`
}

// Refusal is the outcome of a call that was never started.
func Refusal(kind ErrorKind, text string) Outcome {
	return Outcome{Status: NotRun, ErrorKind: kind, Text: SafeText(text)}
}

// Failure is the outcome of a call that ran and failed.
func Failure(kind ErrorKind, text string) Outcome {
	return Outcome{Status: Error, ErrorKind: kind, Text: SafeText(text)}
}

// JobStatus is what the supervisor knows about a call id.
type JobStatus string

const (
	// JobUnknown: the spool has no such call. With an intact spool that proves
	// that the call never began.
	JobUnknown JobStatus = "Unknown"
	// JobRunning: the call runs now; calling it again attaches to it.
	JobRunning JobStatus = "Running"
	// JobFinished: the call ended and its outcome is at hand.
	JobFinished JobStatus = "Finished"
	// JobDead: the call was started and the supervisor that ran it ended before
	// the outcome was stored. It is in doubt.
	JobDead JobStatus = "Dead"
)

// JobState is the supervisor's answer about one call id.
type JobState struct {
	State JobStatus `json:"state"`
	// Outcome is set when State is JobFinished.
	Outcome *Outcome `json:"outcome,omitempty"`
	// BootID is that of the supervisor which started the call.
	BootID string `json:"bootID,omitempty"`
	// StartedAt is when the call began; zero when State is JobUnknown.
	StartedAt time.Time `json:"startedAt,omitzero"`
	// OutputTail is the end of what a dead or running call had written so far
	// (at most 4 KiB): evidence for whoever has to judge a call in doubt.
	OutputTail string `json:"outputTail,omitempty"`
	// SpoolIntact reports that the spool has been there, complete, since the
	// run's first epoch. Only then does JobUnknown prove anything.
	SpoolIntact bool `json:"spoolIntact"`
}
