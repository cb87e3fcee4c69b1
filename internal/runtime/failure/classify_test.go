package failure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

func TestOurOwnEndOutranksEverythingTheProviderSaid(t *testing.T) {
	quota := []byte(`{"error":{"code":"insufficient_quota"}}`)
	for _, tt := range []struct {
		name string
		err  error
		want Kind
	}{
		{"cancellation", context.Canceled, Cancelled},
		{"the run's deadline", context.DeadlineExceeded, Cancelled},
		{"a wrapped cancellation", fmt.Errorf("read body: %w", context.Canceled), Cancelled},
		{"a shutdown", Causef(Cancelled, "the runner is asked to stop"), Cancelled},
		{"a stall", Causef(StreamStalled, "no byte for 2m0s"), StreamStalled},
		{"the attempt's limit", Causef(Timeout, "no byte of an answer within 2m0s"), Timeout},
		{"the connect timer", Causef(Network, "no connection within 10s"), Network},
	} {
		got := Classify(Facts{Err: tt.err, InBand: quota, Status: 429, Body: quota}, corpusTime)
		if got.Kind != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got.Kind, tt.want)
		}
	}
}

func TestAnErrorInTheStreamOutranksTheBreakThatFollowedIt(t *testing.T) {
	got := Classify(Facts{Err: io.ErrUnexpectedEOF, Status: 200, InBand: []byte(`{"error":{"type":"overloaded_error"}}`)}, corpusTime)
	if got.Kind != Overloaded {
		t.Errorf("got %s, want Overloaded", got.Kind)
	}
}

func TestAStreamsOwnFindingIsTaken(t *testing.T) {
	for _, kind := range []Kind{StreamTruncated, StreamMalformed, EmptyResponse, ContentFiltered, ContextLengthExceeded, ServerError} {
		cause := &Cause{Kind: kind, Sub: SubWarming, Message: "what we saw"}
		got := Classify(Facts{Err: fmt.Errorf("decode: %w", cause), Status: 200}, corpusTime)
		if got.Kind != kind || got.Sub != SubWarming || got.Message != "what we saw" {
			t.Errorf("%s: got %+v", kind, got)
		}
	}
}

func TestABrokenErrorBodyLeavesTheStatus(t *testing.T) {
	got := Classify(Facts{Err: io.ErrUnexpectedEOF, Status: 429, Body: []byte(`{"error":{"type":"rate_lim`)}, corpusTime)
	if got.Kind != RateLimited {
		t.Errorf("got %s, want RateLimited", got.Kind)
	}
}

func TestAStatusAloneHasAKind(t *testing.T) {
	for status, want := range map[int]Kind{
		301: Unknown, 307: Unknown, 308: Unknown,
		400: InvalidRequest, 401: AuthError, 402: Billing, 403: PermissionDenied, 404: ModelNotFound, 405: InvalidRequest,
		408: Timeout, 409: ServerError, 410: ModelNotFound, 413: ContextLengthExceeded, 415: InvalidRequest, 418: Unknown,
		422: InvalidRequest, 424: ServerError, 429: RateLimited, 451: PermissionDenied, 499: Unknown,
		500: ServerError, 501: ServerError, 502: ServerError, 503: ServerError, 504: Timeout, 520: ServerError, 524: ServerError,
		529: Overloaded, 599: ServerError,
	} {
		if got := Classify(Facts{Status: status}, corpusTime); got.Kind != want {
			t.Errorf("status %d: got %s, want %s", status, got.Kind, want)
		}
	}
}

func TestARedirectNamesTheSettingToCorrect(t *testing.T) {
	got := Classify(Facts{Status: 307, Header: h("location", "https://elsewhere.example/")}, corpusTime)
	if got.Sub != SubConfiguration || !strings.Contains(got.Message, "baseURL") || strings.Contains(got.Message, "elsewhere") {
		t.Errorf("got %+v", got)
	}
}

func TestAGatewaysPageIsNotTheAPIsVerdictOnTheRequest(t *testing.T) {
	got := Classify(Facts{Status: 400, Body: []byte("<html>400 Bad Request: context length exceeded</html>")}, corpusTime)
	if got.Kind != Unknown {
		t.Errorf("got %s, want Unknown", got.Kind)
	}
}

func TestACodeOutranksTheStatusAroundIt(t *testing.T) {
	for _, tt := range []struct {
		status int
		body   string
		want   Kind
	}{
		{500, `{"error":{"code":"context_length_exceeded"}}`, ContextLengthExceeded},
		{500, `{"error":{"code":"429","message":"x"}}`, RateLimited},
		{400, `{"error":{"type":"overloaded_error"}}`, Overloaded},
		{403, `{"error":{"code":"insufficient_quota"}}`, QuotaExhausted},
		{404, `{"error":{"type":"invalid_request_error","code":"model_not_found"}}`, ModelNotFound},
		{400, `{"error":{"type":"invalid_request_error","code":"model_not_found"}}`, ModelNotFound},
		{401, `{"error":{"type":"invalid_request_error","code":null}}`, AuthError},
		{500, `{"error":{"type":"rate_limit_error"}}`, RateLimited},
		{400, `{"error":{"error":{"type":"authentication_error"}}}`, AuthError},
		{400, `{"error":{"metadata":{"raw":"{\"error\":{\"code\":\"context_length_exceeded\"}}"}}}`, ContextLengthExceeded},
	} {
		if got := Classify(Facts{Status: tt.status, Body: []byte(tt.body)}, corpusTime); got.Kind != tt.want {
			t.Errorf("%d %s: got %s, want %s", tt.status, tt.body, got.Kind, tt.want)
		}
	}
}

