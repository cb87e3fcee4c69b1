package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ProviderHealthSpec says which route the object is about and what an operator wants of it. The controller writes route,
// operators write override.
//
// +kubebuilder:validation:XValidation:rule="self.route == oldSelf.route",message="route is immutable",fieldPath=".route"
type ProviderHealthSpec struct {
	// route is the identity of the route.
	// +required
	Route RouteIdentity `json:"route,omitzero"`

	// override takes the state out of the breaker's hands.
	// +optional
	Override *HealthOverride `json:"override,omitempty"`
}

// RouteIdentity is what makes a route: endpoint, dialect, model and the name of the credential.
type RouteIdentity struct {
	// host is the endpoint's host name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Host string `json:"host,omitempty"`

	// baseURL is the endpoint.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	BaseURL string `json:"baseURL,omitempty"`

	// dialect is the wire format.
	// +required
	Dialect Dialect `json:"dialect,omitempty"`

	// model is the model's name as the provider knows it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Model string `json:"model,omitempty"`

	// secretRef names the credential; unset for servers that ask for none.
	// +optional
	SecretRef *SecretKeyReference `json:"secretRef,omitempty"`
}

// OverrideState is an operator's decision about a route.
// +kubebuilder:validation:Enum=Auto;ForcedOpen;ForcedClosed
type OverrideState string

const (
	// OverrideAuto leaves the route to the breaker.
	OverrideAuto OverrideState = "Auto"
	// OverrideForcedOpen keeps all runs away from the route.
	OverrideForcedOpen OverrideState = "ForcedOpen"
	// OverrideForcedClosed lets all runs use the route whatever they see.
	OverrideForcedClosed OverrideState = "ForcedClosed"
)

// HealthOverride is an operator's decision about a route.
type HealthOverride struct {
	// state is the decision.
	// +required
	State OverrideState `json:"state,omitempty"`

	// until ends the override. Unset keeps it until it is removed.
	// +optional
	Until *metav1.Time `json:"until,omitempty"`

	// reason says for people why.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
}

// HealthState is the state of a route's breaker.
// +kubebuilder:validation:Enum=Closed;Cooling;Open;HalfOpen
type HealthState string

const (
	// HealthClosed routes are used.
	HealthClosed HealthState = "Closed"
	// HealthCooling routes told us when to come back. They are not broken.
	HealthCooling HealthState = "Cooling"
	// HealthOpen routes failed without a hint too often. They are broken until proven otherwise.
	HealthOpen HealthState = "Open"
	// HealthHalfOpen routes are tried by one run.
	HealthHalfOpen HealthState = "HalfOpen"
)

// ProviderHealthStatus is what all runs together know about a route.
type ProviderHealthStatus struct {
	// conditions has Available.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of the spec that this status describes.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// state is the state of the shared breaker.
	// +optional
	State HealthState `json:"state,omitempty"`

	// generation counts the changes of state and override. A report under an older one is ignored, and a newer one resets
	// the breakers of running runs. It is not metadata.generation.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Generation *int64 `json:"generation,omitempty"`

	// failures is the number of consecutive failures without a hint, over all runs.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Failures *int32 `json:"failures,omitempty"`

	// trips is how often the route opened since it last worked.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Trips *int32 `json:"trips,omitempty"`

	// openedTime is when the route opened.
	// +optional
	OpenedTime *metav1.MicroTime `json:"openedTime,omitempty"`

	// openUntil is when an open route may be probed.
	// +optional
	OpenUntil *metav1.MicroTime `json:"openUntil,omitempty"`

	// coolUntil is when a cooling route may be used.
	// +optional
	CoolUntil *metav1.MicroTime `json:"coolUntil,omitempty"`

	// until is the time of openUntil or coolUntil, whichever holds the route back, for people.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	Until string `json:"until,omitempty"`

	// lastFailure is the newest failure that a run reported.
	// +optional
	LastFailure *RouteFailure `json:"lastFailure,omitempty"`

	// lastSuccessTime is the newest success that a run reported.
	// +optional
	LastSuccessTime *metav1.MicroTime `json:"lastSuccessTime,omitempty"`

	// probe is the run that tries a half-open route.
	// +optional
	Probe *Probe `json:"probe,omitempty"`

	// runs is the number of running runs that may use the route.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Runs *int32 `json:"runs,omitempty"`

	// unreferencedTime is since when no ladder names the route. The object is deleted a day later.
	// +optional
	UnreferencedTime *metav1.Time `json:"unreferencedTime,omitempty"`
}

// RouteFailure is a failure without any text of the provider.
type RouteFailure struct {
	// kind is the kind of the failure.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Kind string `json:"kind,omitempty"`

	// httpStatus is the HTTP status, if there was one.
	// +optional
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=999
	HTTPStatus int32 `json:"httpStatus,omitempty"`

	// code is the provider's own code, if there was one.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Code string `json:"code,omitempty"`

	// time is when the failure was seen.
	// +optional
	Time *metav1.MicroTime `json:"time,omitempty"`
}

// Probe is a lease to try a half-open route.
type Probe struct {
	// runName is the name of the run.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	RunName string `json:"runName,omitempty"`

	// runUID is the UID of the run.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	RunUID string `json:"runUID,omitempty"`

	// epoch is the epoch of the run's pod.
	// +required
	// +kubebuilder:validation:Minimum=1
	Epoch int64 `json:"epoch,omitempty"`

	// token is what the run's report must repeat.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Token string `json:"token,omitempty"`

	// expiresAt ends the lease of a run that does not report.
	// +required
	ExpiresAt metav1.MicroTime `json:"expiresAt,omitzero"`
}

// ProviderHealth is the shared circuit breaker of one route. The controller makes it for every route that a ladder names;
// no run owns it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=providerhealths,singular=providerhealth,shortName=ph,categories=belay
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Provider",type=string,JSONPath=`.spec.route.host`
// +kubebuilder:printcolumn:name="Model",type=string,JSONPath=`.spec.route.model`
// +kubebuilder:printcolumn:name="Failures",type=integer,JSONPath=`.status.failures`
// +kubebuilder:printcolumn:name="Trips",type=integer,JSONPath=`.status.trips`
// +kubebuilder:printcolumn:name="Until",type=string,JSONPath=`.status.until`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ProviderHealth struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is the route and an operator's wishes.
	// +required
	Spec ProviderHealthSpec `json:"spec,omitzero"`

	// status is written by the controller.
	// +optional
	Status ProviderHealthStatus `json:"status,omitzero"`
}

// ProviderHealthList is a list of health objects.
//
// +kubebuilder:object:root=true
type ProviderHealthList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []ProviderHealth `json:"items"`
}
