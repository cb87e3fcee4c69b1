package guard

import (
	"fmt"
	"testing"

	"belay.dev/belay/internal/runtime/message"
)

func TestTheRepairBudget(t *testing.T) {
	bad := func(n int) move { return fails("write", fmt.Sprint(n), InvalidArguments) }
	good := func(n int) move { return ok("read", fmt.Sprint(n), fmt.Sprint("text ", n)) }
	stop := "ToolRepairExhausted"
	tests := map[string][]played{
		"one failing turn costs nothing but the hint on its result": {then("-", bad(1))},
		"the second in a row brings a directive, the third ends the run": {
			then("-", bad(1)), then("Repair", bad(2)), then(stop, bad(3))},
		"every class of failure charges the same budget": {
			then("-", fails("nosuch", "1", UnknownTool)), then("Repair", fails("read", "1", NotFound)), then(stop, fails("shell", "1", Timeout))},
		"a turn with one success among failures refills it": {
			then("-", bad(1)), then("Repair", bad(2)), then("LoopWarning", bad(3), good(1)), then("-", bad(4)), then("Repair", bad(5)), then(stop, bad(6))},
		"several failures in one turn are one failing turn": {
			then("-", bad(1), bad(2), bad(3), bad(4)), then("Repair", bad(5), bad(6)), then(stop, bad(7), bad(8))},
		"failing commands are tools that work": {
			then("-", exits("go test", "1 fails")), then("-", exits("go test", "2 fail")), then("-", exits("go test", "3 fail")),
			then("-", exits("go test", "4 fail")), then("-", exits("go test", "5 fail"))},
		"a failing command refills the budget": {
			then("-", bad(1)), then("Repair", bad(2)), then("-", exits("go test", "1 fails")), then("LoopWarning", bad(3)), then("Repair", bad(4))},
		"a command that is stopped at its time limit is a failed call": {
			then("-", fails("shell", "1", Timeout)), then("Repair", fails("shell", "2", Timeout)), then(stop, fails("shell", "3", Timeout))},
		"what lies with others neither charges nor refills": {
			then("-", bad(1)), then("-", other("shell", "1", message.ResultInDoubt, "InDoubt")),
			then("-", other("shell", "2", message.ResultNotRun, "Denied")), then("Repair", bad(2)),
			then("-", other("shell", "3", message.ResultError, "ProcessCrashed")), then("-", other("shell", "4", message.ResultNotRun, "Cancelled")),
			then(stop, bad(3))},
		"a crash beside a failure does not excuse the failure": {
			then("-", bad(1)), then("Repair", bad(2), other("shell", "1", message.ResultError, "ProcessCrashed"))},
		"a turn without calls is no turn": {
			then("-", bad(1)), then("-"), then("Repair", bad(2)), then("-"), then(stop, bad(3))},
		"a repeated failure is refused and charged like the failure": {
			then("-", bad(1)), then("repeat Repair", bad(1)), then("repeat ToolRepairExhausted", bad(1))},
	}
	for name, turns := range tests {
		t.Run(name, func(t *testing.T) { newRun(nil).story(t, turns) })
	}
}

// An agent that keeps sending the same wrong call, whatever the guard tells it, or a new wrong one each time.
func TestArgumentsThatAreAlwaysWrongStopTheRunAtTheThirdTurn(t *testing.T) {
	for name, call := range map[string]func(n int) move{
		"always the same": func(int) move { return fails("write", "{}", InvalidArguments) },
		"always another":  func(n int) move { return fails("write", fmt.Sprint(n), InvalidArguments) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRun(nil)
			for n := 1; r.stop == nil && n < 400; n++ {
				r.turn(call(n))
			}
			if r.turns != 3 || r.stop.Reason != ToolRepairExhausted {
				t.Errorf("stopped in turn %d: %+v", r.turns, r.stop)
			}
		})
	}
}
