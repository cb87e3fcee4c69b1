package loop

import (
	"strings"
	"testing"

	"belay.dev/belay/internal/runtime/ladder"
	"belay.dev/belay/internal/runtime/provider"
	"belay.dev/belay/internal/runtime/route"
)

// TestALegThatPolicyForbidsIsNotSentToWhateverAsksForIt puts a forbidden leg past the plan, which by itself leaves it out.
func TestALegThatPolicyForbidsIsNotSentToWhateverAsksForIt(t *testing.T) {
	leg := ladder.Leg{Name: "a", Route: route.Route{BaseURL: "https://a.example/v1"}, ContextWindow: 1000, SecurityClass: ladder.Public}
	for name, policy := range map[string]ladder.RunPolicy{
		"a class too low":     {SecurityClass: ladder.Restricted, Metered: ladder.AllowMetered},
		"a metered leg":       {},
		"a leg not selected":  {Metered: ladder.AllowMetered, Legs: []string{"b"}},
		"a leg without price": {Metered: ladder.AllowMetered, CostLimited: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := &runner{state: &State{}} // without Models and a ledger: anything that is sent or written panics
			work := &turn{policy: policy, ladder: Ladder{Ladder: ladder.New("l", leg), Targets: map[string]provider.Target{"a": {}}}}
			_, err := r.attempt(t.Context(), work, ladder.Decision{Action: ladder.Send, Leg: "a"})
			if err == nil || !strings.Contains(err.Error(), "policy forbids") {
				t.Errorf("err = %v, want one that names the policy", err)
			}
		})
	}
}
