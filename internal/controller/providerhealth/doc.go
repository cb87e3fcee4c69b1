// Package providerhealth keeps one ProviderHealth object for each route that an accepted ladder names: the circuit breaker
// that all runs share. It creates the objects, folds what the runs report into their status, and deletes them a day after
// the last ladder stopped naming their route.
//
// A pass observes facts, decides purely (the breaker itself is package report), writes the status once, and only then tells
// of what changed. The controller is the only writer of the status, and remembers nothing between two passes that the
// status does not hold.
//
// It may import the API types, the contract, the pure leaves of the runtime and controller-runtime.
package providerhealth
