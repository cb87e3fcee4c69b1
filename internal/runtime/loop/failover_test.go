package loop_test

import (
	"strings"
	"testing"
	"time"

	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/ladder"
	"belay.dev/belay/internal/runtime/ledger/record"
)

const answers = `{steps: [{answer: "fine", times: Forever}]}`

// down is a leg that answers everything with one status.
func down(status, rest string) string {
	return `{steps: [{status: ` + status + `, times: Forever` + rest + `}]}`
}

func body(s string) string { return `, body: '` + s + `'` }

func TestEachFailureCostsExactlyTheRequestsThatItMay(t *testing.T) {
	for name, test := range map[string]struct {
		a, b     string
		reason   string
		requests string
		waited   time.Duration
	}{
		"a dead leg is asked three times, then its breaker opens": {
			down("503", ""), answers, "Completed", "a=3 b=1", -1},
		"a spent quota once": {
			down("429", body(`{"error":{"type":"insufficient_quota","code":"insufficient_quota","message":"x"}}`)), answers, "Completed", "a=1 b=1", 0},
		"a rejected credential once": {
			down("401", body(`{"error":{"type":"invalid_request_error","code":"invalid_api_key","message":"x"}}`)), answers, "Completed", "a=1 b=1", 0},
		"an unknown model once": {
			down("404", body(`{"error":{"type":"invalid_request_error","code":"model_not_found","message":"x"}}`)), answers, "Completed", "a=1 b=1", 0},
		"a bad request once, and no other leg": {
			down("400", body(`{"error":{"type":"invalid_request_error","code":null,"message":"x"}}`)), answers, "InvalidRequest", "a=1 b=0", 0},
		"a short wait with another leg three times": {
			down("429", `, headers: {Retry-After: "2"}`+body(`{"error":{"type":"tokens","code":"rate_limit_exceeded","message":"x"}}`)), answers, "Completed", "a=3 b=1", 4 * time.Second},
		"a wait of hours once": {
			down("429", `, headers: {Retry-After: "9000"}`+body(`{"error":{"type":"tokens","code":"rate_limit_exceeded","message":"x"}}`)), answers, "Completed", "a=1 b=1", 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, `legs: {a: `+test.a+`, b: `+test.b+`}`, "a", "b")
			end := s.finish()
			if end.Reason != test.reason {
				t.Errorf("ended as %s (%s), want %s", end.Reason, end.Message, test.reason)
			}
			s.expectRequests(test.requests)
			var waited time.Duration
			for _, w := range s.clock.waits {
				waited += w
			}
			if test.waited >= 0 && waited != test.waited {
				t.Errorf("waited %s, want %s", waited, test.waited)
			}
			if end.Reason == "InvalidRequest" && !strings.Contains(end.Message, `"a"`) && !strings.Contains(end.Message, "leg a") {
				t.Errorf("the message does not name the leg: %s", end.Message)
			}
		})
	}
}

func TestARateLimitWithoutAnotherLegIsWaitedOut(t *testing.T) {
	s := newScene(t, `legs: {a: {steps: [{status: 429, headers: {Retry-After: "2"}}, {answer: "fine"}]}}`, "a")
	if end := s.finish(); end.Reason != "Completed" || end.Text != "fine" {
		t.Errorf("ended as %s with %q: %s", end.Reason, end.Text, end.Message)
	}
	s.expectRequests("a=2")
	if len(s.clock.waits) != 1 || s.clock.waits[0] != 2*time.Second {
		t.Errorf("waits = %v, want one of 2 s", s.clock.waits)
	}
}

func TestALongWaitCoolsTheRouteForThatLong(t *testing.T) {
	s := newScene(t, `legs: {a: {steps: [{status: 429, headers: {Retry-After: "9000"}, times: Forever}]}, b: `+answers+`}`, "a", "b")
	s.finish()
	changes := find[record.BreakerChanged](s)
	if len(changes) != 1 || changes[0].To != "Cooling" || changes[0].Until == nil {
		t.Fatalf("breaker changes = %+v, want one to Cooling", changes)
	}
	if left := changes[0].Until.Sub(s.clock.Now()); left != 9000*time.Second {
		t.Errorf("the route cools for %s, want 9000 s", left)
	}
}

func TestWhatPolicyForbidsIsNotAskedAtAll(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*scene)
		reason string
		says   []string
	}{
		"a leg of a lower class": {
			func(s *scene) { s.contract.Routing.SecurityClass = "Confidential" }, "PolicyConflict", []string{`"a"`, "Confidential", "routing.legs"}},
		"a metered leg": {
			func(s *scene) { s.contract.Routing.Metered = "" }, "PolicyConflict", []string{`"a"`, "routing.metered: Allow"}},
		"a selected leg that does not exist": {
			func(s *scene) { s.contract.Routing.Legs = []string{"z"} }, "PolicyConflict", []string{`"z"`}},
		"a leg without a price under a cost limit": {
			func(s *scene) { s.ladder.Legs[0].Price, s.contract.Limits.MaxCostMicroUSD = nil, 1_000_000 }, "NoRouteAllowed", []string{"price"}},
		"a drained leg": {
			func(s *scene) { s.ladder.Legs[0].State = ladder.Drained }, "NoRouteAllowed", []string{"drained"}},
		"a leg without its credential": {
			func(s *scene) { s.ladder.Legs[0].Credential = ladder.CredentialMissing }, "CredentialInvalid", []string{`key "a" of Secret "keys"`}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, `legs: {a: `+answers+`}`, "a")
			test.change(s)
			end := s.finish()
			if end.Reason != test.reason {
				t.Errorf("ended as %s (%s), want %s", end.Reason, end.Message, test.reason)
			}
			for _, w := range test.says {
				if !strings.Contains(end.Message, w) {
					t.Errorf("message %q does not say %q", end.Message, w)
				}
			}
			s.expectRequests("a=0")
		})
	}
}

