// Package anthropic speaks the Anthropic Messages API: it renders a request and decodes the event stream of an answer.
// Both are pure.
//
// It may import the provider package and the pure leaves of the runtime; it never imports another dialect.
package anthropic

import (
	"belay.dev/belay/internal/runtime/provider"
	"belay.dev/belay/internal/runtime/route"
)

// Dialect is the dialect AnthropicMessages. The zero value is ready.
type Dialect struct{}

var _ provider.Dialect = Dialect{}

// Name returns AnthropicMessages.
func (Dialect) Name() route.Dialect { return route.AnthropicMessages }

// NewDecoder returns a decoder for one answer of the target.
func (Dialect) NewDecoder(target provider.Target) provider.Decoder {
	return &decoder{
		scope:         provider.ScopeOf(target),
		acceptMissing: target.MissingFinishReason == provider.MissingFinishAccept,
	}
}

const (
	// apiVersion is the version of the API that the wire structs follow. A provider's header may name another one.
	apiVersion = "2023-06-01"
	// defaultMaxTokens is sent for a leg without a cap, since the API demands one: all models accept it.
	defaultMaxTokens = 4096

	// credentialSignature is the kind of a credential with the signature of a thinking block.
	credentialSignature = "signature"
	// credentialRedacted is the kind of a credential with the data of a redacted thinking block.
	credentialRedacted = "redacted"
	// credentialCallID is the kind of a credential with the vendor's id of a call.
	credentialCallID = "callID"
)