func TestWordsAreMatchedWholeAndOnlyWhereTheRestIsOpen(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		status     int
		want       Kind
		sub        Sub
	}{
		{"a rate in tokens is no overflow", `{"message":"too many tokens, context length exceeded"}`, 429, RateLimited, ""},
		{"a part of a word is no word", `{"error":{"message":"multimodel does not exists, overcontext lengthy exceededly"}}`, 400, InvalidRequest, ""},
		{"a schema error that names a model is no missing model", `{"error":{"message":"Unknown parameter: model_kwargs"}}`, 400, InvalidRequest, ""},
		{"a missing model by text", `{"error":{"message":"The model 'gpt-x' does not exist or you do not have access to it."}}`, 400, ModelNotFound, ""},
		{"a firm code is not refined", `{"error":{"type":"authentication_error","message":"context length exceeded"}}`, 401, AuthError, ""},
		{"a server that is loading", `{"error":{"message":"Loading model","code":503}}`, 503, Overloaded, SubWarming},
		{"an unanswered call", `{"error":{"type":"invalid_request_error","message":"tool_use ids were found without tool_result blocks immediately after"}}`, 400, InvalidRequest, SubHistoryShape},
		{"a foreign signature", `{"error":{"type":"invalid_request_error","message":"messages.1.content.0: Invalid ` + "`signature`" + ` in thinking block"}}`, 400, InvalidRequest, SubHistoryShape},
		{"a window that is merely named", `{"error":{"message":"context length must be an integer"}}`, 400, InvalidRequest, ""},
		{"a bucket that is large enough is a rate", `{"error":{"message":"Request too large: Limit 10000, Requested 900"}}`, 429, RateLimited, ""},
	} {
		got := Classify(Facts{Status: tt.status, Body: []byte(tt.body)}, corpusTime)
		if got.Kind != tt.want || got.Sub != tt.sub {
			t.Errorf("%s: got %s %q, want %s %q", tt.name, got.Kind, got.Sub, tt.want, tt.sub)
		}
	}
}

func TestNothingKnownIsUnknown(t *testing.T) {
	for _, facts := range []Facts{{}, {Status: 200}, {Status: 418, Body: []byte("teapot")}} {
		if got := Classify(facts, corpusTime); got.Kind != Unknown || got.Message == "" {
			t.Errorf("%+v: got %+v", facts, got)
		}
	}
}

func TestOnlyErrorDocumentsReportErrors(t *testing.T) {
	for in, want := range map[string]bool{
		`{"error":{"message":"x"}}`:                   true,
		`{"error":"x"}`:                               true,
		`[{"error":{"code":503}}]`:                    true,
		`{"object":"error","message":"x"}`:            true,
		`{"type":"error"}`:                            true,
		`{"error":null,"choices":[]}`:                 false,
		`{"error":""}`:                                false,
		`{"object":"chat.completion","choices":[{}]}`: false,
		`[]`:        false,
		`"error"`:   false,
		`{"error":`: false,
		``:          false,
	} {
		if got := ReportsError([]byte(in)); got != want {
			t.Errorf("%s: got %v, want %v", in, got, want)
		}
	}
}

func TestIdentifiersAreBounded(t *testing.T) {
	for in, want := range map[string]string{
		"rate_limit_exceeded":     "rate_limit_exceeded",
		"req-1.2:3":               "req-1.2:3",
		"two words":               "",
		"line\nbreak":             "",
		"cut/here":                "cut",
		"ä":                       "",
		strings.Repeat("a", 1000): strings.Repeat("a", 64),
	} {
		if got := CleanCode(in); got != want {
			t.Errorf("%.20q: got %q, want %q", in, got, want)
		}
	}
	if got, want := CleanMediaType("text/html; x"), "text/"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestACauseIsAnErrorThatNamesItsKind(t *testing.T) {
	var cause *Cause
	err := fmt.Errorf("attempt: %w", Causef(Timeout, "no byte within %d s", 3))
	if !errors.As(err, &cause) || cause.Kind != Timeout || err.Error() != "attempt: Timeout: no byte within 3 s" {
		t.Errorf("got %v", err)
	}
}

func FuzzClassify(f *testing.F) {
	for _, r := range corpus() {
		f.Add(r.status, r.body, r.inBand, r.header.Get("retry-after"), r.header.Get("x-ratelimit-reset-tokens"))
	}
	known := map[Kind]bool{}
	for _, k := range Kinds() {
		known[k] = true
	}
	f.Fuzz(func(t *testing.T, status int, body, inBand, retryAfter, reset string) {
		facts := Facts{Status: status, Header: h("retry-after", retryAfter, "x-ratelimit-reset-tokens", reset), Body: []byte(body)}
		if inBand != "" {
			facts.InBand = []byte(inBand)
		}
		got := Classify(facts, corpusTime)
		if !known[got.Kind] || got.Message == "" || got.Kind == Cancelled {
			t.Errorf("got %+v", got)
		}
		if got.Wait != nil && (got.Wait.Duration < 0 || got.Wait.Duration > MaxWait) {
			t.Errorf("wait %s", got.Wait.Duration)
		}
		if len(got.Code) > 64 || strings.Trim(got.Code, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:-") != "" {
			t.Errorf("code %q", got.Code)
		}
		if got.Limit < 0 || got.Requested < 0 {
			t.Errorf("limit %d, requested %d", got.Limit, got.Requested)
		}
	})
}
