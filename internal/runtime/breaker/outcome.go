package breaker

import (
	"time"

	"belay.dev/belay/internal/runtime/failure"
)

// Outcome is what the end of a request says about its route.
type Outcome string

const (
	// Success is a complete answer.
	Success Outcome = "Success"
	// Blind is a failure of a route that did not say when it will work again.
	Blind Outcome = "Blind"
	// Informed is a failure of a route that is known to recover by itself.
	Informed Outcome = "Informed"
	// CredentialCooling is a failure of the account behind the route: it concerns every route with the same credential.
	CredentialCooling Outcome = "CredentialCooling"
	// Neutral says nothing about the route.
	Neutral Outcome = "Neutral"
)

// Result is the outcome of a request as a breaker sees it.
type Result struct {
	Outcome Outcome
	// Kind is the failure's kind, empty for Success.
	Kind failure.Kind
	// HTTPStatus and Code are the failure's, for whoever looks at the route; 0 and empty if it had none.
	HTTPStatus int
	Code       string
	// Wait is the provider's hint when to come back; 0 for none.
	Wait time.Duration
}

// ResultOf returns what a finished attempt says about its route; nil is an answer.
func ResultOf(f *failure.Failure) Result {
	if f == nil {
		return Result{Outcome: Success}
	}
	r := Result{Kind: f.Kind, HTTPStatus: f.HTTPStatus, Code: f.Code}
	if f.Wait != nil {
		r.Wait = f.Wait.Duration
	}
	switch f.Kind.Disposition().Health {
	case failure.HealthBlind:
		r.Outcome = Blind
	case failure.HealthInformed:
		r.Outcome = Informed
	case failure.HealthCredentialCooling:
		r.Outcome = CredentialCooling
	case failure.HealthNeutral:
		r.Outcome = Neutral
	}
	return r
}
