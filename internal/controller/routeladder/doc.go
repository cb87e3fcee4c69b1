// Package routeladder says what a RouteLadder is worth: which of its legs runs may use and why the others are left out,
// whether the configuration works, which legs can be used now, and what is risky about the ladder as it is written.
//
// A pass observes facts, decides purely, writes the status once, and only then tells of what changed. The controller never
// reads a Secret and never sends a request: what a provider thinks of a credential or a model is learned from the runs, by
// way of ProviderHealth.
//
// It may import the API types, the contract, the pure leaves of the runtime and controller-runtime.
package routeladder
