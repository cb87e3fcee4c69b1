package failure

import (
	"net/http"
	"testing"
)

// hintOf classifies a 429 and writes its hint as "duration source", or nothing.
func hintOf(header http.Header, body string) string {
	got := Classify(Facts{Status: 429, Header: header, Body: []byte(body)}, corpusTime)
	if got.Wait == nil {
		return ""
	}
	return got.Wait.Duration.String() + " " + got.Wait.Source
}

func TestAWaitHintIsReadInEveryForm(t *testing.T) {
	for _, tt := range []struct {
		name   string
		header http.Header
		body   string
		want   string
	}{
		{"milliseconds", h("retry-after-ms", "250"), "", "250ms retry-after-ms"},
		{"fractions of milliseconds", h("retry-after-ms", "0.5"), "", "500µs retry-after-ms"},
		{"milliseconds of a gateway", h("x-ms-retry-after-ms", "900"), "", "900ms x-ms-retry-after-ms"},
		{"seconds", h("retry-after", "20"), "", "20s retry-after"},
		{"seconds with white space", h("retry-after", " 20 "), "", "20s retry-after"},
		{"fractions of seconds", h("retry-after", "1.25"), "", "1.25s retry-after"},
		{"no wait at all", h("retry-after", "0"), "", "0s retry-after"},
		{"HTTP-date", h("retry-after", "Sun, 01 Mar 2026 12:00:30 GMT"), "", "30s retry-after"},
		{"HTTP-date of RFC 850", h("retry-after", "Sunday, 01-Mar-26 12:01:00 GMT"), "", "1m0s retry-after"},
		{"HTTP-date of asctime", h("retry-after", "Sun Mar  1 12:02:00 2026"), "", "2m0s retry-after"},
		{"retryDelay", nil, `{"error":{"details":[{"retryDelay":"34.4s"}]}}`, "34.4s retryDelay"},
		{"resets_in_seconds", nil, `{"error":{"resets_in_seconds":90}}`, "1m30s resets_in_seconds"},
		{"resets_at", nil, `{"error":{"resets_at":1772366460}}`, "1m0s resets_at"},
		{"text in seconds", nil, `{"error":{"message":"Please try again in 20s. Visit x."}}`, "20s message"},
		{"text in milliseconds", nil, `{"error":{"message":"Please try again in 842ms."}}`, "842ms message"},
		{"text in minutes and seconds", nil, `{"error":{"message":"Please try again in 1m30.5s."}}`, "1m30.5s message"},
		{"text in words", nil, `{"error":{"message":"Please retry in 26 seconds."}}`, "26s message"},
		{"text in minutes in words", nil, `{"error":{"message":"try again in 2 minutes"}}`, "2m0s message"},
		{"text in hours in words", nil, `{"error":{"message":"try again in 1 hour"}}`, "1h0m0s message"},
		{"reset as a Go duration", h("x-ratelimit-reset-requests", "1m2.5s"), "", "1m2.5s x-ratelimit-reset-requests"},
		{"reset as a time", h("anthropic-ratelimit-requests-reset", "2026-03-01T13:00:30+01:00"), "", "30s anthropic-ratelimit-requests-reset"},
		{"the later of two resets", h("x-ratelimit-reset-requests", "1s", "x-ratelimit-reset-tokens", "6s"), "", "6s x-ratelimit-reset-tokens"},
		{"the reset of the spent bucket", h("x-ratelimit-reset-requests", "1s", "x-ratelimit-remaining-requests", "0",
			"x-ratelimit-reset-tokens", "6s", "x-ratelimit-remaining-tokens", "10"), "", "1s x-ratelimit-reset-requests"},
	} {
		if got := hintOf(tt.header, tt.body); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestTheFirstUsableHintCounts(t *testing.T) {
	body := `{"error":{"message":"try again in 5s","details":[{"retryDelay":"4s"}]}}`
	header := h("retry-after-ms", "1000", "retry-after", "2", "x-ratelimit-reset-tokens", "6s")
	for _, step := range []struct{ want, remove string }{
		{"1s retry-after-ms", "retry-after-ms"},
		{"2s retry-after", "retry-after"},
		{"4s retryDelay", ""},
	} {
		if got := hintOf(header, body); got != step.want {
			t.Errorf("got %q, want %q", got, step.want)
		}
		header.Del(step.remove)
	}
	if got, want := hintOf(header, `{"error":{"message":"try again in 5s"}}`), "5s message"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := hintOf(header, ``), "6s x-ratelimit-reset-tokens"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAnUnusableHintIsNone(t *testing.T) {
	for _, tt := range []struct {
		name   string
		header http.Header
		body   string
	}{
		{"words", h("retry-after", "soon"), ""},
		{"negative", h("retry-after", "-5"), ""},
		{"plus sign", h("retry-after", "+5"), ""},
		{"exponent", h("retry-after", "1e3"), ""},
		{"not a number", h("retry-after", "NaN"), ""},
		{"infinity", h("retry-after", "Inf"), ""},
		{"two points", h("retry-after", "1.2.3"), ""},
		{"a list", h("retry-after", "1, 2"), ""},
		{"date in the past", h("retry-after", "Sun, 01 Mar 2026 11:59:59 GMT"), ""},
		{"date of now", h("retry-after", "Sun, 01 Mar 2026 12:00:00 GMT"), ""},
		{"reset in the past", h("anthropic-ratelimit-tokens-reset", "2026-03-01T11:00:00Z"), ""},
		{"negative reset", h("x-ratelimit-reset-tokens", "-6s"), ""},
		{"negative delay", nil, `{"error":{"details":[{"retryDelay":"-1s"}]}}`},
		{"negative seconds", nil, `{"error":{"resets_in_seconds":-1}}`},
		{"epoch zero", nil, `{"error":{"resets_at":0}}`},
		{"a time in milliseconds", nil, `{"error":{"resets_at":1772366460000000}}`},
		{"text without a unit", nil, `{"error":{"message":"try again in 20"}}`},
	} {
		if got := hintOf(tt.header, tt.body); got != "" {
			t.Errorf("%s: got %q, want none", tt.name, got)
		}
	}
}

func TestAnUnusableHintHidesNoUsableOne(t *testing.T) {
	header := h("retry-after", "Sun, 01 Mar 2026 11:00:00 GMT", "x-ratelimit-reset-tokens", "6s")
	if got, want := hintOf(header, ""), "6s x-ratelimit-reset-tokens"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestALongHintIsCutToADay(t *testing.T) {
	for _, tt := range []struct {
		name   string
		header http.Header
		body   string
	}{
		{"seconds", h("retry-after", "86401"), ""},
		{"more seconds than a duration holds", h("retry-after", "99999999999999999999"), ""},
		{"milliseconds", h("retry-after-ms", "999999999999"), ""},
		{"date", h("retry-after", "Mon, 01 Mar 2027 12:00:00 GMT"), ""},
		{"reset time", h("anthropic-ratelimit-tokens-reset", "2026-04-01T00:00:00Z"), ""},
		{"reset duration", h("x-ratelimit-reset-tokens", "200h"), ""},
		{"delay", nil, `{"error":{"details":[{"retryDelay":"360000s"}]}}`},
		{"text", nil, `{"error":{"message":"try again in 99h"}}`},
	} {
		got := Classify(Facts{Status: 429, Header: tt.header, Body: []byte(tt.body)}, corpusTime)
		if got.Wait == nil || got.Wait.Duration != MaxWait {
			t.Errorf("%s: got %+v, want 24h", tt.name, got.Wait)
		}
	}
}

func TestAHintBesideAFailureThatTimeDoesNotMendIsNone(t *testing.T) {
	for _, status := range []int{400, 401, 402, 403, 404, 413} {
		got := Classify(Facts{Status: status, Header: h("retry-after", "5")}, corpusTime)
		if got.Wait != nil {
			t.Errorf("status %d (%s): got %+v", status, got.Kind, got.Wait)
		}
	}
}

func TestResetHeadersSayNothingAboutAServerError(t *testing.T) {
	header := h("x-ratelimit-reset-tokens", "6s", "x-ratelimit-remaining-tokens", "0")
	if got := Classify(Facts{Status: 500, Header: header}, corpusTime); got.Wait != nil {
		t.Errorf("got %+v", got.Wait)
	}
}
