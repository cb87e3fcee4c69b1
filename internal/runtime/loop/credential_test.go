package loop_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"belay.dev/belay/internal/runtime/ladder"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/loop"
	"belay.dev/belay/internal/runtime/provider"
)

// keyed is a run of three turns over two legs, the first of which accepts the key "good" only.
const keyed = `legs: {
  a: {apiKey: good, steps: [{answer: "from a", times: Forever}]},
  b: {advance: PerConversation, steps: [{calls: [{name: look, arguments: {count: 1}}]}, {calls: [{name: look, arguments: {count: 2}}]}, {answer: "from b"}]}}`

func keyedScene(t *testing.T, onFailure ladder.OnCredentialFailure) *scene {
	t.Helper()
	s := newScene(t, keyed, "a", "b")
	s.secret("a", "sk-bad-key-of-a")
	s.ladder.Policy.OnCredentialFailure = onFailure
	return s
}

func (s *scene) secret(leg, value string) {
	s.target(leg, func(t *provider.Target) { t.Secret = value })
}

func TestARejectedCredentialIsNotSentAgainInLaterTurns(t *testing.T) {
	s := keyedScene(t, ladder.AdvanceOnCredentialFailure)
	s.expectEnd("Completed", "from b")
	s.expectRequests("a=1 b=3")
	for _, plan := range find[record.TurnPlan](s)[1:] {
		if len(plan.Skipped) != 1 || plan.Skipped[0] != (record.Skipped{Leg: "a", Reason: "CredentialInvalid"}) {
			t.Errorf("plan of turn %d skips %+v, want a for its credential", plan.Turn, plan.Skipped)
		}
	}
	told := 0
	for _, d := range find[record.Diagnostic](s) {
		if d.Reason == "CredentialInvalid" {
			told++
		}
	}
	if told != 1 {
		t.Errorf("%d diagnostics of the rejected credential, want 1", told)
	}
}

func TestAKilledEpochRemembersTheRejectedCredential(t *testing.T) {
	whole := keyedScene(t, ladder.AdvanceOnCredentialFailure)
	whole.expectEnd("Completed", "from b")
	records := lines(t, whole.dir)
	for n := 1; n < len(records); n++ {
		s := keyedScene(t, ladder.AdvanceOnCredentialFailure)
		s.plant(records[:n])
		s.expectEnd("Completed", "from b")
		want := 1
		if bytes.Contains(bytes.Join(records[:n], nil), []byte(`"kind":"AuthError"`)) {
			want = 0
		}
		if got := s.requests("a"); got != want {
			t.Errorf("resumed after record %d of %d: %d requests with the rejected key, want %d", n, len(records), got, want)
		}
	}
}

func TestAChangedCredentialIsSentInTheNextTurn(t *testing.T) {
	s := keyedScene(t, ladder.AdvanceOnCredentialFailure)
	s.current = func(n int, l *loop.Ladder) {
		if n < 4 { // the start, the plan of the first turn, and the look after the rejection
			return
		}
		target := l.Targets["a"]
		target.Secret = "good"
		l.Targets["a"] = target
	}
	s.expectEnd("Completed", "from a")
	s.expectRequests("a=2 b=1")
}

func TestACredentialThatChangedMeanwhileIsReadAgainInTheTurn(t *testing.T) {
	for _, policy := range []ladder.OnCredentialFailure{ladder.AdvanceOnCredentialFailure, ladder.ParkOnCredentialFailure, ladder.FailOnCredentialFailure} {
		s := keyedScene(t, policy)
		s.current = func(n int, l *loop.Ladder) {
			if n < 3 {
				return
			}
			target := l.Targets["a"]
			target.Secret = "good\n" // as an editor leaves it
			l.Targets["a"] = target
		}
		s.expectEnd("Completed", "from a")
		s.expectRequests("a=2 b=0")
	}
}

func TestParkWaitsForTheCredentialAndAsksNoOtherLeg(t *testing.T) {
	s := keyedScene(t, ladder.ParkOnCredentialFailure)
	for i, wait := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute} {
		end, err := s.run()
		if err != nil || end.Parked == nil || end.Parked.Reason != "CredentialInvalid" {
			t.Fatalf("epoch %d: %+v, %v; want parked for the credential", i+1, end, err)
		}
		if left := end.Parked.Until.Sub(s.clock.Now()); left != wait {
			t.Errorf("epoch %d looks again after %s, want %s", i+1, left, wait)
		}
		for _, says := range []string{`"a"`, `key "a" of Secret "keys"`, "changed"} {
			if !strings.Contains(end.Parked.Message, says) {
				t.Errorf("%q does not say %q", end.Parked.Message, says)
			}
		}
		s.expectRequests("a=1 b=0")
	}
	s.secret("a", "sk-also-bad")
	if end, err := s.run(); err != nil || end.Parked == nil {
		t.Fatalf("with another bad key: %+v, %v; want parked", end, err)
	}
	s.expectRequests("a=2 b=0")
	s.secret("a", "good")
	s.expectEnd("Completed", "from a")
	s.expectRequests("a=3 b=0")
}

