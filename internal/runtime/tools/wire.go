package tools

import "github.com/modelcontextprotocol/go-sdk/mcp"

// The workspace protocol is MCP, newline-delimited on a unix socket, with
// these additions.
const (
	// MaxFrameBytes is the largest message that either side accepts.
	MaxFrameBytes = 1 << 20

	// ProtocolVersion is the MCP revision both sides speak: the newest one that
	// still has ping, on which keep-alive rests.
	ProtocolVersion = "2025-11-25"

	// MethodHello must be the first request of a connection. It exchanges the
	// epochs and tells the boot id of the supervisor.
	MethodHello = "belay/hello"
	// MethodInspect asks what became of a call.
	MethodInspect = "belay/inspect"

	// MetaCallID, MetaAttempt and MetaTimeout are the _meta keys of a
	// tools/call request; MetaOutcome is that of its result and holds the
	// Outcome without text and media, which are the result's content.
	MetaCallID  = "agents.belay.dev/call-id"
	MetaAttempt = "agents.belay.dev/attempt"
	MetaTimeout = "agents.belay.dev/timeout-milliseconds"
	MetaOutcome = "agents.belay.dev/outcome"

	// CodeFenced is the JSON-RPC error code for a connection whose epoch is
	// lower than one the supervisor has seen.
	CodeFenced = -32091
	// CodeNoHello is the error code for a request before MethodHello.
	CodeNoHello = -32092
)

// HelloParams are the parameters of MethodHello.
type HelloParams struct {
	mcp.ParamsBase
	// Epoch is that of the runner.
	Epoch int64 `json:"epoch"`
}

// HelloResult is the result of MethodHello.
type HelloResult struct {
	mcp.ResultBase
	// BootID is random per start of the supervisor.
	BootID string `json:"bootID"`
	// Epoch is the highest the supervisor has seen, this hello included.
	Epoch int64 `json:"epoch"`
}

// InspectParams are the parameters of MethodInspect.
type InspectParams struct {
	mcp.ParamsBase
	CallID string `json:"callID"`
}

// InspectResult is the result of MethodInspect.
type InspectResult struct {
	mcp.ResultBase
	JobState
}
