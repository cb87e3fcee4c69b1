package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
)

// fakeToolbox is an MCP server whose answers a test decides.
type fakeToolbox struct {
	socket string
	boot   atomic.Value // string
	calls  chan *mcp.CallToolParamsRaw
	pings  chan struct{}
	frozen atomic.Bool // pings are not answered
	answer func(ctx context.Context, params *mcp.CallToolParamsRaw) (*mcp.CallToolResult, error)
}

func newFakeToolbox(t *testing.T) *fakeToolbox {
	t.Helper()
	dir, err := os.MkdirTemp("", "tb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	f := &fakeToolbox{
		socket: filepath.Join(dir, "s"), calls: make(chan *mcp.CallToolParamsRaw, 10), pings: make(chan struct{}, 10),
		answer: func(context.Context, *mcp.CallToolParamsRaw) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "answer"}}}, nil
		},
	}
	f.boot.Store("boot-1")
	server := mcp.NewServer(&mcp.Implementation{Name: "fake", Version: "v1"}, nil)
	for _, name := range []string{"read", "shell", "stranger"} {
		server.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`), Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}},
			func(ctx context.Context, request *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				f.calls <- request.Params
				return f.answer(ctx, request.Params)
			})
	}
	stopped := make(chan struct{})
	server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, request mcp.Request) (mcp.Result, error) {
			if method == "ping" {
				f.pings <- struct{}{}
				if f.frozen.Load() {
					<-stopped
				}
			}
			return next(ctx, method, request)
		}
	})
	if err := mcp.AddReceivingCustomMethod(server, MethodHello, func(_ context.Context, _ *mcp.ServerSession, params *HelloParams) (*HelloResult, error) {
		boot, _ := f.boot.Load().(string)
		return &HelloResult{BootID: boot, Epoch: params.Epoch}, nil
	}); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", f.socket)
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan struct{})
	var conns []net.Conn
	var sessions []*mcp.ServerSession
	go func() {
		defer close(accepted)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns = append(conns, conn)
			if session, err := server.Connect(context.Background(), &mcp.IOTransport{Reader: conn, Writer: conn}, nil); err == nil {
				sessions = append(sessions, session)
			}
		}
	}()
	t.Cleanup(func() {
		close(stopped)
		_ = l.Close()
		<-accepted
		for i, conn := range conns {
			_ = conn.Close()
			if i < len(sessions) {
				_ = sessions[i].Wait()
			}
		}
	})
	return f
}

func (f *fakeToolbox) dial(t *testing.T, clk clock.WithTicker) *Client {
	t.Helper()
	client, err := dial(t.Context(), f.socket, 1, clk)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func shellCall() Call { return Call{ID: "Call00001", Attempt: 1, Tool: "shell"} }

func within(t *testing.T, limit time.Duration, answer <-chan Outcome) Outcome {
	t.Helper()
	select {
	case got := <-answer:
		return got
	case <-time.After(limit):
		t.Fatalf("no answer within %v", limit)
		return Outcome{}
	}
}

// hang makes the toolbox not answer calls until it is stopped.
func (f *fakeToolbox) hang(ctx context.Context, _ *mcp.CallToolParamsRaw) (*mcp.CallToolResult, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestACallCarriesItsIDAttemptAndLimit(t *testing.T) {
	f := newFakeToolbox(t)
	client := f.dial(t, clock.RealClock{})
	call := shellCall()
	call.Attempt, call.Timeout = 2, 90*time.Second
	if got := client.Call(t.Context(), call); got.Status != OK || got.Text != "answer" {
		t.Errorf("got %+v", got)
	}
	sent := <-f.calls
	if sent.Meta[MetaCallID] != "Call00001" || sent.Meta[MetaAttempt] != 2.0 || sent.Meta[MetaTimeout] != 90000.0 || string(sent.Arguments) != "{}" {
		t.Errorf("sent %+v %s", sent.Meta, sent.Arguments)
	}
}

func TestAServersHintsDoNotMakeItsToolReadOnly(t *testing.T) {
	f := newFakeToolbox(t)
	list, err := f.dial(t, clock.RealClock{}).Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]Effect{}
	for _, tool := range list {
		got[tool.Name] = tool.Effect
	}
	if got["read"] != ReadOnly || got["shell"] != Supervised || got["stranger"] != Opaque {
		t.Errorf("got %v", got)
	}
}

func TestAFrozenToolboxIsGivenUpAfterAnUnansweredPing(t *testing.T) {
	f := newFakeToolbox(t)
	f.answer = f.hang
	clk := testingclock.NewFakeClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	client := f.dial(t, clk)
	f.frozen.Store(true)
	answer := make(chan Outcome, 2)
	go func() { answer <- client.Call(context.Background(), shellCall()) }()
	go func() {
		answer <- client.Call(context.Background(), Call{ID: "Call00002", Attempt: 1, Tool: "read"})
	}()
	<-f.calls
	<-f.calls
	for !clk.HasWaiters() {
		<-time.After(time.Millisecond)
	}
	clk.Step(keepAliveInterval)
	<-f.pings
	select {
	case got := <-answer:
		t.Fatalf("given up before the ping's time was over: %+v", got)
	default:
	}
	clk.Step(keepAliveTimeout)
	for range 2 {
		got := within(t, time.Second, answer)
		want := InDoubt
		if strings.Contains(got.Text, "changes nothing") { // the read
			want = Error
		}
		if got.ErrorKind != KindProcessCrashed || got.Status != want {
			t.Errorf("got %+v", got)
		}
	}
}

func TestALivingToolboxIsKept(t *testing.T) {
	f := newFakeToolbox(t)
	clk := testingclock.NewFakeClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	client := f.dial(t, clk)
	before := client.conn
	for range 5 {
		for !clk.HasWaiters() {
			<-time.After(time.Millisecond)
		}
		clk.Step(keepAliveInterval)
		<-f.pings // of this step: the one before is answered
	}
	if got := client.Call(t.Context(), shellCall()); got.Status != OK || client.conn != before {
		t.Errorf("got %+v on the same connection: %v", got, client.conn == before)
	}
}

func TestACancelledCallReturnsAtOnceAndItsLateAnswerIsDropped(t *testing.T) {
	f := newFakeToolbox(t)
	release := make(chan struct{})
	f.answer = func(_ context.Context, params *mcp.CallToolParamsRaw) (*mcp.CallToolResult, error) {
		if params.Meta[MetaCallID] == "Call00001" {
			<-release
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(params.Meta[MetaCallID])}}}, nil
	}
	client := f.dial(t, clock.RealClock{})
	ctx, cancel := context.WithCancel(t.Context())
	answer := make(chan Outcome, 1)
	go func() { answer <- client.Call(ctx, shellCall()) }()
	<-f.calls
	cancel()
	if got := within(t, time.Second, answer); got.Status != Cancelled || got.ErrorKind != KindCancelled || got.StartedAt.IsZero() {
		t.Errorf("got %+v", got)
	}
	close(release)
	next := shellCall()
	next.ID = "Call00002"
	if got := client.Call(t.Context(), next); got.Text != "Call00002" {
		t.Errorf("the next call got %+v", got)
	}
}

func TestAnOutcomeIsReadFromTheAnswer(t *testing.T) {
	three := 3
	tests := map[string]struct {
		answer *mcp.CallToolResult
		want   Outcome
	}{
		"of any server": {&mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "a"}, &mcp.TextContent{Text: "b"}}}, Outcome{Status: OK, Text: "a\nb"}},
		"an error of any server": {&mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: "no"}}},
			Outcome{Status: Error, ErrorKind: KindExecutionFailed, Text: "no"}},
		"of the toolbox": {&mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: "text"}},
			Meta: mcp.Meta{MetaOutcome: map[string]any{"status": "Error", "errorKind": "ExecutionFailed", "text": "", "exitCode": 3.0}}},
			Outcome{Status: Error, ErrorKind: KindExecutionFailed, Text: "text", ExitCode: &three}},
		"a damaged description": {&mcp.CallToolResult{IsError: true, Meta: mcp.Meta{MetaOutcome: "nonsense"}}, Outcome{Status: Error, ErrorKind: KindExecutionFailed}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := decodeOutcome(test.answer)
			if got.Status != test.want.Status || got.ErrorKind != test.want.ErrorKind || got.Text != test.want.Text ||
				(got.ExitCode == nil) != (test.want.ExitCode == nil) || got.ExitCode != nil && *got.ExitCode != *test.want.ExitCode {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
	media := decodeOutcome(&mcp.CallToolResult{Content: []mcp.Content{&mcp.ImageContent{MIMEType: "image/png", Data: []byte{1, 2}}}})
	if len(media.Media) != 1 || media.Media[0].MIMEType != "image/png" || len(media.Media[0].Data) != 2 {
		t.Errorf("media: %+v", media)
	}
	long := decodeOutcome(&mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: strings.Repeat("x", 100_000)}}})
	if len(long.Text) > MaxTextBytes || long.Truncated == nil || long.Truncated.TotalBytes != 100_000 {
		t.Errorf("a long text: %d bytes, %+v", len(long.Text), long.Truncated)
	}
}

func TestAClosedClientLeavesNothingRunningAndStaysClosed(t *testing.T) {
	f := newFakeToolbox(t)
	ignore := goleak.IgnoreCurrent()
	client := f.dial(t, clock.RealClock{})
	if got := client.Call(t.Context(), shellCall()); got.Status != OK {
		t.Fatalf("got %+v", got)
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	if got := client.Call(t.Context(), shellCall()); got.Status != NotRun || got.ErrorKind != KindProcessCrashed {
		t.Errorf("a call after Close: %+v", got)
	}
	if err := client.Connect(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Connect after Close: %v", err)
	}
	goleak.VerifyNone(t, ignore)
}

func TestAPathWithoutAToolboxIsAClearError(t *testing.T) {
	_, err := Dial(t.Context(), filepath.Join(t.TempDir(), "none"), 1)
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "toolbox at ") {
		t.Errorf("got %v", err)
	}
}
