// Package chaos is a strict scripted provider: an HTTP server that speaks the model providers' dialects, answers each
// request as a script says, and rejects what the real APIs reject. It is behind `belay chaos`, with which a failover
// chain is rehearsed, and it is the provider of Belay's own demo and tests.
//
// A script has legs. A leg is one fake endpoint, named by the first segment of the request's path, and has steps. Each
// accepted request uses one step: an answer, tool calls, an HTTP error, a stream that breaks off, silence. Requests that
// the real API would refuse are refused here with the same status and error shape, and use no step.
//
// The package shares no code with the dialect adapters under internal/runtime/provider, so that a misunderstanding there
// cannot cancel itself out here. It imports the standard library, a YAML parser, the clock interface, and the names of
// the dialects from package route.
package chaos
