package cli

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

func TestChaosServesItsScriptUntilItIsInterrupted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, answersAtOnce)
	w.write("script.yaml", `{legs: {x: {steps: [{status: 418}]}}}`)
	p := w.command("chaos", "--script", "script.yaml", "--address", "127.0.0.1:0").start()
	listening := regexp.MustCompile(`listening on (http://\S+)`)
	eventually(t, "it listens", func() bool { return listening.MatchString(p.stderr.String()) })
	url := listening.FindStringSubmatch(p.stderr.String())[1]
	answer, err := http.Get(url + "/_chaos/requests")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	if err != nil || answer.StatusCode != http.StatusOK || !strings.Contains(string(body), `"requests"`) {
		t.Errorf("status %d, %v: %s", answer.StatusCode, err, body)
	}
	p.signal(syscall.SIGTERM)
	p.must(CodeCompleted).answers("")
}

func TestChaosRefusesAnAddressThatIsTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, answersAtOnce)
	w.write("script.yaml", `{legs: {x: {steps: [{status: 418}]}}}`)
	w.belay("chaos", "--script", "script.yaml", "--address", strings.TrimPrefix(w.url, "http://")).must(CodeUsage, "listen on", "in use")
}
