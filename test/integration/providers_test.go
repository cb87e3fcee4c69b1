package integration

import (
	"fmt"
	"slices"
	"strings"

	"belay.dev/belay/internal/chaos"
)

// endpoint is the scene's own leg of the scripted providers.
func (s *scene) endpoint(leg string) string { return s.ns + "." + leg }

// apiKey is the only key that the provider takes.
func (s *scene) apiKey(leg string) string { return "key-of-" + s.endpoint(leg) }

func modelOf(leg string) string { return "model-of-" + leg }

// provider gives the provider of a leg its script, in the YAML of chaos scripts, and starts it at its first step. A
// provider that exists is changed. With every conversation at the steps of its own, any number of runs can play them.
func (s *scene) provider(leg, steps string) {
	s.t.Helper()
	script, err := chaos.ParseScript([]byte(fmt.Sprintf("legs:\n  %s:\n    model: %s\n    apiKey: %s\n    advance: PerConversation\n    steps:\n%s",
		s.endpoint(leg), modelOf(leg), s.apiKey(leg), indented(steps))))
	if err != nil {
		s.t.Fatalf("script of provider %s: %v", leg, err)
	}
	if err := shared.Providers.Replace(script); err != nil {
		s.t.Fatalf("script of provider %s: %v", leg, err)
	}
}

func indented(steps string) string {
	var out strings.Builder
	for line := range strings.Lines(strings.Trim(steps, "\n") + "\n") {
		out.WriteString("    " + line)
	}
	return out.String()
}

// Steps that many tests use.
const (
	outage = `
- {status: 503, times: Forever}`
	oneAnswer = `
- {answer: "All is done.", usage: {input: 1000, output: 100}}`
)

// gate is the file by which a test ends a command that gatedTurns asks for.
const gate = "gate"

// gatedTurns is a model that asks for one command with an effect, looks at what is there, and answers. The command writes
// its effect and then lasts until the gate is there, so a test can do anything in the middle of it.
const gatedTurns = `
- text: I announce the change.
  calls: [{name: shell, arguments: {command: "echo announced >> effects.log; until [ -e gate ]; do sleep 0.1; done"}}]
  usage: {input: 1000, output: 100}
- text: I look at what is there before I do anything again.
  calls: [{name: shell, arguments: {command: "cat effects.log"}}]
  usage: {input: 1000, output: 100}
- expect: {toolResults: [{call: 2, contains: announced}]}
  answer: The change was announced once.
  usage: {input: 1000, output: 100}`

// asked are the requests to the provider of a leg.
func (s *scene) asked(leg string) []chaos.Request {
	return slices.DeleteFunc(shared.Providers.Requests(), func(r chaos.Request) bool { return r.Leg != s.endpoint(leg) })
}

// wantAsked fails the test unless the provider of a leg was asked exactly so often.
func (s *scene) wantAsked(leg string, want int) {
	s.t.Helper()
	if got := s.asked(leg); len(got) != want {
		s.t.Errorf("provider %s was asked %d times, want %d: %+v", leg, len(got), want, got)
	}
}

// answeredTurns are, for each whole answer of a leg's provider, how many answers its conversation had before.
func (s *scene) answeredTurns(leg string) []int {
	var turns []int
	for _, r := range s.asked(leg) {
		if r.Outcome == chaos.OutcomeCompleted {
			turns = append(turns, r.AssistantTurns)
		}
	}
	return turns
}

// problems are what the providers of the scene found wrong with requests.
func (s *scene) problems() []string {
	var out []string
	for _, r := range shared.Providers.Requests() {
		if strings.HasPrefix(r.Leg, s.ns+".") && r.Outcome == chaos.OutcomeRejected {
			out = append(out, fmt.Sprintf("%s: %s", r.Leg, strings.Join(r.Problems, "; ")))
		}
	}
	return out
}
