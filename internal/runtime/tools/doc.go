// Package tools holds the words in which the model loop speaks about tools
// (Tool, Call, Outcome, ErrorKind, Effect), the checks that need no I/O
// (argument validation, output excerpts), and the Client of the workspace's
// tool server.
//
// The workspace's tool server ("toolbox") is an MCP server on a unix socket.
// Beside the standard methods it answers two custom ones, belay/hello and
// belay/inspect; wire.go lists them and the _meta keys of tools/call.
//
// The package knows nothing of Kubernetes. It imports the MCP SDK and
// jsonschema-go only.
package tools
