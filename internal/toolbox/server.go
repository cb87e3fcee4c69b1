package toolbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"belay.dev/belay/internal/runtime/tools"
)

// server answers the runner's requests.
type server struct {
	config     Config
	supervisor *Supervisor
	mcp        *mcp.Server
	tools      map[string]tool
	validator  tools.Validator

	mu     sync.Mutex
	epoch  int64                        // the highest seen
	epochs map[*mcp.ServerSession]int64 // of the connections that said hello
}

// tool is one tool of the toolbox.
type tool struct {
	tools.Tool
	// run executes a call. Its ctx ends at the call's time limit or when the
	// call is to be stopped.
	run func(ctx context.Context, call invocation) tools.Outcome
}

// invocation is what a tool is told about the call it executes.
type invocation struct {
	callID    string
	arguments json.RawMessage
	timeout   time.Duration // as the caller asked for; 0 if it did not
}

func newServer(config Config, supervisor *Supervisor, root *os.Root) (*server, error) {
	s := &server{
		config: config, supervisor: supervisor, epoch: config.Epoch,
		tools: make(map[string]tool), epochs: make(map[*mcp.ServerSession]int64),
	}
	s.mcp = mcp.NewServer(&mcp.Implementation{Name: "belay-toolbox", Version: "v1"}, &mcp.ServerOptions{
		Capabilities: &mcp.ServerCapabilities{}, // no logging
	})
	for _, t := range toolset(config, supervisor, root) {
		s.tools[t.Name] = t
		s.mcp.AddTool(&mcp.Tool{Name: t.Name, Description: t.Description, InputSchema: t.InputSchema}, s.callTool)
	}
	s.mcp.AddReceivingMiddleware(s.fence)
	err := errors.Join(
		mcp.AddReceivingCustomMethod(s.mcp, tools.MethodHello, s.hello),
		mcp.AddReceivingCustomMethod(s.mcp, tools.MethodInspect, s.inspect),
	)
	return s, err
}

// serve accepts connections until ctx is done, then ends all jobs and answers
// their callers before it closes the connections.
func (s *server) serve(ctx context.Context, l *listener) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	var connections sync.WaitGroup
	var acceptErr error
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			if ctx.Err() == nil {
				acceptErr = fmt.Errorf("accepting connections: %w", err)
			}
			break
		}
		if err := s.checkPeer(conn); err != nil {
			s.config.Logger.Warn("connection refused", "error", err)
			_ = conn.Close()
			continue
		}
		connections.Go(func() { s.serveConnection(context.WithoutCancel(ctx), conn) })
	}
	closeErr := l.Close()
	s.supervisor.drain()
	connections.Wait()
	return errors.Join(acceptErr, closeErr)
}

// lastWords is how long a peer may take to read its last answers.
const lastWords = time.Second

func (s *server) serveConnection(ctx context.Context, conn *net.UnixConn) {
	link := &transport{socket: conn}
	session, err := s.mcp.Connect(ctx, link, nil)
	if err != nil {
		s.config.Logger.Warn("connection failed", "error", err)
		_ = conn.Close()
		return
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := session.Wait(); err != nil {
			s.config.Logger.Debug("connection ended", "error", err)
		}
	}()
	select {
	case <-ended:
	case <-s.supervisor.drained:
		timer := s.config.Clock.NewTimer(lastWords)
		select {
		case <-link.calls.wait():
		case <-timer.C():
		}
		timer.Stop()
		_ = conn.Close()
		<-ended
	}
	s.mu.Lock()
	delete(s.epochs, session)
	s.mu.Unlock()
}

// checkPeer refuses other users, and the processes that the tools started:
// they share the toolbox's user and see its socket.
func (s *server) checkPeer(conn *net.UnixConn) error {
	pid, uid, err := peer(conn)
	if err != nil {
		return err
	}
	if s.config.ClientUID >= 0 && uid != s.config.ClientUID && uid != os.Getuid() {
		return fmt.Errorf("user %d may not connect", uid)
	}
	self := os.Getpid()
	ours := family(scanProcesses(), func(p process) bool { return p.ppid == self && p.pid != self })
	for _, p := range ours {
		if p.pid == pid {
			return fmt.Errorf("process %d was started by a tool and may not connect", pid)
		}
	}
	if pid != self && tagOf(pid, tagSpool) != "" {
		return fmt.Errorf("process %d was started by a tool and may not connect", pid)
	}
	return nil
}

func (s *server) hello(_ context.Context, session *mcp.ServerSession, params *tools.HelloParams) (*tools.HelloResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if params.Epoch < s.epoch {
		return nil, fenced(params.Epoch, s.epoch)
	}
	if params.Epoch > s.epoch {
		if err := s.supervisor.spool.raiseEpoch(params.Epoch); err != nil {
			return nil, fmt.Errorf("hello: %w", err)
		}
		s.epoch = params.Epoch
	}
	s.epochs[session] = params.Epoch
	return &tools.HelloResult{BootID: s.supervisor.bootID, Epoch: s.epoch}, nil
}

