package chaos

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTextIsSplitInFrontOfWords(t *testing.T) {
	for _, c := range []struct {
		text string
		n    int
		want []string
	}{
		{"", 0, nil},
		{"one", 0, []string{"one"}},
		{"one two\n\n three ", 0, []string{"one", " two", "\n\n three", " "}},
		{"  x", 0, []string{"  x"}},
		{"grün", 2, []string{"gr", "ün"}},
		{"abcde", 2, []string{"ab", "cd", "e"}},
	} {
		if diff := cmp.Diff(c.want, words(c.text, c.n)); diff != "" {
			t.Errorf("words(%q, %d) (-want +got):\n%s", c.text, c.n, diff)
		}
	}
}

func FuzzSplitTextJoinsToItself(f *testing.F) {
	f.Add("one two\n three", 0)
	f.Add("\xffgrün 😀", 1)
	f.Fuzz(func(t *testing.T, text string, n int) {
		if got := strings.Join(words(text, n), ""); got != text {
			t.Errorf("split and joined, %q becomes %q", text, got)
		}
	})
}

func TestLoneSurrogatesAreFound(t *testing.T) {
	for text, want := range map[string]int{
		`"x"`:                    -1,
		`"\ud83d\ude00"`:         -1,
		`"\\ud83d"`:              -1,
		`"\\\ud83d"`:             3,
		`"\ud83d"`:               1,
		`"\ud83dx\ude00"`:        1,
		`"\ude00"`:               1,
		`"\ud83d\ude00\ud83d\n"`: 13,
		`"\u12`:                  -1,
		`"\uZZZZ\uD83D`:          7,
	} {
		if got := loneSurrogate([]byte(text)); got != want {
			t.Errorf("loneSurrogate(%s) = %d, want %d", text, got, want)
		}
	}
}

// Any body is answered, refused or accepted, and never makes the rules panic.
func FuzzRequestBodies(f *testing.F) {
	f.Add(`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],"tools":[{"type":"function","function":{"name":"s","parameters":{"type":"object"}}}]}`)
	f.Add(`{"messages":[{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"s","arguments":"{}"}}]},{"role":"tool","tool_call_id":"a","content":""}]}`)
	f.Add(`{"thinking":{"type":"enabled"},"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"x","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":""}}]}]},{"role":"assistant","content":[{"type":"tool_use","input":null}]}]}`)
	f.Add(`{"messages":[null,[],{"content":[null]}],"tools":[null],"tool_choice":[],"system":[1],"stream_options":3}`)
	f.Fuzz(func(t *testing.T, body string) {
		object, err := parseObject([]byte(body))
		if err != nil {
			return
		}
		for _, d := range []dialect{openAIChat{}, anthropicMessages{}} {
			_, rejected := d.check(object, checkContext{name: "a", mint: newMint(1), minted: newMintedTurns()})
			for _, r := range rejected {
				if r.status < 400 || r.message == "" {
					t.Errorf("%T rejects with %+v", d, r)
				}
				d.errorBody(r, "req_1")
			}
		}
	})
}

func TestMintedTurnsForgetTheOldest(t *testing.T) {
	m := newMintedTurns()
	for _, id := range []string{"first", "second"} {
		m.remember(turn{thinking: "x", signature: "s", calls: []turnCall{{id: id}}})
	}
	for i := range mintedTurnsLimit - 1 {
		m.remember(turn{thinking: "x", calls: []turnCall{{id: newMint(1).id("", 12, "a", uint64(i), 0)}}})
	}
	if m.of("first") != nil || m.of("second") == nil || len(m.byCall) != mintedTurnsLimit {
		t.Errorf("of %d turns the first is %v and the second %v", len(m.byCall), m.of("first"), m.of("second"))
	}
}

func TestTheJournalForgetsOldRequestsAndKeepsTheBill(t *testing.T) {
	j := newJournal()
	first := j.open(Request{Leg: "a"})
	for range journalLimit {
		j.settle(j.open(Request{Leg: "a"}), OutcomeCompleted, Usage{Input: 1, Output: 2}, 1)
	}
	j.settle(first, OutcomeCut, Usage{Input: 5}, 1)
	j.settle(first, OutcomeClientGone, Usage{Input: 7}, 1)
	list := j.list()
	if list[0].Sequence != journalLimit/10+1 || list[len(list)-1].Sequence != journalLimit+1 {
		t.Errorf("the journal holds %d to %d", list[0].Sequence, list[len(list)-1].Sequence)
	}
	want := Bill{Requests: journalLimit + 1, Completed: journalLimit, Usage: Usage{Input: journalLimit + 7, Output: 2 * journalLimit}, Discarded: Usage{Input: 7}}
	if diff := cmp.Diff(want, j.bills()["a"]); diff != "" {
		t.Errorf("bill (-want +got):\n%s", diff)
	}
	late := j.open(Request{Leg: "a"})
	j.reset()
	j.settle(late, OutcomeCompleted, Usage{Input: 1}, 1)
	if len(j.list()) != 0 || len(j.bills()) != 0 {
		t.Errorf("after a reset the journal holds %v and %v", j.list(), j.bills())
	}
}

func TestEveryStatusHasAnErrorTypeInEachDialect(t *testing.T) {
	for _, c := range []struct {
		status            int
		openAI, anthropic string
	}{
		{400, "invalid_request_error", "invalid_request_error"},
		{401, "invalid_request_error", "authentication_error"},
		{402, "insufficient_quota", "billing_error"},
		{403, "invalid_request_error", "permission_error"},
		{404, "invalid_request_error", "not_found_error"},
		{409, "invalid_request_error", "conflict_error"},
		{413, "invalid_request_error", "request_too_large"},
		{429, "rate_limit_error", "rate_limit_error"},
		{500, "server_error", "api_error"},
		{503, "server_error", "api_error"},
		{504, "server_error", "timeout_error"},
		{529, "server_error", "overloaded_error"},
	} {
		kind := kindOfStatus(c.status)
		if o, a := openAIErrorType(kind), anthropicErrorType(kind); o != c.openAI || a != c.anthropic {
			t.Errorf("status %d is %s and %s; want %s and %s", c.status, o, a, c.openAI, c.anthropic)
		}
	}
}
