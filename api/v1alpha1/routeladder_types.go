package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RouteLadderSpec declares providers and the order in which a run tries their models.
//
// +kubebuilder:validation:XValidation:rule="self.legs.all(l, self.providers.exists(p, p.name == l.provider))",message="legs: every leg must name one of spec.providers as its provider",fieldPath=".legs"
// +kubebuilder:validation:XValidation:rule="self.legs.all(l, self.legs.exists_one(m, m.name == l.name))",message="legs: the names of legs must be unique",fieldPath=".legs"
type RouteLadderSpec struct {
	// providers are the endpoints that legs refer to.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Providers []Provider `json:"providers,omitempty"`

	// legs are tried from the first to the last. Their names are unique.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Legs []Leg `json:"legs,omitempty"`

	// retry bounds the requests to one leg, and those of one turn.
	// +optional
	Retry *RetryPolicy `json:"retry,omitempty"`

	// endurance bounds how often the whole ladder is walked again after transient failures.
	// +optional
	Endurance *EndurancePolicy `json:"endurance,omitempty"`

	// waits says when a run waits in place, parks, or gives up.
	// +optional
	Waits *WaitPolicy `json:"waits,omitempty"`

	// breaker says when a route is taken out of use.
	// +optional
	Breaker *BreakerPolicy `json:"breaker,omitempty"`

	// policy decides failures that are not about a provider's health.
	// +optional
	Policy *FailurePolicy `json:"policy,omitempty"`
}

// RetryPolicy bounds retries. Delays grow by backoffFactor from baseDelayMilliseconds to maxDelaySeconds, with full jitter.
type RetryPolicy struct {
	// maxRetries is the number of retries at one leg after the first try. Defaults to 5.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=50
	MaxRetries *int32 `json:"maxRetries,omitempty"`

	// baseDelayMilliseconds is the delay before the first retry. Defaults to 500.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=60000
	BaseDelayMilliseconds int32 `json:"baseDelayMilliseconds,omitempty"`

	// backoffFactor multiplies the delay from try to try. Defaults to 2.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	BackoffFactor int32 `json:"backoffFactor,omitempty"`

	// maxDelaySeconds caps the delay. Defaults to 30.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	MaxDelaySeconds int32 `json:"maxDelaySeconds,omitempty"`

	// maxAttemptsPerTurn is shared by all legs and walks of a turn, and never reset by a failover. Defaults to 20.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxAttemptsPerTurn int32 `json:"maxAttemptsPerTurn,omitempty"`
}

// EndurancePolicy bounds walks.
type EndurancePolicy struct {
	// maxRewalks is how many more times the ladder is walked in one turn when every leg failed and at least one of them
	// transiently. Defaults to 6.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MaxRewalks *int32 `json:"maxRewalks,omitempty"`
}

// OnAllTripped says what happens when every allowed leg is open or cooling for longer than a run waits in place.
// +kubebuilder:validation:Enum=Park;Fail
type OnAllTripped string

const (
	// OnAllTrippedPark gives the pod back and continues when a route reopens.
	OnAllTrippedPark OnAllTripped = "Park"
	// OnAllTrippedFail ends the run.
	OnAllTrippedFail OnAllTripped = "Fail"
)

// WaitPolicy says when to wait, park or give up.
type WaitPolicy struct {
	// maxWaitSeconds is the longest wait that a leg may ask for while another is available; a longer one makes the run
	// advance. Defaults to 10.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	MaxWaitSeconds *int32 `json:"maxWaitSeconds,omitempty"`

	// parkAfterSeconds is the longest wait in place, with a pod, when no leg is available. Defaults to 300.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	ParkAfterSeconds *int32 `json:"parkAfterSeconds,omitempty"`

	// onAllTripped says what happens when the wait would be longer than that. Defaults to Park.
	// +optional
	OnAllTripped OnAllTripped `json:"onAllTripped,omitempty"`
}

// InformedFailures says whether a provider's request to slow down counts against its health.
// +kubebuilder:validation:Enum=Cool;Trip
type InformedFailures string

const (
	// InformedFailuresCool makes the route cool until the time that the provider named.
	InformedFailuresCool InformedFailures = "Cool"
	// InformedFailuresTrip makes such a failure count like a blind one as well.
	InformedFailuresTrip InformedFailures = "Trip"
)