// fence lets only the newest epoch's connections do anything.
func (s *server) fence(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, request mcp.Request) (mcp.Result, error) {
		switch method {
		case "tools/call", "tools/list", tools.MethodInspect:
			session, ok := request.GetSession().(*mcp.ServerSession)
			if !ok {
				return nil, fmt.Errorf("%s: no session", method)
			}
			if _, err := s.epochOf(session); err != nil {
				return nil, err
			}
		}
		return next(ctx, method, request)
	}
}

func (s *server) epochOf(session *mcp.ServerSession) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	epoch, ok := s.epochs[session]
	if !ok {
		return 0, &jsonrpc.Error{Code: tools.CodeNoHello, Message: tools.MethodHello + " must come first"}
	}
	if epoch < s.epoch {
		return 0, fenced(epoch, s.epoch)
	}
	return epoch, nil
}

func fenced(epoch, newest int64) error {
	return &jsonrpc.Error{Code: tools.CodeFenced, Message: fmt.Sprintf("epoch %d is over, the workspace serves epoch %d", epoch, newest)}
}

func (s *server) inspect(_ context.Context, _ *mcp.ServerSession, params *tools.InspectParams) (*tools.InspectResult, error) {
	if !tools.ValidCallID(params.CallID) {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("call id %q does not have nine letters or digits", params.CallID)}
	}
	state, err := s.supervisor.inspect(params.CallID)
	if err != nil {
		return nil, err
	}
	return &tools.InspectResult{JobState: state}, nil
}

func (s *server) callTool(ctx context.Context, request *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	epoch, err := s.epochOf(request.Session)
	if err != nil {
		return nil, err
	}
	return encodeOutcome(s.call(ctx, epoch, request.Params)), nil
}

func (s *server) call(ctx context.Context, epoch int64, params *mcp.CallToolParamsRaw) tools.Outcome {
	called, ok := s.tools[params.Name]
	if !ok {
		return tools.Refusal(tools.KindUnknownTool, fmt.Sprintf("There is no tool %q.", params.Name))
	}
	callID, _ := params.Meta[tools.MetaCallID].(string)
	attempt, _ := params.Meta[tools.MetaAttempt].(float64)
	milliseconds, _ := params.Meta[tools.MetaTimeout].(float64)
	if !tools.ValidCallID(callID) || attempt < 1 {
		return tools.Refusal(tools.KindInvalidArguments, fmt.Sprintf("call id %q, attempt %v: an id has nine letters or digits and attempts count from 1", callID, attempt))
	}
	if err := s.validator.Validate(called.Tool, params.Arguments); err != nil {
		return tools.Refusal(tools.KindInvalidArguments, fmt.Sprintf("The arguments of %s do not fit its schema: %v", called.Name, err))
	}
	digest, err := tools.ArgumentsDigest(params.Arguments)
	if err != nil {
		return tools.Refusal(tools.KindInvalidArguments, err.Error())
	}
	invoked := invocation{callID: callID, arguments: params.Arguments, timeout: time.Duration(milliseconds) * time.Millisecond}
	if called.Effect != tools.Supervised {
		started := s.config.Clock.Now()
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(s.supervisor.ctx, func() { cancel(errStopping) })()
		outcome := s.run(ctx, called, invoked)
		outcome.StartedAt, outcome.Duration = started.UTC(), s.config.Clock.Since(started)
		return outcome
	}
	wanted := request{callID: callID, attempt: int(attempt), tool: called.Name, argsSHA256: digest, epoch: epoch}
	return s.supervisor.do(ctx, wanted, func(ctx context.Context, _ startRecord) tools.Outcome {
		return s.run(ctx, called, invoked)
	})
}

// run executes a call. The shell keeps its own time, because ending a process
// tree takes some.
func (s *server) run(ctx context.Context, called tool, invoked invocation) tools.Outcome {
	if called.Name == shellName {
		return called.run(ctx, invoked)
	}
	limit := called.Timeout
	if invoked.timeout > 0 {
		limit = invoked.timeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errTimeLimit)
	defer cancel()
	return called.run(ctx, invoked)
}

// encodeOutcome puts text and media where every MCP client looks for them, and
// the rest beside.
func encodeOutcome(outcome tools.Outcome) *mcp.CallToolResult {
	result := &mcp.CallToolResult{
		Content: []mcp.Content{&mcp.TextContent{Text: outcome.Text}},
		IsError: outcome.Failed(),
	}
	for _, media := range outcome.Media {
		result.Content = append(result.Content, &mcp.ImageContent{MIMEType: media.MIMEType, Data: media.Data})
	}
	outcome.Text, outcome.Media = "", nil
	result.Meta = mcp.Meta{tools.MetaOutcome: outcome}
	return result
}
