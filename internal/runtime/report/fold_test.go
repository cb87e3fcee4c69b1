package report

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"belay.dev/belay/internal/runtime/breaker"
	"belay.dev/belay/internal/runtime/failure"
)

var t0 = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return t0.Add(time.Duration(seconds) * time.Second) }

// live is a run with a pod in its first epoch that reports blind failures of a generation.
func live(uid string, generation int64, failures int) Run {
	return Run{
		Name: "run-" + uid, UID: uid, Created: t0, Epoch: 1, ReportEpoch: 1, Live: true,
		Report: &Report{Level: breaker.Level{
			Generation: generation, ConsecutiveBlind: failures,
			LastFailure: breaker.LastFailure{Kind: failure.ServerError, HTTPStatus: 503, Time: t0},
		}},
	}
}

func cools(uid string, generation int64, kind failure.Kind, seen, until time.Time) Run {
	r := live(uid, generation, 0)
	r.Report.LastFailure = breaker.LastFailure{Kind: kind, Time: seen}
	r.Report.CoolUntil = until
	return r
}

func quiet(uid string) Run {
	return Run{Name: "run-" + uid, UID: uid, Created: t0, Epoch: 1, Live: true}
}

func quietRuns(n int) []Run {
	var runs []Run
	for i := range n {
		runs = append(runs, quiet(string(rune('A'+i))))
	}
	return runs
}

func closedAt(generation int64) Status { return Status{State: breaker.Closed, Generation: generation} }

func TestTheRouteOpensWhenFailuresAddUpAndEnoughRunsSeeThem(t *testing.T) {
	for _, tc := range []struct {
		name string
		runs []Run
		want breaker.Position
		sum  int
	}{
		{"no reports", quietRuns(3), breaker.Closed, 0},
		{"the only run fails twice", []Run{live("a", 5, 2)}, breaker.Closed, 2},
		{"the only run fails three times", []Run{live("a", 5, 3)}, breaker.Open, 3},
		{"one of two runs fails three times: a poisonous request", []Run{live("a", 5, 3), quiet("b")}, breaker.Closed, 3},
		{"two of two runs fail, three in all", []Run{live("a", 5, 2), live("b", 5, 1)}, breaker.Open, 3},
		{"two of two runs fail, two in all", []Run{live("a", 5, 1), live("b", 5, 1)}, breaker.Closed, 2},
		{"two of twenty", append([]Run{live("a", 5, 2), live("b", 5, 2)}, quietRuns(18)...), breaker.Open, 4},
		{"two of twenty-one: a tenth, rounded up, is three", append([]Run{live("a", 5, 2), live("b", 5, 2)}, quietRuns(19)...), breaker.Closed, 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Fold(closedAt(5), tc.runs, Wish{}, DefaultConfig(), at(1))
			if got.Status.State != tc.want || got.Status.Failures != tc.sum {
				t.Errorf("%s with %d failures, want %s with %d", got.Status.State, got.Status.Failures, tc.want, tc.sum)
			}
			if opened := len(got.Transitions) == 1; opened != (tc.want == breaker.Open) {
				t.Errorf("transitions %+v", got.Transitions)
			}
		})
	}
}

func TestQuorumIsATenthOfTheActiveRunsBetweenTwoAndTen(t *testing.T) {
	for active, want := range map[int]int{0: 0, 1: 1, 2: 2, 3: 2, 20: 2, 21: 3, 30: 3, 31: 4, 100: 10, 101: 10, 5000: 10} {
		if got := quorum(active); got != want {
			t.Errorf("quorum of %d runs is %d, want %d", active, got, want)
		}
	}
}

