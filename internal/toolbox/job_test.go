package toolbox_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"belay.dev/belay/internal/runtime/tools"
)

// begin dispatches a call in the background and waits until its command has
// made a file, so that it certainly runs.
func (w *workspace) begin(client *tools.Client, call tools.Call, sign string) <-chan tools.Outcome {
	w.t.Helper()
	answer := make(chan tools.Outcome, 1)
	go func() { answer <- client.Call(context.Background(), call) }()
	eventually(w.t, "the command runs", func() bool { return w.lines(sign) > 0 })
	return answer
}

func (w *workspace) inspect(client *tools.Client, callID string) tools.JobState {
	w.t.Helper()
	state, err := client.Inspect(w.t.Context(), callID)
	if err != nil {
		w.t.Fatal(err)
	}
	return state
}

func TestACrashOfTheToolboxAnswersCallsInFlightAndLeavesThemInDoubt(t *testing.T) {
	w := newWorkspace(t)
	w.start()
	client := w.dial()
	boot := client.BootID()
	call := shell("echo progress; (setsid sleep 1000 & echo $! >> pids); sleep 1000 & echo $! >> pids; echo $$ >> pids; echo x >> sign; wait")
	answer := w.begin(client, call, "sign")

	w.kill()
	select {
	case got := <-answer:
		if got.ErrorKind != tools.KindProcessCrashed || got.Status != tools.InDoubt {
			t.Errorf("answer: %+v", got)
		}
		if strings.Contains(got.Text, "failed") || strings.Contains(got.Text, "retry") || !strings.Contains(got.Text, "not observed") {
			t.Errorf("an outcome in doubt must be told as a fact, got %q", got.Text)
		}
	case <-time.After(time.Second):
		t.Fatal("no answer within a second of the crash")
	}

	pids := pidsIn(t, w.path("pids"))
	if len(pids) != 3 {
		t.Fatalf("the command wrote %d process ids, want 3", len(pids))
	}
	eventually(t, "the command has died with the toolbox", func() bool { return !alive(pids[2]) })
	w.start()
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d has outlived the restart", pid)
		}
	}
	state := w.inspect(client, call.ID) // the same client connects again
	if state.State != tools.JobDead || !state.SpoolIntact || state.BootID != boot || state.OutputTail != "progress\n" {
		t.Errorf("got %+v", state)
	}
	if client.BootID() == boot || client.BootID() == "" {
		t.Errorf("boot id after the restart: %q, before: %q", client.BootID(), boot)
	}
	if got := client.Call(t.Context(), call); got.Status != tools.InDoubt || got.ErrorKind != tools.KindInDoubt {
		t.Errorf("a second start of a dead call: %+v", got)
	}
	if n := w.lines("sign"); n != 1 {
		t.Errorf("the command ran %d times", n)
	}
}

func TestAKnownCallIsNeverRunAgain(t *testing.T) {
	w := newWorkspace(t)
	w.start()
	client := w.dial()
	call := shell("echo ran >> effects; echo answer; exit 7")
	first := client.Call(t.Context(), call)
	second := client.Call(t.Context(), call)
	w.kill()
	w.start()
	third := client.Call(t.Context(), call)
	for _, got := range []tools.Outcome{first, second, third} {
		if got.Text != "answer\n[exit code 7]" || got.ExitCode == nil || *got.ExitCode != 7 || !got.StartedAt.Equal(first.StartedAt) {
			t.Errorf("got %+v, first was %+v", got, first)
		}
	}
	if n := w.lines("effects"); n != 1 {
		t.Errorf("the command ran %d times", n)
	}
	state := w.inspect(client, call.ID)
	if state.State != tools.JobFinished || state.Outcome == nil || state.Outcome.Text != first.Text {
		t.Errorf("got %+v", state)
	}
}

func TestACallIDIsRefusedForOtherArguments(t *testing.T) {
	w := newWorkspace(t)
	w.start()
	client := w.dial()
	call := shell("echo one >> effects")
	client.Call(t.Context(), call)
	other := shell("echo two >> effects")
	other.ID = call.ID
	if got := client.Call(t.Context(), other); got.Status != tools.NotRun || got.ErrorKind != tools.KindDenied {
		t.Errorf("got %+v", got)
	}
	if n := w.lines("effects"); n != 1 {
		t.Errorf("%d commands ran", n)
	}
}