func TestARunWhoseRoutesAreAllOpenParksAndIsNotSent(t *testing.T) {
	s := newScene(t, `legs: {a: `+down("503", "")+`}`, "a")
	s.ladder.Waits.ParkAfter = time.Second
	end, err := s.run()
	if err != nil {
		t.Fatal(err)
	}
	if end.Parked == nil || end.Parked.Reason != "RoutesUnavailable" || len(end.Parked.Routes) != 1 {
		t.Fatalf("end = %+v, want a park for the route", end)
	}
	if left := end.Parked.Until.Sub(s.clock.Now()); left != 30*time.Second {
		t.Errorf("parked for %s, want the cooldown of 30 s", left)
	}
	s.expectRequests("a=3")

	if end, err = s.run(); err != nil || end.Parked == nil {
		t.Fatalf("a new epoch before the time: %+v, %v; want parked again", end, err)
	}
	s.expectRequests("a=3")

	s.ladder.Waits.OnAllTripped = ladder.FailOnAllTripped
	last := s.finish()
	if last.Reason != "AllRoutesTripped" || !strings.Contains(last.Message, "a") || !strings.Contains(last.Message, "ServerError") {
		t.Errorf("ended as %s: %s; want AllRoutesTripped that names leg and kind", last.Reason, last.Message)
	}
	s.expectRequests("a=3")
}

func TestAParkedRunGoesOnWhenItsRouteMayBeAskedAgain(t *testing.T) {
	s := newScene(t, `legs: {a: {steps: [{status: 503, times: 3}, {answer: "back"}]}}`, "a")
	s.ladder.Waits.ParkAfter = time.Second
	if end, err := s.run(); err != nil || end.Parked == nil {
		t.Fatalf("%+v, %v; want parked", end, err)
	}
	s.clock.Step(30 * time.Second)
	if end := s.finish(); end.Text != "back" {
		t.Errorf("ended as %s with %q", end.Reason, end.Text)
	}
	s.expectRequests("a=4")
}

func TestABrokenStreamLeavesNothingInTheAnswer(t *testing.T) {
	for name, step := range map[string]string{
		"a clean end after two events":         `{answer: "BROKEN BROKEN BROKEN", cutAfterEvents: 2}`,
		"an overload after deltas":             `{answer: "BROKEN BROKEN BROKEN", cutAfterEvents: 3, inBandError: {type: overloaded_error, message: x}}`,
		"a reset":                              `{reset: {}}`,
		"an HTML page in a 200":                `{status: 200, contentType: text/html, body: "<html>BROKEN</html>"}`,
		"half a tool call, then a clean end":   `{calls: [{name: act, arguments: {count: 1}}], cutAfterEvents: 3}`,
		"an event that is not JSON":            `{rawEvents: ["data: {BROKEN\n\n"]}`,
		"JSON where a stream was asked for":    `{status: 200, contentType: application/json, body: '{"BROKEN": true}'}`,
		"a stream of nothing but its own end":  `{rawEvents: ["data: [DONE]\n\n"]}`,
		"an answer without text and calls":     `{answer: ""}`,
		"a 500 with a page of HTML for a body": `{status: 500, contentType: text/html, body: "<html>BROKEN</html>"}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, `legs: {a: {steps: [`+step+`, {answer: "whole"}]}, b: `+answers+`}`, "a", "b")
			end := s.finish()
			if end.Reason != "Completed" || strings.Contains(end.Text, "BROKEN") {
				t.Errorf("ended as %s (%s) with %q", end.Reason, end.Message, end.Text)
			}
			if len(s.workspace.dispatched) != 0 {
				t.Errorf("a call of a broken answer was dispatched: %v", s.workspace.dispatched)
			}
			receipts := find[record.LLMAttempt](s)
			if len(receipts) < 2 || receipts[0].Failure == nil || receipts[0].Failure.Kind == failure.Cancelled {
				t.Errorf("receipts = %+v, want a failed one first", receipts)
			}
		})
	}
}

func TestTheReceiptsAddUpToWhatTheProvidersBilled(t *testing.T) {
	s := newScene(t, `legs: {a: {steps: [{answer: "12345678", usage: {input: 100, output: 10}}]}}`, "a")
	s.finish()
	end, err := s.run() // the run has ended: its books are read from the ledger
	if err != nil {
		t.Fatal(err)
	}
	// 100 tokens at 1 USD and 10 at 2 USD a million: 120 micro-USD.
	if total := end.State.Account.Total; total.CostMicroUSD != 120 || total.Usage.InputTokens != 100 || total.Usage.OutputTokens != 10 || total.Usage.Estimated {
		t.Errorf("total = %+v, want 100 + 10 tokens for 120 micro-USD", total)
	}
}
