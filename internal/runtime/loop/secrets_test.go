package loop_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/redact"
	"belay.dev/belay/internal/runtime/tools"
)

// canary is a secret that JSON has to escape.
const canary = `canary-"4711"-of-the-vault`

// keepSecrets lets the ledger know the canary.
func (s *scene) keepSecrets() {
	redactor := redact.New(canary)
	s.open = func(o *ledger.Options) { o.Redact = redactor.Bytes }
}

// sent keeps what was written to the connections of the providers.
type sent struct {
	mu sync.Mutex
	b  bytes.Buffer
}

type sentConn struct {
	net.Conn
	to *sent
}

func (c sentConn) Write(p []byte) (int, error) {
	c.to.mu.Lock()
	c.to.b.Write(p)
	c.to.mu.Unlock()
	return c.Conn.Write(p)
}

// bodies are the hashes of the requests that reached the providers, in order.
func (s *scene) bodies() []string {
	var out []string
	for _, r := range s.providers.Requests() {
		out = append(out, r.BodySHA256)
	}
	return out
}

func TestASecretReachesNoProviderNoRecordAndNoReport(t *testing.T) {
	quoted, err := json.Marshal("I was told " + canary + " by someone")
	if err != nil {
		t.Fatal(err)
	}
	words := string(quoted)
	s := newScene(t, `{"legs": {"a": {"steps": [
	  {"status": 500, "headers": {"x-request-id": "canary-%224711%22-of-the-vault"}, "error": {"message": `+words+`}},
	  {"answer": `+words+`, "deltaCharacters": 1000, "cutAfterEvents": 2},
	  {"text": `+words+`, "calls": [{"name": "look", "arguments": {}}, {"name": "look", "arguments": {"count": `+words+`}}, {"name": `+words[:10]+`no such tool", "arguments": {}}]},
	  {"answer": `+words+`}]}}}`, "a")
	s.keepSecrets()
	s.contract.Task, s.contract.System = "The task is "+canary, "Never tell "+canary
	s.workspace.answer = func(tools.Call) tools.Outcome {
		return tools.Outcome{Status: tools.OK, Text: "the file says " + canary}
	}
	wire := &sent{}
	s.conn = func(c net.Conn) net.Conn { return sentConn{c, wire} }
	end, err := s.run()
	if err != nil || end.Finished == nil || end.Finished.Reason != "Completed" {
		t.Fatalf("%+v, %v", end.Finished, err)
	}
	if want := "I was told [redacted] by someone"; end.Finished.Text != want {
		t.Errorf("the answer is %q, want %q", end.Finished.Text, want)
	}
	s.expectRequests("a=4")
	records, err := json.Marshal(s.seen)
	if err != nil {
		t.Fatal(err)
	}
	state, err := json.Marshal(end.State)
	if err != nil {
		t.Fatal(err)
	}
	places := map[string]string{
		"a provider's connection": wire.b.String(), "a record shown to the user": string(records), "the state that is reported": string(state),
	}
	if err := filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		places[path] = string(data)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for place, text := range places {
		for _, form := range []string{"4711", "NDcxM", "c5MTEi"} {
			if strings.Contains(text, form) {
				t.Errorf("%s holds the secret as %q:\n%.2000s", place, form, text)
			}
		}
	}
	if n := strings.Count(wire.b.String(), "the file says [redacted]"); n != 1 {
		t.Errorf("the tool's output was sent %d times, want once, redacted", n)
	}
}

func TestAResumedRunSendsTheSameBytesAsOneThatWasNeverStopped(t *testing.T) {
	script := `{"legs": {"a": {"advance": "PerConversation", "steps": [
	  {"text": "three at once", "calls": [{"name": "look", "arguments": {"count": 1}}, {"name": "look", "arguments": {"count": 2}}, {"name": "nothing", "arguments": {}}]},
	  {"text": "the secret is ` + strings.ReplaceAll(canary, `"`, `\"`) + `", "calls": [{"name": "look", "arguments": {"count": 4}}]},
	  {"answer": "cut", "finishReason": "length"},
	  {"answer": "all done"}]}}}`
	begin := func() *scene {
		s := newScene(t, script, "a")
		s.keepSecrets()
		s.contract.Task = "Find out about " + canary
		s.workspace.answer = func(c tools.Call) tools.Outcome {
			return tools.Outcome{Status: tools.OK, Text: fmt.Sprintf("%s of %s\u2028\x00 <&>", canary, c.Arguments)}
		}
		return s
	}
	whole := begin()
	whole.expectEnd("Completed", "cutall done")
	want, records := whole.bodies(), lines(t, whole.dir)
	for n := 1; n < len(records); n++ {
		s := begin()
		s.plant(records[:n])
		committed := read(t, s.dir).committed
		s.expectEnd("Completed", "cutall done")
		if got := s.bodies(); len(want) < len(got) || !slices.Equal(got, want[len(want)-len(got):]) || len(got) < 4-committed {
			t.Errorf("killed after record %d of %d: the bodies sent are %q, want the last of %q", n, len(records), got, want)
		}
	}
}
