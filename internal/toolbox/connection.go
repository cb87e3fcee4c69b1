package toolbox

import (
	"context"
	"io"
	"net"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"belay.dev/belay/internal/runtime/tools"
)

// transport is an MCP transport over one socket that knows when every request
// it has read is answered. The SDK drops the answers to requests that are in
// flight when a session is closed; whoever wants them sent must wait first.
type transport struct {
	socket net.Conn
	calls  unanswered
}

func (t *transport) Connect(ctx context.Context) (mcp.Connection, error) {
	inner := &mcp.IOTransport{Reader: t.socket, Writer: nopCloser{t.socket}, MaxLineLength: tools.MaxFrameBytes}
	connection, err := inner.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &countedConnection{Connection: connection, calls: &t.calls}, nil
}

// nopCloser lets the transport close the socket once, through its reader.
type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

type countedConnection struct {
	mcp.Connection
	calls *unanswered
}

func (c *countedConnection) Read(ctx context.Context) (jsonrpc.Message, error) {
	message, err := c.Connection.Read(ctx)
	if request, ok := message.(*jsonrpc.Request); ok && err == nil && request.IsCall() {
		c.calls.add(1)
	}
	return message, err
}

func (c *countedConnection) Write(ctx context.Context, message jsonrpc.Message) error {
	err := c.Connection.Write(ctx, message)
	if _, ok := message.(*jsonrpc.Response); ok {
		c.calls.add(-1)
	}
	return err
}

// unanswered counts requests. The zero value counts none.
type unanswered struct {
	mu    sync.Mutex
	count int
	none  chan struct{} // nil, or closed when the count gets to 0
}

func (u *unanswered) add(n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.count += n
	if u.count == 0 && u.none != nil {
		close(u.none)
		u.none = nil
	}
}

// wait returns a channel that is closed once nothing is unanswered.
func (u *unanswered) wait() <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.count == 0 {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	if u.none == nil {
		u.none = make(chan struct{})
	}
	return u.none
}
