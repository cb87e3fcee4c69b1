// Package v1alpha1 is the Kubernetes API of Belay, group agents.belay.dev: RouteLadder declares an ordered failover chain
// of model providers, AgentRun is one run of an agent that walks such a chain, and ProviderHealth is what all runs
// together know about one route.
//
// The package holds types, constants and generated code only. It imports apimachinery and core/v1, so that clients can
// use it without the operator's dependencies.
//
// Conventions. Conditions are the contract; there is no phase. Reasons are the closed lists of reasons.go. A duration is an
// int32 that names its unit, money is int64 micro-USD (one millionth of a US dollar). A numeric field with a default is left
// unset by the API server; the default is a constant of defaults.go, applied by whoever reads the field, so a stored object
// shows only what its author wrote.
//
// +kubebuilder:object:generate=true
// +kubebuilder:ac:generate=true
// +kubebuilder:ac:output:package="applyconfiguration"
// +groupName=agents.belay.dev
package v1alpha1
