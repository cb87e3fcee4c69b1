package failure

import (
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// MaxWait is the longest wait hint that is believed; a longer one is cut to it.
const MaxWait = 24 * time.Hour

// waitHint is stage 4: the first usable hint in the order retry-after-ms, retry-after, the body, the reset headers. A
// hint that does not parse, is negative or lies in the past is none, and the next source is asked.
func waitHint(header http.Header, b errorBody, kind Kind, now time.Time) *Wait {
	for _, name := range []string{"retry-after-ms", "x-ms-retry-after-ms"} {
		if d, ok := number64(header.Get(name), time.Millisecond); ok {
			return &Wait{Duration: d, Source: name}
		}
	}
	if d, ok := retryAfter(header.Get("retry-after"), now); ok {
		return &Wait{Duration: d, Source: "retry-after"}
	}
	if w := bodyHint(b, now); w != nil {
		return w
	}
	if kind == RateLimited || kind == Overloaded || kind == QuotaExhausted {
		return resetHint(header, now)
	}
	// Reset headers come with every answer; beside another failure they say nothing about it.
	return nil
}

// retryAfter reads RFC 9110's two forms, seconds and HTTP-date, and the fractions of seconds that providers send.
func retryAfter(value string, now time.Time) (time.Duration, bool) {
	if d, ok := number64(value, time.Second); ok {
		return d, true
	}
	at, err := http.ParseTime(strings.TrimSpace(value))
	if err != nil {
		return 0, false
	}
	return until(at, now)
}

func bodyHint(b errorBody, now time.Time) *Wait {
	if d, err := time.ParseDuration(b.retryDelay); err == nil && d >= 0 {
		return &Wait{Duration: min(d, MaxWait), Source: "retryDelay"}
	}
	if b.resetsInSeconds != nil {
		if d, ok := scaled(*b.resetsInSeconds, time.Second); ok {
			return &Wait{Duration: d, Source: "resets_in_seconds"}
		}
	}
	if b.resetsAt != nil && *b.resetsAt > 0 && *b.resetsAt < maxUnix {
		if d, ok := until(time.Unix(int64(*b.resetsAt), 0), now); ok {
			return &Wait{Duration: d, Source: "resets_at"}
		}
	}
	if d, ok := tryAgainIn(b.text); ok {
		return &Wait{Duration: d, Source: "message"}
	}
	return nil
}

// maxUnix is the year 9999; a larger figure is no time in seconds.
const maxUnix = 253402300799

// tryAgain matches "try again in 1m30.5s", "try again in 20s" and "retry in 26 seconds".
var tryAgain = regexp.MustCompile(`\b(?:try again|retry) in ((?:\d+(?:\.\d+)?(?:ms|h|m|s))+|\d+(?:\.\d+)? ?(?:milliseconds?|seconds?|minutes?|hours?))\b`)

func tryAgainIn(text string) (time.Duration, bool) {
	m := tryAgain.FindStringSubmatch(plainText(text))
	if m == nil {
		return 0, false
	}
	if d, err := time.ParseDuration(m[1]); err == nil {
		return min(d, MaxWait), true
	}
	digits := strings.TrimRight(m[1], " abcdefghijklmnopqrstuvwxyz")
	unit := strings.TrimSpace(m[1][len(digits):])
	switch {
	case strings.HasPrefix(unit, "millisecond"):
		return number64(digits, time.Millisecond)
	case strings.HasPrefix(unit, "second"):
		return number64(digits, time.Second)
	case strings.HasPrefix(unit, "minute"):
		return number64(digits, time.Minute)
	default:
		return number64(digits, time.Hour)
	}
}

// resetHint takes the latest reset of the spent buckets, or of all if none says that it is spent: coming back when only
// one of two has refilled fails again.
func resetHint(header http.Header, now time.Time) *Wait {
	var spent, all *Wait
	for name := range header {
		name = strings.ToLower(name)
		bucket, ok := resetBucket(name)
		if !ok {
			continue
		}
		d, ok := resetTime(header.Get(name), now)
		if !ok {
			continue
		}
		w := &Wait{Duration: d, Source: name}
		all = later(all, w)
		if strings.TrimSpace(header.Get(bucket)) == "0" {
			spent = later(spent, w)
		}
	}
	if spent != nil {
		return spent
	}
	return all
}

// resetBucket returns the name of the header with the bucket's remainder: anthropic-ratelimit-tokens-reset goes with
// anthropic-ratelimit-tokens-remaining, x-ratelimit-reset-tokens with x-ratelimit-remaining-tokens.
func resetBucket(name string) (string, bool) {
	if bucket, ok := strings.CutPrefix(name, "x-ratelimit-reset-"); ok {
		return "x-ratelimit-remaining-" + bucket, true
	}
	if strings.HasPrefix(name, "anthropic-ratelimit-") {
		if bucket, ok := strings.CutSuffix(name, "-reset"); ok {
			return bucket + "-remaining", true
		}
	}
	return "", false
}

func later(a, b *Wait) *Wait {
	if a == nil || b.Duration > a.Duration || b.Duration == a.Duration && b.Source < a.Source {
		return b
	}
	return a
}

func resetTime(value string, now time.Time) (time.Duration, bool) {
	value = strings.TrimSpace(value)
	if d, err := time.ParseDuration(value); err == nil && d >= 0 {
		return min(d, MaxWait), true
	}
	at, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return 0, false
	}
	return until(at, now)
}

func until(at, now time.Time) (time.Duration, bool) {
	d := at.Sub(now)
	if d <= 0 {
		return 0, false
	}
	return min(d, MaxWait), true
}

// number64 reads a plain decimal number of units; no sign, no exponent, no infinity.
func number64(value string, unit time.Duration) (time.Duration, bool) {
	value = strings.TrimSpace(value)
	if value == "" || strings.Trim(value, "0123456789.") != "" {
		return 0, false
	}
	f, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return 0, false
	}
	return scaled(f, unit)
}

func scaled(f float64, unit time.Duration) (time.Duration, bool) {
	if math.IsNaN(f) || f < 0 {
		return 0, false
	}
	d := f * float64(unit)
	if d >= float64(MaxWait) {
		return MaxWait, true
	}
	return time.Duration(d), true
}
