package failure

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// textRule refines an uncertain verdict by words of the message. All of its phrases must occur, whole words each; a
// phrase with bars holds alternatives.
type textRule struct {
	phrases []string
	from    []Kind
	verdict verdict
}

// unclear are the verdicts that most rules may refine. A rate limit is none of them: "too many tokens" in a 429 is a
// rate, not a window.
var unclear = []Kind{InvalidRequest, PermissionDenied, ServerError, Unknown}

// textRules are tried in order. They are data: a new wording is a new row.
var textRules = []textRule{
	{[]string{"credit balance is too low|prepayment credits are depleted|insufficient balance|insufficient credits|out of credits"},
		append([]Kind{RateLimited}, unclear...), verdict{kind: Billing}},
	{[]string{"spend limit|spending limit"},
		append([]Kind{RateLimited}, unclear...), verdict{kind: QuotaExhausted, noHint: true}},
	{[]string{"high demand|overloaded|at capacity|out of capacity"},
		[]Kind{RateLimited, ServerError, Unknown}, verdict{kind: Overloaded}},
	{[]string{"loading model|model is loading|model is currently loading"},
		[]Kind{ServerError, Unknown}, verdict{kind: Overloaded, sub: SubWarming}},
	{[]string{"max_tokens must be at least 1"}, unclear, verdict{kind: ContextLengthExceeded}},
	{[]string{"prompt is too long|prompt too long|input is too long|too many tokens|input token count"},
		unclear, verdict{kind: ContextLengthExceeded}},
	{[]string{"context length|context window|context limit|context size|maximum context|maximum number of tokens",
		"exceed|exceeds|exceeded|exceeding|over|beyond|larger than|longer than|greater than|too long|maximum context length is"},
		unclear, verdict{kind: ContextLengthExceeded}},
	{[]string{"api key", "incorrect|invalid|not valid|missing|expired|revoked"},
		[]Kind{InvalidRequest, Unknown}, verdict{kind: AuthError}},
	{[]string{"safety system|content policy|content management policy|content filter"},
		[]Kind{InvalidRequest, PermissionDenied, Unknown}, verdict{kind: ContentFiltered}},
	{[]string{"no provider|no providers|no available model provider|no endpoints|no allowed providers", "routing requirements|found|available|meets"},
		unclear, verdict{kind: ModelNotFound}},
	{[]string{"model|models", "does not exist|model not found|unknown model|model is not found"},
		[]Kind{InvalidRequest, Unknown}, verdict{kind: ModelNotFound}},
	{[]string{"timed out|timeout"}, []Kind{ServerError, Unknown}, verdict{kind: Timeout}},
	{[]string{"tool_use|tool_result|tool_call_id|tool_call_ids|tool_calls|thought_signature|signature|thinking blocks|reasoning_content"},
		[]Kind{InvalidRequest}, verdict{kind: InvalidRequest, sub: SubHistoryShape}},
}

// refineByText is stage 6, and the last.
func refineByText(v verdict, b errorBody) verdict {
	if b.text == "" || v.firm {
		return v
	}
	text := plainText(b.text)
	if limit, requested, ok := bucketNumbers(text); ok && requested > limit && v.kind != ServerError {
		return verdict{kind: ContextLengthExceeded, sub: SubExceedsRateBucket, limit: limit, requested: requested}
	}
	if b.param == "service_tier" && v.kind == InvalidRequest && containsAny(text, "not allowed|not available|not enabled|no access") {
		return verdict{kind: PermissionDenied}
	}
	from := v.kind
	if from == "" {
		from = Unknown
	}
	for _, rule := range textRules {
		if !slices.Contains(rule.from, from) || !containsAll(text, rule.phrases) {
			continue
		}
		out := rule.verdict
		if out.kind == ContextLengthExceeded {
			out.limit, out.requested = overflowNumbers(b)
			if limit, input, ok := reservationNumbers(text); ok {
				out.limit, out.requested = limit, input
				if input < limit {
					out.sub = SubOutputReservation
				}
			}
		}
		return out
	}
	return v
}

// maxText bounds what is matched; the reasons stand at a message's beginning.
const maxText = 4096

// plainText lowers the case, drops quotes and makes one space of any white space.
func plainText(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
	}
	s = strings.NewReplacer("`", "", `"`, "", "'", "", "\u2019", "").Replace(strings.ToLower(s))
	return strings.Join(strings.Fields(s), " ")
}

func containsAll(text string, phrases []string) bool {
	for _, alternatives := range phrases {
		if !containsAny(text, alternatives) {
			return false
		}
	}
	return true
}

func containsAny(text, alternatives string) bool {
	for phrase := range strings.SplitSeq(alternatives, "|") {
		if containsWords(text, phrase) {
			return true
		}
	}
	return false
}

// containsWords tells whether the phrase occurs with no letter or digit next to it.
func containsWords(text, phrase string) bool {
	for from := 0; ; {
		i := strings.Index(text[from:], phrase)
		if i < 0 {
			return false
		}
		start, end := from+i, from+i+len(phrase)
		if (start == 0 || !isWordByte(text[start-1])) && (end == len(text) || !isWordByte(text[end])) {
			return true
		}
		from = start + 1
	}
}

func isWordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' || c >= 0x80
}

var (
	bucketPattern      = regexp.MustCompile(`request too large\b.*\blimit:? (\d{1,12}),? requested:? (\d{1,12})\b`)
	reservationPattern = regexp.MustCompile(`\b(\d{1,12}) \+ (\d{1,12}) > (\d{1,12})\b`)
	promptPattern      = regexp.MustCompile(`\b(\d{1,12}) tokens > (\d{1,12}) maximum\b`)
	maximumPattern     = regexp.MustCompile(`maximum context length is (\d{1,12}) tokens\b.*?\b(\d{1,12}) tokens\b`)
)

// bucketNumbers reads "Request too large … Limit N, Requested M".
func bucketNumbers(text string) (limit, requested int64, ok bool) {
	m := bucketPattern.FindStringSubmatch(text)
	if m == nil {
		return 0, 0, false
	}
	return decimal(m[1]), decimal(m[2]), true
}

// reservationNumbers reads "input length and max_tokens exceed context limit: A + B > C" as the limit C and the input A.
func reservationNumbers(text string) (limit, input int64, ok bool) {
	m := reservationPattern.FindStringSubmatch(text)
	if m == nil {
		return 0, 0, false
	}
	return decimal(m[3]), decimal(m[1]), true
}

// overflowNumbers finds the window and the request's size, in fields first, then in text; zeros if they are not told.
func overflowNumbers(b errorBody) (limit, requested int64) {
	if b.contextTokens > 0 || b.promptTokens > 0 {
		return b.contextTokens, b.promptTokens
	}
	text := plainText(b.text)
	if m := promptPattern.FindStringSubmatch(text); m != nil {
		return decimal(m[2]), decimal(m[1])
	}
	if m := maximumPattern.FindStringSubmatch(text); m != nil {
		return decimal(m[1]), decimal(m[2])
	}
	return 0, 0
}

func decimal(digits string) int64 {
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
