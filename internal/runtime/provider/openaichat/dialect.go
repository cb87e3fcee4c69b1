// Package openaichat speaks the OpenAI Chat Completions API, as OpenAI documents it and as the many compatible servers
// bend it: it renders a request and decodes the event stream of an answer. Both are pure.
//
// It may import the provider package and the pure leaves of the runtime; it never imports another dialect.
package openaichat

import (
	"belay.dev/belay/internal/runtime/provider"
	"belay.dev/belay/internal/runtime/route"
)

// Dialect is the dialect OpenAIChat. The zero value is ready.
type Dialect struct{}

var _ provider.Dialect = Dialect{}

// Name returns OpenAIChat.
func (Dialect) Name() route.Dialect { return route.OpenAIChat }

// NewDecoder returns a decoder for one answer of the target.
func (Dialect) NewDecoder(target provider.Target) provider.Decoder {
	return &decoder{
		scope:         provider.ScopeOf(target),
		acceptMissing: target.MissingFinishReason == provider.MissingFinishAccept,
		outputCap:     target.MaxOutputTokens,
	}
}

const (
	// credentialCallID is the kind of a credential with the vendor's id of a call.
	credentialCallID = "callID"
	// credentialReasoning is the kind of a credential with the name of the field in which reasoning text came and has to
	// go back.
	credentialReasoning = "reasoningField"
)
