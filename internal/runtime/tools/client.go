package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"k8s.io/utils/clock"
)

// Limits of a connection to the toolbox.
const (
	// helloTimeout bounds connecting and the first exchange.
	helloTimeout = 10 * time.Second
	// keepAliveInterval is the time between two pings, keepAliveTimeout how long
	// an answer may take. A toolbox that is starved of CPU is not dead: the
	// window is wide, because an ended process is seen at once by its closed
	// socket.
	keepAliveInterval = 10 * time.Second
	keepAliveTimeout  = 30 * time.Second
	// answerGrace is how much longer than the call's own limit the client waits:
	// the toolbox needs it to end the processes and to store the outcome.
	answerGrace = 30 * time.Second
)

// ErrFenced means that the supervisor has seen a higher epoch: another runner
// has taken over, and this one must stop.
var ErrFenced = errors.New("fenced by a runner of a higher epoch")

// errTransport marks the end of a connection.
var errTransport = errors.New("connection to the toolbox was lost")

// Client speaks to the toolbox of one workspace. It is safe for concurrent
// use. When its connection breaks, every call in flight is answered at once,
// and the next use connects again, perhaps to a newer boot of the toolbox.
type Client struct {
	socket string
	epoch  int64
	clock  clock.WithTicker

	validator Validator

	mu     sync.Mutex
	conn   *connection // nil or broken: connect again
	boot   string
	closed bool
	tools  map[string]Tool
}

// Dial connects to the toolbox at the unix socket and says hello with the
// runner's epoch. It returns an error that wraps ErrFenced when the supervisor
// has seen a higher one. The caller closes the client.
func Dial(ctx context.Context, socket string, epoch int64) (*Client, error) {
	return dial(ctx, socket, epoch, clock.RealClock{})
}

func dial(ctx context.Context, socket string, epoch int64, clk clock.WithTicker) (*Client, error) {
	c := &Client{socket: socket, epoch: epoch, clock: clk}
	if _, err := c.connect(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// BootID identifies the start of the supervisor that the client last said
// hello to. Call Connect first to be sure that it is the present one.
func (c *Client) BootID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.boot
}

// Connect makes sure that the client has a live connection, and makes a new
// one if it has not.
func (c *Client) Connect(ctx context.Context) error {
	_, err := c.connect(ctx)
	return err
}

// Close ends the connection. Calls in flight are answered ProcessCrashed. The
// toolbox goes on with the jobs it has.
func (c *Client) Close() error {
	c.mu.Lock()
	conn := c.conn
	c.conn, c.closed = nil, true
	c.mu.Unlock()
	if conn != nil {
		conn.close()
	}
	return nil
}

func (c *Client) connect(ctx context.Context) (*connection, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, fmt.Errorf("toolbox at %s: client is closed: %w", c.socket, net.ErrClosed)
	}
	if c.conn != nil && !c.conn.broken() {
		return c.conn, nil
	}
	if c.conn != nil {
		c.conn.close()
		c.conn = nil
	}
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	conn, hello, err := open(ctx, c.socket, c.epoch, c.clock)
	if err != nil {
		return nil, fmt.Errorf("toolbox at %s: %w", c.socket, err)
	}
	c.conn, c.boot, c.tools = conn, hello.BootID, nil
	return conn, nil
}

// Tools lists the toolbox's tools. Their effect classes are those of this
// package's own table: what a server says about itself is not trusted.
func (c *Client) Tools(ctx context.Context) ([]Tool, error) {
	conn, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	var list []Tool
	byName := make(map[string]Tool)
	for listed, err := range conn.session.Tools(ctx, nil) {
		if err != nil {
			return nil, fmt.Errorf("toolbox at %s: listing its tools: %w", c.socket, conn.explain(err))
		}
		tool, err := workspaceTool(listed)
		if err != nil {
			return nil, fmt.Errorf("toolbox at %s: %w", c.socket, err)
		}
		list = append(list, tool)
		byName[tool.Name] = tool
	}
	c.mu.Lock()
	if c.conn == conn {
		c.tools = byName
	}
	c.mu.Unlock()
	return list, nil
}

func (c *Client) tool(ctx context.Context, name string) (Tool, bool, error) {
	c.mu.Lock()
	known := c.tools
	c.mu.Unlock()
	if known == nil {
		if _, err := c.Tools(ctx); err != nil {
			return Tool{}, false, err
		}
		c.mu.Lock()
		known = c.tools
		c.mu.Unlock()
	}
	tool, ok := known[name]
	return tool, ok, nil
}