func TestAJobOutlivesItsConnectionAndALaterRunnerAttachesToIt(t *testing.T) {
	w := newWorkspace(t)
	w.start()
	call := shell("echo x >> sign; until [ -e go ]; do sleep 0.01; done; echo done")
	first := w.dial()
	answer := w.begin(first, call, "sign")
	_ = first.Close()
	if got := <-answer; got.Status != tools.InDoubt || got.ErrorKind != tools.KindProcessCrashed {
		t.Errorf("the call of the lost connection: %+v", got)
	}

	second := w.dial()
	if state := w.inspect(second, call.ID); state.State != tools.JobRunning {
		t.Fatalf("got %+v", state)
	}
	attached := make(chan tools.Outcome, 1)
	go func() { attached <- second.Call(context.Background(), call) }()
	if err := os.WriteFile(w.path("go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := <-attached; got.Status != tools.OK || got.Text != "done\n[exit code 0]" {
		t.Errorf("got %+v", got)
	}
	if n := w.lines("sign"); n != 1 {
		t.Errorf("the command ran %d times", n)
	}
}

func TestACancelledCallEndsItsProcesses(t *testing.T) {
	w := newWorkspace(t)
	w.start()
	client := w.dial()
	call := shell("sleep 1000 & echo $! >> pids; echo $$ >> pids; echo x >> sign; wait")
	ctx, cancel := context.WithCancel(t.Context())
	answer := make(chan tools.Outcome, 1)
	go func() { answer <- client.Call(ctx, call) }()
	eventually(t, "the command runs", func() bool { return w.lines("sign") > 0 })
	cancel()
	if got := <-answer; got.Status != tools.Cancelled || got.ErrorKind != tools.KindCancelled {
		t.Errorf("got %+v", got)
	}
	for _, pid := range pidsIn(t, w.path("pids")) {
		eventually(t, "the processes are gone", func() bool { return !alive(pid) })
	}
	eventually(t, "the outcome is stored", func() bool { return w.inspect(client, call.ID).State == tools.JobFinished })
	if got := w.inspect(client, call.ID).Outcome; got.Status != tools.Cancelled {
		t.Errorf("stored: %+v", got)
	}
}

func TestSIGTERMEndsJobsStoresTheirOutcomesAndExitsZero(t *testing.T) {
	w := newWorkspace(t)
	w.start()
	client := w.dial()
	call := shell("trap '' TERM; echo half; echo $$ >> pids; echo x >> sign; while :; do sleep 1; done")
	answer := w.begin(client, call, "sign")
	if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	got := <-answer
	if got.Status != tools.Cancelled || !strings.HasPrefix(got.Text, "half\n") {
		t.Errorf("got %+v", got)
	}
	if code := <-w.exit; code != 0 {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Stat(w.config.Socket); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
	for _, pid := range pidsIn(t, w.path("pids")) {
		if alive(pid) {
			t.Errorf("process %d has outlived the toolbox", pid)
		}
	}
	w.start()
	if state := w.inspect(client, call.ID); state.State != tools.JobFinished || state.Outcome.Status != tools.Cancelled {
		t.Errorf("got %+v", state)
	}
}

func TestTheSpoolTellsAtEveryCrashPointWhetherACallBegan(t *testing.T) {
	const started = `{"v":1,"call":"Crash0001","attempt":1,"tool":"shell","argsSHA256":"","bootID":"earlier","epoch":1,"startedAt":"2026-03-01T12:00:00Z"}`
	outcome, err := json.Marshal(tools.Outcome{Status: tools.OK, Text: "stored"})
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		files map[string]string
		want  tools.JobStatus
		runs  bool
	}{
		"nothing":                         {nil, tools.JobUnknown, true},
		"directory only":                  {map[string]string{}, tools.JobUnknown, true},
		"start not yet renamed":           {map[string]string{".start.json.new": started[:40]}, tools.JobUnknown, true},
		"start without outcome":           {map[string]string{"start.json": started}, tools.JobDead, false},
		"start damaged":                   {map[string]string{"start.json": started[:40]}, tools.JobDead, false},
		"start and output, no outcome":    {map[string]string{"start.json": started, "output": "so far"}, tools.JobDead, false},
		"outcome not yet renamed":         {map[string]string{"start.json": started, ".outcome.json.new": string(outcome)}, tools.JobDead, false},
		"outcome damaged":                 {map[string]string{"start.json": started, "outcome.json": string(outcome[:9])}, tools.JobDead, false},
		"start and outcome":               {map[string]string{"start.json": started, "outcome.json": string(outcome)}, tools.JobFinished, false},
		"outcome stored, start destroyed": {map[string]string{"start.json": "", "outcome.json": string(outcome)}, tools.JobFinished, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorkspace(t)
			w.start() // an earlier boot makes the spool
			w.kill()
			dir := w.path(".belay/spool/Crash0001")
			if test.files != nil {
				if err := os.Mkdir(dir, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for file, content := range test.files {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			w.start()
			client := w.dial()
			state := w.inspect(client, "Crash0001")
			if state.State != test.want || !state.SpoolIntact {
				t.Errorf("got %+v, want %s in an intact spool", state, test.want)
			}
			if test.want == tools.JobFinished && state.Outcome.Text != "stored" {
				t.Errorf("got outcome %+v", state.Outcome)
			}
			call := shell("echo ran >> effects")
			call.ID = "Crash0001"
			client.Call(t.Context(), call)
			if ran := w.lines("effects") == 1; ran != test.runs {
				t.Errorf("the call ran: %v, want %v", ran, test.runs)
			}
		})
	}
}

func TestALostSpoolProvesNothing(t *testing.T) {
	remove := func(w *workspace, name string) {
		if err := os.RemoveAll(w.path(name)); err != nil {
			w.t.Fatal(err)
		}
	}
	tests := map[string]func(w *workspace){
		"removed while the toolbox runs":        func(w *workspace) { w.start(); remove(w, ".belay") },
		"removed between two boots of an epoch": func(w *workspace) { w.start(); w.kill(); remove(w, ".belay"); w.start() },
		"marker removed between two boots":      func(w *workspace) { w.start(); w.kill(); remove(w, ".belay/spool/spool.json"); w.start() },
		"missing in the second epoch":           func(w *workspace) { w.config.Epoch = 2; w.start() },
		"removed long ago": func(w *workspace) {
			w.start()
			w.kill()
			remove(w, ".belay/spool")
			w.start()
			w.kill()
			w.start()
		},
	}
	for name, prepare := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorkspace(t)
			prepare(w)
			if state := w.inspect(w.dial(), "Never0001"); state.State != tools.JobUnknown || state.SpoolIntact {
				t.Errorf("got %+v, want Unknown in a spool that is not intact", state)
			}
		})
	}
}

