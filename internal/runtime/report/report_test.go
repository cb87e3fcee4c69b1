package report

import (
	"testing"

	"belay.dev/belay/internal/runtime/breaker"
	"belay.dev/belay/internal/runtime/failure"
)

func TestALevelIsPublishedWhenItMatters(t *testing.T) {
	of := func(l breaker.Level) *Report { return &Report{Level: l} }
	two, three := breaker.Level{Generation: 1, ConsecutiveBlind: 2}, breaker.Level{Generation: 1, ConsecutiveBlind: 3}
	zero := breaker.Level{Generation: 1}
	rejected := breaker.Level{Generation: 1, LastFailure: breaker.LastFailure{Kind: failure.AuthError, Time: at(1)}}
	accepted := rejected
	accepted.LastSuccessTime = at(2)
	for _, tc := range []struct {
		name      string
		published *Report
		now       breaker.Level
		want      bool
	}{
		{"a route that is well and was never published", nil, zero, false},
		{"the first failure", nil, breaker.Level{Generation: 1, ConsecutiveBlind: 1}, true},
		{"one more failure below the threshold", of(breaker.Level{Generation: 1, ConsecutiveBlind: 1}), two, false},
		{"the failure that trips", of(two), three, true},
		{"one more failure above the threshold", of(three), breaker.Level{Generation: 1, ConsecutiveBlind: 4}, false},
		{"back to zero", of(two), zero, true},
		{"a success without failures before", of(zero), breaker.Level{Generation: 1, LastSuccessTime: at(1)}, false},
		{"a cooling begins", of(zero), breaker.Level{Generation: 1, CoolUntil: at(9)}, true},
		{"a cooling is extended", of(breaker.Level{Generation: 1, CoolUntil: at(9)}), breaker.Level{Generation: 1, CoolUntil: at(10)}, true},
		{"a cooling stands", of(breaker.Level{Generation: 1, CoolUntil: at(9)}), breaker.Level{Generation: 1, CoolUntil: at(9)}, false},
		{"a probe is sent", of(zero), breaker.Level{Generation: 1, ProbeToken: "t"}, true},
		{"a probe has a result", of(breaker.Level{Generation: 1, ProbeToken: "t"}), breaker.Level{Generation: 1, ProbeToken: "t", ProbeResult: breaker.ProbeFailed}, true},
		{"a rejected credential of a route never published", nil, rejected, true},
		{"a credential is rejected", of(zero), rejected, true},
		{"a credential stays rejected", of(rejected), rejected, false},
		{"a credential is accepted again", of(rejected), accepted, true},
		{"a new generation voids a level", of(two), breaker.Level{Generation: 2}, true},
		{"a new generation voids a cooling that stands", of(breaker.Level{Generation: 1, CoolUntil: at(9)}), breaker.Level{Generation: 2, CoolUntil: at(9)}, true},
		{"a new generation of a route that is well", of(zero), breaker.Level{Generation: 2}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Due(tc.published, Report{Level: tc.now}, 3); got != tc.want {
				t.Errorf("due = %t, want %t", got, tc.want)
			}
		})
	}
}
