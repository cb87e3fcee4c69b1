package toolbox

import (
	"testing"
	"time"
)

func TestACommandHasADefaultAndALongestTimeLimit(t *testing.T) {
	for name, test := range map[string]struct {
		allowed time.Duration
		seconds int
		want    time.Duration
	}{
		"nothing said":                {0, 0, 2 * time.Minute},
		"nothing asked, much allowed": {time.Hour, 0, 2 * time.Minute},
		"nothing asked, less allowed": {time.Minute, 0, time.Minute},
		"asked":                       {0, 600, 10 * time.Minute},
		"asked for more than ever":    {0, 7200, 30 * time.Minute},
		"asked for more than allowed": {5 * time.Minute, 600, 5 * time.Minute},
	} {
		if got := shellLimit(test.allowed, test.seconds); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