func TestAParkedRunMayLookEveryHourForever(t *testing.T) {
	s := keyedScene(t, ladder.ParkOnCredentialFailure)
	var last time.Duration
	for range 15 {
		end, err := s.run()
		if err != nil || end.Parked == nil {
			t.Fatalf("%+v, %v; want parked", end, err)
		}
		last = end.Parked.Until.Sub(s.clock.Now())
	}
	if last != time.Hour {
		t.Errorf("the 15th look is after %s, want an hour", last)
	}
}

func TestFailEndsTheRunAtARejectedCredential(t *testing.T) {
	s := keyedScene(t, ladder.FailOnCredentialFailure)
	end := s.finish()
	if end.Reason != "CredentialInvalid" || !strings.Contains(end.Message, "onCredentialFailure is Fail") {
		t.Errorf("ended as %s: %s", end.Reason, end.Message)
	}
	s.expectRequests("a=1 b=0")
}

func TestARejectedCredentialOfALaterLegHoldsNothingUp(t *testing.T) {
	s := newScene(t, `legs: {
	  a: {steps: [{status: 503, times: 3}, {calls: [{name: look, arguments: {}}]}, {answer: "fine"}]},
	  b: {apiKey: good, steps: []}, c: {steps: [{calls: [{name: look, arguments: {}}]}]}}`, "a", "b", "c")
	s.workspace.answer = s.rest(31 * time.Second)
	s.current = func(n int, l *loop.Ladder) {
		if n > 3 { // from the second turn on; in the first, the leg is passed over
			l.Policy.OnCredentialFailure = ladder.ParkOnCredentialFailure
		}
	}
	s.expectEnd("Completed", "fine")
	s.expectRequests("a=5 b=1 c=1")
}

func TestEveryCredentialRejectedEndsTheRun(t *testing.T) {
	s := newScene(t, `legs: {a: {apiKey: good, steps: []}, b: {apiKey: good, steps: []}}`, "a", "b")
	end := s.finish()
	if end.Reason != "CredentialInvalid" || !strings.Contains(end.Message, `"a"`) || !strings.Contains(end.Message, `"b"`) {
		t.Errorf("ended as %s: %s", end.Reason, end.Message)
	}
	s.expectRequests("a=1 b=1")
}

func TestTheLedgerTellsNothingOfACredential(t *testing.T) {
	s := keyedScene(t, ladder.AdvanceOnCredentialFailure)
	s.finish()
	data, err := os.ReadFile(filepath.Join(s.dir, "ledger.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("sk-bad-key-of-a"))
	for _, secret := range []string{"sk-bad-key-of-a", hex.EncodeToString(sum[:])[:16]} {
		if bytes.Contains(data, []byte(secret)) {
			t.Errorf("the ledger holds %s", secret)
		}
	}
}

func TestWhiteSpaceAroundAKeyMakesNoOtherKey(t *testing.T) {
	s := keyedScene(t, ladder.AdvanceOnCredentialFailure)
	s.current = func(n int, l *loop.Ladder) {
		if n < 3 {
			return
		}
		target := l.Targets["a"]
		target.Secret += "\n"
		l.Targets["a"] = target
	}
	s.expectEnd("Completed", "from b")
	s.expectRequests("a=1 b=3")
}

func TestACredentialThatWorkedSinceIsJudgedAnew(t *testing.T) {
	s := newScene(t, `legs: {
	  a: {apiKey: good, steps: [{calls: [{name: look, arguments: {}}]}]},
	  b: {steps: [{calls: [{name: look, arguments: {}}]}, {answer: "from b"}]}}`, "a", "b")
	s.current = func(n int, l *loop.Ladder) {
		target := l.Targets["a"]
		target.Secret = "sk-bad-key-of-a"
		if n == 4 { // the plan of the second turn
			target.Secret = "good"
		}
		l.Targets["a"] = target
	}
	s.expectEnd("Completed", "from b")
	s.expectRequests("a=3 b=2")
}
