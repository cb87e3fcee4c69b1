package toolbox_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"belay.dev/belay/internal/runtime/tools"
	"belay.dev/belay/internal/toolbox"
)

func TestTheToolsetHasNamesSchemasAndEffects(t *testing.T) {
	w := newWorkspace(t)
	w.start()
	list, err := w.dial().Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]tools.Effect{
		"read": tools.ReadOnly, "grep": tools.ReadOnly, "glob": tools.ReadOnly,
		"write": tools.Supervised, "edit": tools.Supervised, "shell": tools.Supervised,
	}
	for _, tool := range list {
		if tool.Effect != want[tool.Name] || tool.Provider != "workspace" || tool.Timeout <= 0 || len(tool.Digest) != 64 || tool.Description == "" {
			t.Errorf("got %+v", tool)
		}
		delete(want, tool.Name)
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
}

func TestShellIsOfferedOnlyWhenAllowed(t *testing.T) {
	w := newWorkspace(t)
	w.config.AllowShell = false
	w.start()
	got := w.dial().Call(t.Context(), shell("echo ran >> effects"))
	if got.Status != tools.NotRun || got.ErrorKind != tools.KindUnknownTool || !strings.Contains(got.Text, "edit, glob, grep, read, write") {
		t.Errorf("got %+v", got)
	}
	if w.lines("effects") != 0 {
		t.Error("the command ran")
	}
}

func TestACallThatCannotBeMeantIsNotRun(t *testing.T) {
	w := newWorkspace(t)
	w.start()
	client := w.dial()
	write := func(change func(*tools.Call)) tools.Call {
		call := newCall("write", map[string]any{"path": "f", "content": "x"})
		change(&call)
		return call
	}
	tests := map[string]struct {
		call tools.Call
		kind tools.ErrorKind
		text string
	}{
		"unknown tool":     {write(func(c *tools.Call) { c.Tool = "wirte" }), tools.KindUnknownTool, `"wirte"`},
		"missing argument": {write(func(c *tools.Call) { c.Arguments = []byte(`{"path":"f"}`) }), tools.KindInvalidArguments, `"content"`},
		"wrong type":       {write(func(c *tools.Call) { c.Arguments = []byte(`{"path":"f","content":5}`) }), tools.KindInvalidArguments, `want "string"`},
		"unknown argument": {write(func(c *tools.Call) { c.Arguments = []byte(`{"path":"f","content":"","mode":1}`) }), tools.KindInvalidArguments, `mode`},
		"no object":        {write(func(c *tools.Call) { c.Arguments = []byte(`["f"]`) }), tools.KindInvalidArguments, "an array"},
		"no JSON":          {write(func(c *tools.Call) { c.Arguments = []byte(`{"path":`) }), tools.KindInvalidArguments, "not valid JSON"},
		"too large": {write(func(c *tools.Call) {
			c.Arguments = fmt.Appendf(nil, `{"path":"f","content":"%s"}`, strings.Repeat("x", tools.MaxFrameBytes))
		}), tools.KindInvalidArguments, "smaller calls"},
		"too large once escaped": {write(func(c *tools.Call) {
			c.Arguments = fmt.Appendf(nil, `{"path":"f","content":"%s"}`, strings.Repeat("<", tools.MaxFrameBytes/4))
		}), tools.KindInvalidArguments, "smaller calls"},
		"short id":   {write(func(c *tools.Call) { c.ID = "short" }), tools.KindInvalidArguments, "nine letters or digits"},
		"id of path": {write(func(c *tools.Call) { c.ID = "../../abc" }), tools.KindInvalidArguments, "nine letters or digits"},
		"attempt 0":  {write(func(c *tools.Call) { c.Attempt = 0 }), tools.KindInvalidArguments, "count from 1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := client.Call(t.Context(), test.call)
			if got.Status != tools.NotRun || got.ErrorKind != test.kind || !strings.Contains(got.Text, test.text) {
				t.Errorf("got %.300q %s %s", got.Text, got.Status, got.ErrorKind)
			}
			if _, err := os.Stat(w.path("f")); !os.IsNotExist(err) {
				t.Errorf("the file was written: %v", err)
			}
		})
	}
	if got := client.Call(t.Context(), write(func(*tools.Call) {})); got.Status != tools.OK {
		t.Errorf("the connection does not work any more: %+v", got)
	}
}