func TestReportsThatCannotBeBelievedAreIgnored(t *testing.T) {
	otherEpoch := live("a", 5, 3)
	otherEpoch.Epoch = 2
	for name, r := range map[string]Run{
		"an older generation": live("a", 4, 3),
		"a later generation":  live("a", 6, 3),
		"another epoch":       otherEpoch,
	} {
		t.Run(name, func(t *testing.T) {
			got := Fold(closedAt(5), []Run{r}, Wish{}, DefaultConfig(), at(1))
			if diff := cmp.Diff(closedAt(5), got.Status); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAFailureOlderThanAnotherRunsSuccessDoesNotCount(t *testing.T) {
	healed := live("b", 5, 0)
	healed.Report.LastSuccessTime = at(2)
	got := Fold(closedAt(5), []Run{live("a", 5, 3), healed}, Wish{}, DefaultConfig(), at(3))
	if got.Status.Failures != 0 || got.Status.State != breaker.Closed {
		t.Errorf("%s with %d failures, want Closed with none", got.Status.State, got.Status.Failures)
	}
	own := live("a", 5, 3)
	own.Report.LastSuccessTime = at(2)
	got = Fold(closedAt(5), []Run{own}, Wish{}, DefaultConfig(), at(3))
	if got.Status.State != breaker.Open {
		t.Error("a run's own earlier success refuted its failures")
	}
}

func TestATripKeepsItsTimesAndWakesAtItsEnd(t *testing.T) {
	got := Fold(closedAt(5), []Run{live("a", 5, 3)}, Wish{}, DefaultConfig(), at(1))
	want := Outcome{
		Status: Status{
			State: breaker.Open, Generation: 6, Failures: 3, Trips: 1, OpenedTime: at(1), OpenUntil: at(31),
			LastFailure: breaker.LastFailure{Kind: failure.ServerError, HTTPStatus: 503, Time: t0},
		},
		Next: at(31),
		Transitions: []Transition{{From: breaker.Closed, To: breaker.Open, Generation: 6, Kind: failure.ServerError,
			Cause: "3 consecutive failures at 1 of 1 running runs"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestCoolingIsSharedButCappedPerReport(t *testing.T) {
	for _, tc := range []struct {
		name string
		kind failure.Kind
		hint int
		want int
	}{
		{"a short rate limit", failure.RateLimited, 40, 40},
		{"a rate limit of an hour counts 15 minutes", failure.RateLimited, 3600, 900},
		{"an overload of an hour counts 15 minutes", failure.Overloaded, 3600, 900},
		{"a quota of 40 minutes", failure.QuotaExhausted, 2400, 2400},
		{"a quota of a day counts an hour", failure.QuotaExhausted, 86400, 3600},
		{"an empty account counts an hour", failure.Billing, 86400, 3600},
	} {
		t.Run(tc.name, func(t *testing.T) {
			runs := []Run{cools("a", 5, tc.kind, t0, at(tc.hint)), quiet("b")}
			got := Fold(closedAt(5), runs, Wish{}, DefaultConfig(), at(1))
			if got.Status.State != breaker.Cooling || !got.Status.CoolUntil.Equal(at(tc.want)) || !got.Next.Equal(at(tc.want)) {
				t.Errorf("%s until %s, next %s; want Cooling until %s", got.Status.State, got.Status.CoolUntil, got.Next, at(tc.want))
			}
			// The run publishes the same level under the new generation: nothing is extended by that.
			again := Fold(got.Status, []Run{cools("a", 6, tc.kind, t0, at(tc.hint))}, Wish{}, DefaultConfig(), at(30))
			if !again.Status.CoolUntil.Equal(at(tc.want)) || len(again.Transitions) != 0 {
				t.Errorf("the repeated report moved it to %s, %+v", again.Status.CoolUntil, again.Transitions)
			}
			end := Fold(got.Status, runs, Wish{}, DefaultConfig(), at(tc.want))
			if end.Status.State != breaker.Closed || end.Status.Generation != 7 {
				t.Errorf("at its end: %s in generation %d, want Closed in 7", end.Status.State, end.Status.Generation)
			}
		})
	}
}

// halfOpenAt folds a trip to the end of its cooldown.
func halfOpenAt(t *testing.T, runs ...Run) Outcome {
	t.Helper()
	open := Fold(closedAt(5), []Run{live("a", 5, 3)}, Wish{}, DefaultConfig(), at(0)).Status
	if early := Fold(open, runs, Wish{}, DefaultConfig(), at(29)); early.Status.State != breaker.Open {
		t.Fatalf("before the end of the cooldown: %s", early.Status.State)
	}
	got := Fold(open, runs, Wish{}, DefaultConfig(), at(30))
	if got.Status.State != breaker.HalfOpen || got.Status.Generation != 7 {
		t.Fatalf("at the end of the cooldown: %s in generation %d", got.Status.State, got.Status.Generation)
	}
	return got
}

func TestTheProbeGoesToTheRunWithMostUseForIt(t *testing.T) {
	waiting, prefers, parked, other := quiet("w"), quiet("p"), quiet("z"), quiet("o")
	waiting.Waiting, waiting.Created = true, at(9)
	prefers.Prefers, prefers.Created = true, at(5)
	elder := prefers
	elder.UID, elder.Created = "e", at(1)
	parked.Live, parked.Parked, parked.Waiting, parked.Epoch = false, true, true, 4
	for _, tc := range []struct {
		name  string
		runs  []Run
		want  string
		epoch int64
	}{
		{"one that waits in place", []Run{prefers, parked, waiting, other}, "w", 1},
		{"else the oldest that prefers the route", []Run{prefers, elder, parked, other}, "e", 1},
		{"else a parked one, for the epoch that it wakes into", []Run{other, parked}, "z", 5},
		{"else any live one", []Run{other}, "o", 1},
		{"else nobody", nil, "", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := halfOpenAt(t, tc.runs...).Status.Probe
			if tc.want == "" {
				if p != nil {
					t.Errorf("probe %+v, want none", p)
				}
				return
			}
			if p == nil || p.RunUID != tc.want || p.Epoch != tc.epoch || p.Token == "" {
				t.Errorf("probe %+v, want run %s in epoch %d", p, tc.want, tc.epoch)
			}
		})
	}
}

func probeReport(r Run, token string, result breaker.ProbeResult) Run {
	r.ReportEpoch = r.Epoch
	r.Report = &Report{Level: breaker.Level{Generation: 7, ProbeToken: token, ProbeResult: result}}
	return r
}

func TestOnlyTheHoldersTokenSettlesAProbe(t *testing.T) {
	holder, other := quiet("a"), quiet("b")
	holder.Waiting = true
	ho := halfOpenAt(t, holder, other).Status
	token := ho.Probe.Token
	foreign := probeReport(other, token, breaker.ProbeSucceeded)
	stale := probeReport(holder, "7-000000000000", breaker.ProbeSucceeded)
	for name, runs := range map[string][]Run{
		"another run repeats the token": {holder, foreign},
		"an old token":                  {stale, other},
		"a success without a token":     {holder, {Name: "b", UID: "b", Epoch: 1, ReportEpoch: 1, Live: true, Created: t0, Report: &Report{Level: breaker.Level{Generation: 7, LastSuccessTime: at(31)}}}},
	} {
		got := Fold(ho, runs, Wish{}, DefaultConfig(), at(32))
		if got.Status.State != breaker.HalfOpen || got.Status.Probe == nil || got.Status.Probe.Token != token {
			t.Errorf("%s: %s, probe %+v", name, got.Status.State, got.Status.Probe)
		}
	}
	for _, tc := range []struct {
		result    breaker.ProbeResult
		want      breaker.Position
		trips     int
		openUntil time.Time
	}{
		{breaker.ProbeSucceeded, breaker.Closed, 0, time.Time{}},
		{breaker.ProbeFailed, breaker.Open, 2, at(32 + 60)},
		{breaker.ProbeReleased, breaker.HalfOpen, 1, at(30)},
	} {
		got := Fold(ho, []Run{probeReport(holder, token, tc.result), other}, Wish{}, DefaultConfig(), at(32)).Status
		if got.State != tc.want || got.Trips != tc.trips || !got.OpenUntil.Equal(tc.openUntil) {
			t.Errorf("%s: %s, trips %d, open until %s", tc.result, got.State, got.Trips, got.OpenUntil)
		}
		if tc.result == breaker.ProbeReleased && (got.Probe == nil || got.Probe.RunUID != "b") {
			t.Errorf("a released slot went to %+v, want the other run", got.Probe)
		}
	}
}

func TestALostProbeWedgesNothing(t *testing.T) {
	holder, other := quiet("a"), quiet("b")
	holder.Waiting = true
	ho := halfOpenAt(t, holder, other)
	token := ho.Status.Probe.Token
	if !ho.Next.Equal(at(30 + 180)) {
		t.Errorf("next fold at %s, want when an unsent probe is given to another", ho.Next)
	}
	ended, parked, replaced := []Run{other}, holder, holder
	parked.Live, parked.Parked = false, true
	replaced.Epoch = 2
	sent := probeReport(holder, token, "")
	for _, tc := range []struct {
		name string
		runs []Run
		now  time.Time
		want string
	}{
		{"in time", []Run{holder, other}, at(209), "a"},
		{"never sent", []Run{holder, other}, at(210), "b"},
		{"sent, and as long as an attempt may take", []Run{sent, other}, at(30 + 180 + 1259), "a"},
		{"sent, and longer than that", []Run{sent, other}, at(30 + 180 + 1260), "b"},
		{"the run ended", ended, at(31), "b"},
		{"the run parked", []Run{parked, other}, at(31), "b"},
		{"the run has a new epoch", []Run{replaced, other}, at(31), "b"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Fold(ho.Status, tc.runs, Wish{}, DefaultConfig(), tc.now).Status.Probe
			if got == nil || got.RunUID != tc.want {
				t.Fatalf("probe %+v, want run %s", got, tc.want)
			}
			if (got.Token == token) != (tc.want == "a") {
				t.Errorf("token %s after %s", got.Token, token)
			}
		})
	}
}

func TestAWokenRunKeepsTheProbeThroughItsNewEpoch(t *testing.T) {
	parked := quiet("a")
	parked.Live, parked.Parked, parked.Waiting, parked.Epoch = false, true, true, 4
	ho := halfOpenAt(t, parked).Status
	starting, woken := parked, parked
	starting.Parked, starting.Epoch = false, 5
	woken.Parked, woken.Live, woken.Epoch = false, true, 5
	for name, r := range map[string]Run{"still parked": parked, "starting": starting, "live": woken} {
		got := Fold(ho, []Run{r}, Wish{}, DefaultConfig(), at(60)).Status.Probe
		if got == nil || got.Token != ho.Probe.Token {
			t.Errorf("%s: probe %+v", name, got)
		}
	}
}

func TestAnOperatorOverridesTheBreaker(t *testing.T) {
	cfg := DefaultConfig()
	failing := []Run{live("a", 5, 3)}
	forcedOpen := Fold(closedAt(5), nil, Wish{Override: ForcedOpen, Until: at(7200)}, cfg, at(0))
	if s := forcedOpen.Status; s.State != breaker.Open || s.Generation != 6 || !s.OpenUntil.Equal(at(7200)) || !forcedOpen.Next.Equal(at(7200)) {
		t.Errorf("forced open: %+v, next %s", s, forcedOpen.Next)
	}
	if s := Fold(forcedOpen.Status, nil, Wish{Override: ForcedOpen, Until: at(7200)}, cfg, at(3600)).Status; s.State != breaker.Open || s.Generation != 6 {
		t.Errorf("an hour later: %+v", s)
	}
	if s := Fold(forcedOpen.Status, []Run{quiet("b")}, Wish{Override: ForcedOpen, Until: at(7200)}, cfg, at(7200)).Status; s.State != breaker.HalfOpen || s.Probe == nil || s.Override != NoOverride {
		t.Errorf("at its end: %+v, want half-open with a probe", s)
	}
	forcedClosed := Fold(closedAt(5), failing, Wish{Override: ForcedClosed}, cfg, at(1)).Status
	if forcedClosed.State != breaker.Closed || forcedClosed.Generation != 6 {
		t.Errorf("forced closed: %+v", forcedClosed)
	}
	if s := Fold(forcedClosed, []Run{live("a", 6, 9)}, Wish{Override: ForcedClosed}, cfg, at(2)).Status; s.State != breaker.Closed {
		t.Errorf("failures opened a route that is forced closed: %+v", s)
	}
	open := Fold(closedAt(5), failing, Wish{}, cfg, at(1)).Status
	if s := Fold(open, nil, Wish{Override: ForcedClosed}, cfg, at(2)).Status; s.State != breaker.Closed || s.Trips != 0 || !s.OpenUntil.IsZero() {
		t.Errorf("forcing an open route closed: %+v", s)
	}
	if s := Fold(forcedClosed, []Run{live("a", 6, 9)}, Wish{}, cfg, at(3)).Status; s.State != breaker.Closed || s.Generation != 7 || s.Failures != 0 {
		t.Errorf("withdrawn: %+v, want a new generation that counts from zero", s)
	}
}

func TestASkewedClockLocksNoRouteOut(t *testing.T) {
	own := Status{State: breaker.Open, Generation: 6, Trips: 1, OpenUntil: at(10 * 86400)}
	got := Fold(own, nil, Wish{}, DefaultConfig(), at(0))
	if !got.Status.OpenUntil.Equal(at(900)) {
		t.Errorf("open until %s, want at most the longest cooldown", got.Status.OpenUntil)
	}
}

func TestTheBoundOnRequestsToADeadRoute(t *testing.T) {
	// One run against a dead route for an hour: the threshold, then one probe at the end of each cooldown, and no more.
	cfg := DefaultConfig()
	s, requests := closedAt(1), 0
	run := quiet("a")
	run.Waiting = true
	for second := 0; second <= 3600; second++ {
		now := at(second)
		switch {
		case s.State == breaker.Closed:
			requests++
			run = live("a", s.Generation, requests)
			run.Waiting = true
		case s.State == breaker.HalfOpen && s.Probe != nil && (run.Report == nil || run.Report.ProbeToken != s.Probe.Token):
			requests++
			run.Report = &Report{Level: breaker.Level{Generation: s.Generation, ProbeToken: s.Probe.Token, ProbeResult: breaker.ProbeFailed}}
		}
		s = Fold(s, []Run{run}, Wish{}, cfg, now).Status
	}
	// Cooldowns of 30, 60, 120, 240, 480, 900, 900 s end at 2730 s and a little; the next one would end beyond the hour.
	if want := 3 + 7; requests != want {
		t.Errorf("%d requests in an hour, want %d", requests, want)
	}
}
