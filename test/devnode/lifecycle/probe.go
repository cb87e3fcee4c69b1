package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Verdict counts the results of a probe. A new one has none.
type Verdict struct {
	// Known says that a threshold was reached; OK is which.
	Known, OK bool

	good, bad int32
	counted   time.Time // when the last failure was counted
}

// Count takes a result and reports whether the verdict turned. Failures count
// once a period, so that a container can be looked at more often than that.
func (v *Verdict) Count(ok bool, now time.Time, period time.Duration, p *corev1.Probe) bool {
	before := *v
	switch {
	case ok:
		v.good, v.bad = v.good+1, 0
	case now.Sub(v.counted) >= period:
		v.good, v.bad, v.counted = 0, v.bad+1, now
	default:
		v.good = 0
	}
	if v.good >= max(1, p.SuccessThreshold) {
		v.Known, v.OK = true, true
	}
	failures := p.FailureThreshold
	if failures == 0 {
		failures = 3 // the API's default
	}
	if v.bad >= failures {
		v.Known, v.OK = true, false
	}
	return v.Known != before.Known || v.OK != before.OK
}