func TestRunnersOfOlderEpochsAreFenced(t *testing.T) {
	w := newWorkspace(t)
	w.config.Epoch = 2
	w.start()
	if _, err := tools.Dial(t.Context(), w.config.Socket, 1); !errors.Is(err, tools.ErrFenced) {
		t.Errorf("hello of epoch 1: %v", err)
	}
	old := w.dial()
	newer, err := tools.Dial(t.Context(), w.config.Socket, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer newer.Close()
	got := old.Call(t.Context(), shell("echo zombie >> effects"))
	if got.Status != tools.NotRun || got.ErrorKind != tools.KindRevoked {
		t.Errorf("call of epoch 2 after the hello of 3: %+v", got)
	}
	if _, err := old.Inspect(t.Context(), "Any000001"); !errors.Is(err, tools.ErrFenced) {
		t.Errorf("inspect of epoch 2 after the hello of 3: %v", err)
	}
	if w.lines("effects") != 0 {
		t.Error("the zombie's command ran")
	}
	if got := newer.Call(t.Context(), shell("true")); got.Status != tools.OK {
		t.Errorf("call of epoch 3: %+v", got)
	}

	w.kill()
	if out, err := w.tryStart(); err == nil || !strings.Contains(out, "later epoch") {
		t.Errorf("toolbox of epoch 2 in a workspace that epoch 3 has used: %v, %s", err, out)
	}
	w.config.Run = "another-run"
	w.start()
}

func TestARequestBeforeHelloIsRefused(t *testing.T) {
	w := newWorkspace(t)
	w.start()
	conn, err := net.Dial("unix", w.config.Socket)
	if err != nil {
		t.Fatal(err)
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "stranger", Version: "v1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.IOTransport{Reader: conn, Writer: conn}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	_, err = session.CallTool(t.Context(), &mcp.CallToolParams{
		Meta: mcp.Meta{tools.MetaCallID: "Stranger1", tools.MetaAttempt: 1}, Name: "shell", Arguments: map[string]any{"command": "echo ran >> effects"},
	})
	var refused *jsonrpc.Error
	if !errors.As(err, &refused) || refused.Code != tools.CodeNoHello {
		t.Errorf("got %v", err)
	}
	if w.lines("effects") != 0 {
		t.Error("the command ran")
	}
}

func TestAFrameBeyondTheLimitEndsItsConnectionOnly(t *testing.T) {
	w := newWorkspace(t)
	w.start()
	conn, err := net.Dial("unix", w.config.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	frame := []byte(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"x":"` + strings.Repeat("x", tools.MaxFrameBytes) + `"}}` + "\n")
	_, _ = conn.Write(frame) // the toolbox may close before it has read all of it
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("the toolbox answered %d bytes", n)
	}
	if got := w.dial().Call(t.Context(), shell("true")); got.Status != tools.OK {
		t.Errorf("got %+v", got)
	}
}

func TestCommandsCannotConnectToTheToolbox(t *testing.T) {
	w := newWorkspace(t)
	w.start()
	client := w.dial()
	self, err := filepath.Abs(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	dial := fmt.Sprintf("%s=%s %s", dialEnv, w.config.Socket, self)
	for name, command := range map[string]string{
		"child":  dial,
		"orphan": "(env -i " + dial + " > answer &); until [ -s answer ]; do sleep 0.01; done; cat answer",
	} {
		got := client.Call(t.Context(), shell(command))
		if !strings.HasPrefix(got.Text, "dial: ") || strings.HasPrefix(got.Text, "dial: <nil>") {
			t.Errorf("%s: got %q", name, got.Text)
		}
	}
	if got := client.Call(t.Context(), shell("true")); got.Status != tools.OK {
		t.Errorf("the runner was fenced by a command: %+v", got)
	}
}

func TestTheSocketIsReadyWhenItIsVisibleAndOpenToTheGroup(t *testing.T) {
	w := newWorkspace(t)
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: w.config.Socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()
	w.start()
	eventually(t, "the stale socket is replaced", func() bool {
		info, err := os.Stat(w.config.Socket)
		return err == nil && info.Mode() == os.ModeSocket|0o660
	})
	w.dial()
}

func TestSocketsThatCannotBeServedAreRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, socket := range map[string]string{
		"abstract":       "@belay",
		"none":           "",
		"a regular file": file,
		"too long":       "/tmp/" + strings.Repeat("x", 120),
	} {
		err := toolbox.CheckListen(socket)
		if err == nil || !strings.Contains(err.Error(), "socket") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if raw, err := os.ReadFile(file); err != nil || string(raw) != "precious" {
		t.Errorf("the file is now %q, %v", raw, err)
	}
}

func TestTwoToolboxesCannotShareAWorkspace(t *testing.T) {
	w := newWorkspace(t)
	w.start()
	second := *w
	second.config.Socket += "2"
	if out, err := second.tryStart(); err == nil || !strings.Contains(out, "another toolbox works in this workspace") {
		t.Errorf("got %v, %s", err, out)
	}
}

func TestAnUnreachableToolboxIsToldAsNotRun(t *testing.T) {
	w := newWorkspace(t)
	w.start()
	client := w.dial()
	w.kill()
	_ = os.Remove(w.config.Socket)
	got := client.Call(t.Context(), shell("true"))
	if got.Status != tools.NotRun || got.ErrorKind != tools.KindProcessCrashed {
		t.Errorf("got %+v", got)
	}
}