// BreakerPolicy configures the circuit breaker of every route of the ladder.
type BreakerPolicy struct {
	// failureThreshold is the number of consecutive failures without a hint that opens a route. Defaults to 3.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	FailureThreshold int32 `json:"failureThreshold,omitempty"`

	// baseCooldownSeconds is how long a route stays open at first; it doubles from trip to trip up to 900 s. 0 disables
	// opening. Defaults to 30.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=900
	BaseCooldownSeconds *int32 `json:"baseCooldownSeconds,omitempty"`

	// informed says whether rate limits and overload count against a route's health. Defaults to Cool.
	// +optional
	Informed InformedFailures `json:"informed,omitempty"`
}

// OnCredentialFailure says what a rejected credential means for a run.
// +kubebuilder:validation:Enum=Advance;Park;Fail
type OnCredentialFailure string

const (
	// OnCredentialFailureAdvance moves on to the next leg, with a condition, an event and a metric.
	OnCredentialFailureAdvance OnCredentialFailure = "Advance"
	// OnCredentialFailurePark parks the run until the credential works.
	OnCredentialFailurePark OnCredentialFailure = "Park"
	// OnCredentialFailureFail ends the run.
	OnCredentialFailureFail OnCredentialFailure = "Fail"
)

// OnContentFiltered says what a content filter's refusal means for a run.
// +kubebuilder:validation:Enum=Fail;Advance
type OnContentFiltered string

const (
	// OnContentFilteredFail ends the run.
	OnContentFilteredFail OnContentFiltered = "Fail"
	// OnContentFilteredAdvance asks the next leg.
	OnContentFilteredAdvance OnContentFiltered = "Advance"
)

// FailurePolicy decides failures that say nothing about a route's health.
type FailurePolicy struct {
	// onCredentialFailure is for credentials that a provider rejects. Defaults to Advance.
	// +optional
	OnCredentialFailure OnCredentialFailure `json:"onCredentialFailure,omitempty"`

	// onContentFiltered is for prompts and answers that a provider's filter withholds. Defaults to Fail.
	// +optional
	OnContentFiltered OnContentFiltered `json:"onContentFiltered,omitempty"`
}

// LegAcceptance says whether runs may use a leg.
// +kubebuilder:validation:Enum=Accepted;LeftOut
type LegAcceptance string

const (
	// LegAccepted legs are part of a run's plan, subject to the run's own policy and to health.
	LegAccepted LegAcceptance = "Accepted"
	// LegLeftOut legs are never planned; reason and message say why.
	LegLeftOut LegAcceptance = "LeftOut"
)

// LegStatus is what the controller makes of one leg.
type LegStatus struct {
	// name is the leg's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`

	// route is the name of the ProviderHealth object that keeps the leg's health.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Route string `json:"route,omitempty"`

	// state says whether the leg is used.
	// +required
	State LegAcceptance `json:"state,omitempty"`

	// reason says why a leg is left out, as one word.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`

	// message says for people why a leg is left out and what to do.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}

// RouteLadderStatus is what the routeladder controller makes of a ladder.
type RouteLadderStatus struct {
	// conditions are Accepted, Ready, Available, Resilient and LegsVerified. Ready is about configuration alone, Available
	// mirrors health, so that a provider's outage does not hold up a delivery pipeline.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of the spec that this status describes.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// legs has one entry for each leg of the spec.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Legs []LegStatus `json:"legs,omitempty"`

	// legCount is the number of legs of the spec.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=32
	LegCount int32 `json:"legCount,omitempty"`

	// available is the number of accepted legs whose route may be used now, of all legs, for example "2/3".
	// +optional
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=5
	Available string `json:"available,omitempty"`

	// active is the name of the first leg that may be used now; unset if there is none.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Active string `json:"active,omitempty"`
}

// RouteLadder is an ordered failover chain of models. It may be changed at any time; runs use the newest accepted
// generation from their next turn on.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=ladder,categories=belay
// +kubebuilder:printcolumn:name="Legs",type=integer,JSONPath=`.status.legCount`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.available`
// +kubebuilder:printcolumn:name="Active",type=string,JSONPath=`.status.active`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type RouteLadder struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is the desired ladder.
	// +required
	Spec RouteLadderSpec `json:"spec,omitzero"`

	// status is written by the controller.
	// +optional
	Status RouteLadderStatus `json:"status,omitzero"`
}

// RouteLadderList is a list of ladders.
//
// +kubebuilder:object:root=true
type RouteLadderList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []RouteLadder `json:"items"`
}