// Inspect asks the supervisor what became of a call: the question to ask about
// every call that was started by an earlier runner and has no result.
func (c *Client) Inspect(ctx context.Context, callID string) (JobState, error) {
	conn, err := c.connect(ctx)
	if err != nil {
		return JobState{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	result, err := mcp.CallCustomMethod[*InspectParams, *InspectResult](ctx, conn.session, MethodInspect, &InspectParams{CallID: callID})
	if err != nil {
		return JobState{}, fmt.Errorf("toolbox at %s: inspecting call %q: %w", c.socket, callID, conn.explain(err))
	}
	return result.JobState, nil
}

// workspaceEffects are the classes of the toolbox's tools.
var workspaceEffects = map[string]Effect{
	"read": ReadOnly, "grep": ReadOnly, "glob": ReadOnly,
	"write": Supervised, "edit": Supervised, "shell": Supervised,
}

// ProviderWorkspace is the Tool.Provider of the toolbox's tools.
const ProviderWorkspace = "workspace"

const (
	// MaxShellTimeout is the longest that one command may run. A command that
	// asks for nothing gets less, see the tool's description.
	MaxShellTimeout = 30 * time.Minute
	// fileTimeout bounds the tools that work on files.
	fileTimeout = 60 * time.Second
)

func workspaceTool(listed *mcp.Tool) (Tool, error) {
	if !ValidName(listed.Name) {
		return Tool{}, fmt.Errorf("tool name %q is not within [A-Za-z0-9_-]{1,64}", listed.Name)
	}
	schema, err := json.Marshal(listed.InputSchema)
	if err != nil {
		return Tool{}, fmt.Errorf("input schema of tool %q: %w", listed.Name, err)
	}
	digest, err := Digest(listed.Name, schema)
	if err != nil {
		return Tool{}, err
	}
	effect, ok := workspaceEffects[listed.Name]
	if !ok {
		effect = Opaque
	}
	timeout := fileTimeout
	if listed.Name == "shell" {
		timeout = MaxShellTimeout
	}
	return Tool{
		Name: listed.Name, Description: SafeText(listed.Description), InputSchema: schema,
		Effect: effect, Provider: ProviderWorkspace, Timeout: timeout, Digest: digest,
	}, nil
}

// connection is one MCP session over one socket. It ends once and for all.
type connection struct {
	session *mcp.ClientSession
	socket  net.Conn
	done    chan struct{} // closed when the session has ended
	stop    context.CancelFunc
	wait    sync.WaitGroup
}

func open(ctx context.Context, path string, epoch int64, clk clock.WithTicker) (*connection, *HelloResult, error) {
	var dialer net.Dialer
	socket, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, nil, fmt.Errorf("connecting: %w", err)
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "belay", Version: "v1"}, &mcp.ClientOptions{
		Logger:         slog.New(slog.DiscardHandler),
		Capabilities:   &mcp.ClientCapabilities{}, // no roots, no sampling, no elicitation
		MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true},
	})
	if err := errors.Join(
		mcp.AddSendingCustomMethod[*HelloParams, *HelloResult](client, MethodHello),
		mcp.AddSendingCustomMethod[*InspectParams, *InspectResult](client, MethodInspect),
	); err != nil {
		return nil, nil, errors.Join(err, socket.Close())
	}
	transport := &mcp.IOTransport{Reader: socket, Writer: nopCloser{socket}, MaxLineLength: MaxFrameBytes}
	session, err := client.Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: ProtocolVersion})
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("opening the MCP session: %w", err), socket.Close())
	}
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	conn := &connection{session: session, socket: socket, done: make(chan struct{}), stop: stop}
	conn.wait.Go(func() {
		_ = session.Wait()
		close(conn.done)
	})
	hello, err := mcp.CallCustomMethod[*HelloParams, *HelloResult](ctx, session, MethodHello, &HelloParams{Epoch: epoch})
	if err != nil {
		err = conn.explain(err)
		conn.close()
		return nil, nil, fmt.Errorf("hello with epoch %d: %w", epoch, err)
	}
	conn.wait.Go(func() { conn.keepAlive(background, clk) })
	return conn, hello, nil
}

// nopCloser lets the transport close the socket once, through its reader.
type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

func (c *connection) broken() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// close breaks the connection and waits for its goroutines.
func (c *connection) close() {
	c.stop()
	_ = c.socket.Close() // ends the session's reader, which answers the calls in flight
	c.wait.Wait()
}

// keepAlive breaks the connection when the peer stops answering pings. The
// SDK's own keep-alive closes the session in good order, which waits for the
// calls in flight: exactly those that a frozen peer never answers.
func (c *connection) keepAlive(ctx context.Context, clk clock.WithTicker) {
	ticker := clk.NewTicker(keepAliveInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.done:
			return
		case <-ticker.C():
		}
		if !c.ping(ctx, clk) {
			_ = c.socket.Close()
			return
		}
	}
}

func (c *connection) ping(ctx context.Context, clk clock.WithTicker) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := clk.NewTimer(keepAliveTimeout)
	defer timer.Stop()
	answered := make(chan error, 1)
	c.wait.Go(func() { answered <- c.session.Ping(ctx, nil) })
	select {
	case err := <-answered:
		return err == nil
	case <-timer.C():
		return false
	}
}

// explain turns an error of the SDK into one of ours.
func (c *connection) explain(err error) error {
	var wire *jsonrpc.Error
	if errors.As(err, &wire) {
		if wire.Code == CodeFenced {
			return fmt.Errorf("%w: %s", ErrFenced, wire.Message)
		}
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w: %w", errTransport, err)
}
