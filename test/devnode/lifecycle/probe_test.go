package lifecycle

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestAVerdictTurnsAtItsThresholdsAndCountsFailuresOncePerPeriod(t *testing.T) {
	p := &corev1.Probe{SuccessThreshold: 2, FailureThreshold: 3}
	var v Verdict
	for i, step := range []struct {
		at     time.Duration
		ok     bool
		turned bool
		want   bool
	}{
		{0, true, false, false},
		{1 * time.Second, true, true, true}, // the second success
		{2 * time.Second, true, false, true},
		{10 * time.Second, false, false, true},
		{11 * time.Second, false, false, true}, // within the period: not counted
		{20 * time.Second, false, false, true},
		{30 * time.Second, false, true, false}, // the third counted failure
		{31 * time.Second, true, false, false},
		{32 * time.Second, false, false, false}, // a failure begins the successes anew
		{33 * time.Second, true, false, false},
		{34 * time.Second, true, true, true},
	} {
		turned := v.Count(step.ok, noon.Add(step.at), 10*time.Second, p)
		if turned != step.turned || v.OK != step.want {
			t.Errorf("step %d: turned %v and OK %v, want %v and %v", i, turned, v.OK, step.turned, step.want)
		}
	}
}