func TestARemovedCallOfThisBootIsNotTakenForNew(t *testing.T) {
	w := newWorkspace(t)
	w.start()
	client := w.dial()
	call := shell("echo ran >> effects")
	client.Call(t.Context(), call)
	if err := os.RemoveAll(w.path(".belay/spool/" + call.ID)); err != nil {
		t.Fatal(err)
	}
	if state := w.inspect(client, call.ID); state.State != tools.JobUnknown || state.SpoolIntact {
		t.Errorf("got %+v", state)
	}
	if got := client.Call(t.Context(), call); got.Status != tools.InDoubt {
		t.Errorf("got %+v", got)
	}
	if n := w.lines("effects"); n != 1 {
		t.Errorf("the command ran %d times", n)
	}
}

func TestACallWhoseStartCannotBeRecordedIsNotRun(t *testing.T) {
	w := newWorkspace(t)
	w.start()
	client := w.dial()
	call := shell("echo ran >> effects")
	if err := os.WriteFile(w.path(".belay/spool/"+call.ID), nil, 0o600); err != nil { // in the place of the call's directory
		t.Fatal(err)
	}
	if got := client.Call(t.Context(), call); got.Status != tools.NotRun || !strings.Contains(got.Text, "not executed") {
		t.Errorf("got %+v", got)
	}
	if w.lines("effects") != 0 {
		t.Error("the command ran")
	}
}
