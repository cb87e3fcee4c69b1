package cli

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"belay.dev/belay/internal/runtime/ledger"
)

// lastRecord is the type of the newest record of the run's ledger.
func (w *world) lastRecord() string {
	w.t.Helper()
	last := ""
	for e, err := range ledger.Replay(nil, w.path(runLedger)) {
		if err != nil {
			w.t.Fatal(err)
		}
		last = e.Type
	}
	return last
}

// stopScript is a run to be stopped in its call, and again in its second answer.
const stopScript = `{legs: {backup: {steps: [{answer: unused}]}, primary: {steps: [
  {calls: [{name: shell, arguments: {command: "echo effect >> effects; touch started; test -e go || exec sleep 300"}}]},
  {answer: "never the end", cutAfterEvents: 2, cut: Silence}, {answer: "Back again.", times: 9}]}}}`

func TestASignalSuspendsInTheMiddleOfACallAndOfAnAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stopScript)
	stop := func(p *process) {
		t.Helper()
		asked := time.Now()
		p.signal(syscall.SIGTERM)
		p.must(CodeSuspended, "the same command goes on").answers("")
		if d := time.Since(asked); d > 10*time.Second {
			t.Errorf("belay ended %s after the signal", d)
		}
		if last := w.lastRecord(); last != "run.suspend" {
			t.Errorf("the last record is %s, want run.suspend", last)
		}
		if left := processesOf(t, w.path("ws")); len(left) != 0 {
			t.Errorf("left over: %v", left)
		}
		w.belay("ledger", "verify", runLedger).must(CodeCompleted)
	}
	p := w.startRun("--allow-shell")
	eventually(t, "the command is at work", func() bool { return exists(w.path("ws/started")) })
	stop(p)

	p = w.startRun("--allow-shell")
	eventually(t, "the answer is under way", func() bool { return w.asked("primary") == 2 && w.server.Requests()[1].Status == 200 })
	stop(p)

	w.run("--allow-shell").must(CodeCompleted, "resuming after 1 turn").answers("Back again.\n")
	if got := w.read("ws/effects"); got != "effect\n" {
		t.Errorf("the effect happened more or less than once: %q", got)
	}
}

// TestAKillRightAfterASignalLosesNothing gives belay less and less of the time that it needs to suspend.
func TestAKillRightAfterASignalLosesNothing(t *testing.T) {
	t.Parallel()
	for _, grace := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond} {
		t.Run(fmt.Sprint(grace), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, stopScript)
			for _, ready := range []func() bool{
				func() bool { return exists(w.path("ws/started")) },
				func() bool { return w.asked("primary") == 2 && w.server.Requests()[1].Status == 200 },
			} {
				p := w.startRun("--allow-shell")
				eventually(t, "the run is where it is to be stopped", ready)
				p.signal(syscall.SIGTERM)
				select {
				case <-time.After(grace):
				case <-p.ended:
				}
				_ = p.cmd.Process.Kill() // it may have ended by itself
				<-p.ended
				eventually(t, "nothing of the workspace is left over", func() bool { return len(processesOf(t, w.path("ws"))) == 0 })
			}
			w.run("--allow-shell").must(CodeCompleted).answers("Back again.\n")
			if got := w.read("ws/effects"); got != "effect\n" {
				t.Errorf("the effect happened more or less than once: %q", got)
			}
			if got := w.belay("ledger", "verify", runLedger).must(CodeCompleted).stdout.String(); !strings.HasPrefix(got, "ok: ") {
				t.Errorf("verify says %s", got)
			}
		})
	}
}
