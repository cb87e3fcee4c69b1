package v1alpha1

import (
	"k8s.io/apimachinery/pkg/runtime"
)

// Billing says whether requests to a leg cost money of their own.
// +kubebuilder:validation:Enum=Metered;Included
type Billing string

const (
	// BillingMetered legs are paid by use; a run must allow them.
	BillingMetered Billing = "Metered"
	// BillingIncluded legs are paid otherwise: a flat rate, or one's own machines.
	BillingIncluded Billing = "Included"
)

// SecurityClass orders how confidential the data is that a leg may see: Public < Internal < Confidential < Restricted.
// +kubebuilder:validation:Enum=Public;Internal;Confidential;Restricted
type SecurityClass string

// The classes, from the lowest to the highest.
const (
	SecurityClassPublic       SecurityClass = "Public"
	SecurityClassInternal     SecurityClass = "Internal"
	SecurityClassConfidential SecurityClass = "Confidential"
	SecurityClassRestricted   SecurityClass = "Restricted"
)

// Capability is something that not every model can do.
// +kubebuilder:validation:Enum=Tools;Images
type Capability string

const (
	// CapabilityTools is calling tools.
	CapabilityTools Capability = "Tools"
	// CapabilityImages is reading images.
	CapabilityImages Capability = "Images"
)

// LegState is the operator's wish for a leg.
// +kubebuilder:validation:Enum=Active;Drained
type LegState string

const (
	// LegStateActive legs are used.
	LegStateActive LegState = "Active"
	// LegStateDrained legs get no new turns.
	LegStateDrained LegState = "Drained"
)

// Reasoning says what happens to a model's reasoning text of earlier turns.
// +kubebuilder:validation:Enum=Drop;Replay;Placeholder
type Reasoning string

const (
	// ReasoningDrop sends none.
	ReasoningDrop Reasoning = "Drop"
	// ReasoningReplay sends it back to the route that wrote it.
	ReasoningReplay Reasoning = "Replay"
	// ReasoningPlaceholder sends an empty value for turns of other routes, for servers that require the field.
	ReasoningPlaceholder Reasoning = "Placeholder"
)

// MissingFinishReason says whether a stream that never names a finish reason can be complete.
// +kubebuilder:validation:Enum=Reject;Accept
type MissingFinishReason string

const (
	// MissingFinishReasonReject takes such a stream for truncated.
	MissingFinishReasonReject MissingFinishReason = "Reject"
	// MissingFinishReasonAccept takes it for complete if it has content and its end marker.
	MissingFinishReasonAccept MissingFinishReason = "Accept"
)

// Leg is one provider and one model, with its own limits and price.
//
// +kubebuilder:validation:XValidation:rule="!has(self.maxOutputTokens) || self.maxOutputTokens <= self.contextWindow",message="maxOutputTokens must not exceed contextWindow",fieldPath=".maxOutputTokens"
type Leg struct {
	// name is the leg's name, unique in the ladder.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`

	// provider is the name of one of the ladder's providers.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Provider string `json:"provider,omitempty"`

	// model is the model's name as the provider knows it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[\x21-\x7e]+$`
	Model string `json:"model,omitempty"`

	// contextWindow is the size of the model's window in tokens, input and output together.
	// +required
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=100000000
	ContextWindow int64 `json:"contextWindow,omitempty"`

	// maxOutputTokens caps one answer. Defaults to a quarter of contextWindow, at most 32,768.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000000
	MaxOutputTokens int64 `json:"maxOutputTokens,omitempty"`

	// price is what tokens cost. A metered leg without a price is skipped by runs with a cost limit.
	// +optional
	Price *Price `json:"price,omitempty"`

	// billing says whether requests cost money of their own. Defaults to Metered.
	// +optional
	Billing Billing `json:"billing,omitempty"`

	// securityClass is the highest class of data that the leg may see. Defaults to Public.
	// +optional
	SecurityClass SecurityClass `json:"securityClass,omitempty"`

	// capabilities are what the model can do besides text. Defaults to [Tools].
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Capabilities []Capability `json:"capabilities,omitempty"`

	// state takes a leg out of use without deleting it. Defaults to Active.
	// +optional
	State LegState `json:"state,omitempty"`

	// timeouts bound one request.
	// +optional
	Timeouts *Timeouts `json:"timeouts,omitempty"`

	// parameters are merged into the body of every request as they are, for example {"temperature": 0}.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +kubebuilder:validation:MaxProperties=32
	Parameters *runtime.RawExtension `json:"parameters,omitempty"`

	// reasoning says what happens to reasoning text of earlier turns. Defaults to Drop.
	// +optional
	Reasoning Reasoning `json:"reasoning,omitempty"`

	// missingFinishReason says whether a stream without a finish reason can be complete. Defaults to Reject.
	// +optional
	MissingFinishReason MissingFinishReason `json:"missingFinishReason,omitempty"`
}

// Price is what a million tokens cost, in micro-USD: 2,500,000 is 2.50 USD for a million tokens.
type Price struct {
	// inputMicroUSDPerMTok is the price of prompt tokens.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000000
	InputMicroUSDPerMTok *int64 `json:"inputMicroUSDPerMTok,omitempty"`

	// cachedInputMicroUSDPerMTok is the price of prompt tokens read from the provider's cache. Defaults to the price of
	// prompt tokens.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000000
	CachedInputMicroUSDPerMTok *int64 `json:"cachedInputMicroUSDPerMTok,omitempty"`

	// cacheWriteMicroUSDPerMTok is the price of prompt tokens written to the provider's cache. Defaults to the price of
	// prompt tokens.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000000
	CacheWriteMicroUSDPerMTok *int64 `json:"cacheWriteMicroUSDPerMTok,omitempty"`

	// outputMicroUSDPerMTok is the price of generated tokens, reasoning included.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000000
	OutputMicroUSDPerMTok *int64 `json:"outputMicroUSDPerMTok,omitempty"`
}

// Timeouts bound one request. 0 disables a timer.
type Timeouts struct {
	// connectSeconds bounds name lookup, TCP and TLS together. Defaults to 10.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	ConnectSeconds *int32 `json:"connectSeconds,omitempty"`

	// firstByteSeconds bounds the time from the request to the first byte of the answer. Defaults to 120.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	FirstByteSeconds *int32 `json:"firstByteSeconds,omitempty"`

	// idleSeconds bounds the silence between two bytes; it widens by 30 s with each try at the leg. Defaults to 120.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	IdleSeconds *int32 `json:"idleSeconds,omitempty"`

	// progressSeconds bounds the time between two pieces of content; pings are none. It widens like idleSeconds. Defaults
	// to 300.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	ProgressSeconds *int32 `json:"progressSeconds,omitempty"`

	// attemptSeconds bounds the whole request. Defaults to 1,200.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	AttemptSeconds *int32 `json:"attemptSeconds,omitempty"`
}
