package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// frameRoom is what a tools/call request needs beside its arguments.
const frameRoom = 4 << 10

// Call dispatches one call and waits for its outcome. Arguments are checked
// against the tool's schema first. Every failure is part of the outcome:
//
//   - a connection lost in mid-call is ProcessCrashed, at once, and InDoubt
//     unless the tool is ReadOnly;
//   - a toolbox that cannot be reached is ProcessCrashed and NotRun;
//   - a cancelled ctx is Cancelled: the toolbox stops the job, the call returns
//     without waiting for it and a late answer is dropped;
//   - a runner of an older epoch is Revoked and NotRun.
func (c *Client) Call(ctx context.Context, call Call) Outcome {
	conn, params, tool, refusal := c.prepare(ctx, call)
	if refusal != nil {
		return *refusal
	}
	started := c.clock.Now()
	answer, err := conn.callTool(ctx, params, c.deadline(call, tool))
	if err != nil {
		outcome := undelivered(ctx, tool, conn.explain(err), started)
		outcome.Duration = c.clock.Since(started)
		return outcome
	}
	return decodeOutcome(answer)
}

func (c *Client) prepare(ctx context.Context, call Call) (*connection, *mcp.CallToolParams, Tool, *Outcome) {
	refuse := func(kind ErrorKind, format string, args ...any) (*connection, *mcp.CallToolParams, Tool, *Outcome) {
		outcome := Refusal(kind, fmt.Sprintf(format, args...))
		return nil, nil, Tool{}, &outcome
	}
	if !ValidCallID(call.ID) || call.Attempt < 1 {
		return refuse(KindInvalidArguments, "call id %q, attempt %d: an id has nine letters or digits and attempts count from 1", call.ID, call.Attempt)
	}
	conn, err := c.connect(ctx)
	if err != nil {
		return refuse(unreachable(ctx, err), "The call was not executed: %v.", err)
	}
	tool, ok, err := c.tool(ctx, call.Tool)
	if err != nil {
		return refuse(unreachable(ctx, err), "The call was not executed: %v.", err)
	}
	if !ok {
		return refuse(KindUnknownTool, "There is no tool %q in the workspace. It has: %s.", call.Tool, c.toolNames())
	}
	if err := c.validator.Validate(tool, call.Arguments); err != nil {
		return refuse(KindInvalidArguments, "The arguments of %s do not fit its schema: %v", call.Tool, err)
	}
	arguments := call.Arguments
	if len(arguments) == 0 {
		arguments = json.RawMessage("{}")
	}
	encoded, err := json.Marshal(arguments) // as the SDK will: escapes count
	if err != nil {
		return refuse(KindInvalidArguments, "The arguments of %s cannot be encoded: %v", call.Tool, err)
	}
	if len(encoded) > MaxFrameBytes-frameRoom {
		return refuse(KindInvalidArguments, "The arguments of %s have %d bytes when encoded; at most %d are possible. Split the work into smaller calls.",
			call.Tool, len(encoded), MaxFrameBytes-frameRoom)
	}
	params := &mcp.CallToolParams{
		Meta: mcp.Meta{MetaCallID: call.ID, MetaAttempt: call.Attempt},
		Name: call.Tool, Arguments: arguments,
	}
	if call.Timeout > 0 {
		params.Meta[MetaTimeout] = call.Timeout.Milliseconds()
	}
	return conn, params, tool, nil
}

func (c *Client) toolNames() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var names []string
	for name := range c.tools {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// deadline is the time after which the client gives the toolbox up.
func (c *Client) deadline(call Call, tool Tool) time.Duration {
	return max(call.Timeout, tool.Timeout) + answerGrace
}

// errNoAnswer is the cause of giving up on a toolbox that lives and does not answer.
var errNoAnswer = errors.New("the toolbox did not answer in time")

func (c *connection) callTool(ctx context.Context, params *mcp.CallToolParams, limit time.Duration) (*mcp.CallToolResult, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errNoAnswer)
	defer cancel()
	answer, err := c.session.CallTool(ctx, params)
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return answer, err
}

// unreachable is the kind of a call that could not be sent.
func unreachable(ctx context.Context, err error) ErrorKind {
	switch {
	case ctx.Err() != nil:
		return KindCancelled
	case errors.Is(err, ErrFenced):
		return KindRevoked
	default:
		return KindProcessCrashed
	}
}

// undelivered is the outcome of a call that was sent and not answered.
func undelivered(ctx context.Context, tool Tool, err error, started time.Time) Outcome {
	at := started.UTC().Format(time.RFC3339)
	var wire *jsonrpc.Error
	switch {
	case ctx.Err() != nil:
		return Outcome{Status: Cancelled, ErrorKind: KindCancelled, StartedAt: started,
			Text: fmt.Sprintf("The call was started at %s and then cancelled; it may have had effects.", at)}
	case errors.Is(err, ErrFenced):
		return Refusal(KindRevoked, "The call was not executed: "+err.Error())
	case errors.As(err, &wire):
		return Refusal(KindExecutionFailed, "The call was not executed: the toolbox refused it: "+wire.Message)
	case tool.Effect == ReadOnly && errors.Is(err, errNoAnswer):
		return Outcome{Status: Timeout, ErrorKind: KindTimeout, Text: "The call had no answer in time. It changes nothing.", StartedAt: started}
	case tool.Effect == ReadOnly:
		return Outcome{Status: Error, ErrorKind: KindProcessCrashed, Text: "The toolbox ended during the call, which changes nothing.", StartedAt: started}
	case errors.Is(err, errNoAnswer):
		return Outcome{Status: InDoubt, ErrorKind: KindInDoubt, StartedAt: started,
			Text: fmt.Sprintf("The call was started at %s and had no answer in time; its outcome was not observed. Check the current state before repeating it.", at)}
	default:
		return Outcome{Status: InDoubt, ErrorKind: KindProcessCrashed, StartedAt: started,
			Text: fmt.Sprintf("The call was started at %s and the toolbox ended during it; its outcome was not observed. Check the current state before repeating it.", at)}
	}
}

// decodeOutcome reads the answer of the toolbox, or of any MCP server.
func decodeOutcome(answer *mcp.CallToolResult) Outcome {
	outcome := Outcome{Status: OK}
	if answer.IsError {
		outcome = Outcome{Status: Error, ErrorKind: KindExecutionFailed}
	}
	if described, ok := answer.Meta[MetaOutcome]; ok {
		if raw, err := json.Marshal(described); err == nil {
			var stated Outcome
			if json.Unmarshal(raw, &stated) == nil && stated.Status != "" {
				outcome = stated
			}
		}
	}
	var text []string
	for _, content := range answer.Content {
		switch content := content.(type) {
		case *mcp.TextContent:
			text = append(text, content.Text)
		case *mcp.ImageContent:
			outcome.Media = append(outcome.Media, Media{MIMEType: content.MIMEType, Data: content.Data})
		case *mcp.AudioContent:
			outcome.Media = append(outcome.Media, Media{MIMEType: content.MIMEType, Data: content.Data})
		case *mcp.ResourceLink:
			text = append(text, content.URI)
		case *mcp.EmbeddedResource:
			if content.Resource != nil {
				text = append(text, content.Resource.Text)
			}
		}
	}
	shown, truncated := Excerpt(strings.Join(text, "\n"), MaxTextBytes, "")
	outcome.Text = shown
	if truncated != nil && outcome.Truncated == nil {
		outcome.Truncated = truncated
	}
	return outcome
}
