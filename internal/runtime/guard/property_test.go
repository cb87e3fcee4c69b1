package guard

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"belay.dev/belay/internal/runtime/message"
)

// anyMove draws from an alphabet so small that everything repeats.
func anyMove(random *rand.Rand) move {
	tool := []string{"read", "write", "shell", "status"}[random.IntN(4)]
	arguments := fmt.Sprint(random.IntN(3))
	switch random.IntN(10) {
	case 0, 1, 2, 3:
		return ok(tool, arguments, fmt.Sprint(random.IntN(2)))
	case 4, 5:
		return fails(tool, arguments, []Kind{InvalidArguments, NotFound, ExecutionFailed, Timeout}[random.IntN(4)])
	case 6:
		return fails("nosuch", arguments, UnknownTool)
	case 7:
		return exits(arguments, fmt.Sprint(random.IntN(2)))
	case 8:
		return other(tool, arguments, message.ResultNotRun, []string{"Denied", "Cancelled"}[random.IntN(2)])
	default:
		return other(tool, arguments, message.ResultInDoubt, "InDoubt")
	}
}

func anyTurn(random *rand.Rand, before []move) []move {
	if random.IntN(2) == 0 && before != nil {
		return before // a model that repeats itself
	}
	moves := make([]move, random.IntN(4))
	for i := range moves {
		moves[i] = anyMove(random)
	}
	return moves
}

func eachSeed(t *testing.T, seeds int, property func(t *testing.T, random *rand.Rand)) {
	t.Helper()
	for seed := range seeds {
		property(t, rand.New(rand.NewPCG(uint64(seed), 7)))
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
}

// A state that came about call by call, with all its questions, is that of a replay; and a replay may be interrupted and
// asked at any place.
func TestAReplayArrivesAtTheSameStateAndDecisions(t *testing.T) {
	polling := Polling{"status": 20 * time.Second}
	eachSeed(t, 100, func(t *testing.T, random *rand.Rand) {
		live := newRun(polling)
		var moves []move
		for range 40 {
			moves = anyTurn(random, moves)
			live.turn(moves...)
		}
		replayed := New(polling)
		for _, e := range live.events {
			replayed.Apply(e)
		}
		if !reflect.DeepEqual(live.state, replayed) {
			t.Errorf("live:\n%+v\nreplayed:\n%+v", live.state, replayed)
		}
		asked := New(polling)
		for _, e := range live.events {
			asked.Apply(e)
			asked.Decide(offered)
			asked.Decide(nil)
			asked.Refuse(Call{Tool: "read", Arguments: "1"})
		}
		if !reflect.DeepEqual(live.state, asked) {
			t.Errorf("live:\n%+v\nasked:\n%+v", live.state, asked)
		}
		if got, want := replayed.Decide(offered), asked.Decide(offered); !reflect.DeepEqual(got, want) {
			t.Errorf("replayed decides %+v, asked %+v", got, want)
		}
	})
}

func TestSuccessesWithDifferentResultsAreNeverStopped(t *testing.T) {
	eachSeed(t, 100, func(t *testing.T, random *rand.Rand) {
		r := newRun(nil)
		for n := range 60 {
			moves := make([]move, 1+random.IntN(3))
			for i := range moves {
				moves[i] = ok("read", fmt.Sprint(random.IntN(2)), fmt.Sprint("result ", n, " ", i))
			}
			if got := r.turn(moves...); got != "-" {
				t.Errorf("turn %d: %s", n+1, got)
			}
		}
	})
}

func TestEveryRunOfFailuresAloneIsStopped(t *testing.T) {
	kinds := []Kind{UnknownTool, InvalidArguments, NotFound, ExecutionFailed, Timeout}
	eachSeed(t, 100, func(t *testing.T, random *rand.Rand) {
		r := newRun(nil)
		for n := 1; n <= RepairTurns; n++ {
			moves := make([]move, 1+random.IntN(3))
			for i := range moves {
				moves[i] = fails("write", fmt.Sprint(random.IntN(3)), kinds[random.IntN(len(kinds))])
			}
			r.turn(moves...)
			if stopped := r.stop != nil; stopped != (n == RepairTurns) {
				t.Errorf("turn %d: stopped %v", n, stopped)
			}
		}
	})
}

// naive decides about turns of one successful call each by looking at the whole history, which it keeps as one letter
// for a turn.
type naive struct {
	history []byte
	calls   []byte
}

func (o *naive) turn(call, result byte) string {
	repeats := 0
	for i := len(o.history) - 1; i >= 0 && o.history[i] == o.history[len(o.history)-1]; i-- {
		repeats++
	}
	word := ""
	outcome := call*2 + result
	if repeats >= 3 && o.calls[len(o.calls)-1] == call {
		word, outcome = "loop", o.history[len(o.history)-1]
	}
	o.history, o.calls = append(o.history, outcome), append(o.calls, call)
	h := string(o.history)
	stop := len(h) >= 5 && same(h[len(h)-5:])
	for _, p := range []int{2, 3, 4} {
		if n := 3 * p; len(h) >= n {
			end := h[len(h)-n:]
			stop = stop || end[:p] == end[p:2*p] && end[:p] == end[2*p:]
		}
	}
	switch {
	case stop && word != "":
		return word + " LoopDetected"
	case stop:
		return "LoopDetected"
	case word != "":
		return word
	}
	return "-"
}

func same(h string) bool {
	for i := range h {
		if h[i] != h[0] {
			return false
		}
	}
	return true
}

func TestRepetitionsAreFoundAsByLookingAtTheWholeHistory(t *testing.T) {
	found := map[string]int{}
	eachSeed(t, 400, func(t *testing.T, random *rand.Rand) {
		r, oracle := newRun(nil), &naive{}
		letters := 1 + random.IntN(4)
		for n := range 40 {
			call, result := byte(random.IntN(letters)), byte(random.IntN(5)/4)
			got, want := r.turn(ok("read", fmt.Sprint(call), fmt.Sprint(result))), oracle.turn(call, result)
			if got != want {
				t.Errorf("turn %d: got %q, want %q", n+1, got, want)
			}
			found[got]++
			if r.stop != nil {
				break
			}
		}
	})
	for _, word := range []string{"-", "loop", "loop LoopDetected", "LoopDetected"} {
		if found[word] < 10 {
			t.Errorf("%q came %d times only: the sequences prove little", word, found[word])
		}
	}
}

func TestTheStateStaysSmall(t *testing.T) {
	s := New(Polling{"status": time.Hour})
	random := rand.New(rand.NewPCG(1, 1))
	for n := range 500 {
		a := Answer{Turn: n}
		for i := range 100 {
			a.Calls = append(a.Calls, Call{ID: fmt.Sprint(i), Tool: []string{"read", "status", fmt.Sprint("made up ", n, i)}[random.IntN(3)], Arguments: fmt.Sprint(n, i)})
		}
		s.Apply(a)
		for _, c := range a.Calls {
			kind := []Kind{UnknownTool, InvalidArguments, NotFound}[random.IntN(3)]
			if c.Tool != "read" && c.Tool != "status" {
				kind = UnknownTool
			}
			s.Apply(Result{At: began, Result: message.Result{CallID: c.ID, Status: message.ResultNotRun, ErrorKind: string(kind), Text: "no"}})
		}
	}
	if len(s.steps) > maxSteps || len(s.unchanged) > maxUnchanged || len(s.polls) > maxPolls || len(s.failing) > RepairTurns || len(s.classes) > 3*len(s.polling)+3 {
		t.Errorf("the state has %d steps, %d failures, %d polls, %d failing turns, %d classes",
			len(s.steps), len(s.unchanged), len(s.polls), len(s.failing), len(s.classes))
	}
	for _, c := range s.classes {
		if len(c.at) > ClassWindow {
			t.Errorf("a class has %d turns", len(c.at))
		}
	}
}

// Whatever the events are, in whatever order: no panic, bounded words, and a stop only when the turn is over.
func FuzzState(f *testing.F) {
	f.Add([]byte{0, 1, 8, 16, 0, 1, 8, 16, 0, 1, 8, 16})
	f.Add([]byte("any bytes are a story"))
	f.Fuzz(func(t *testing.T, story []byte) {
		story = story[:min(len(story), 200)] // a longer story tells nothing that a hundred events do not
		s, again := New(Polling{"status": time.Second}), New(Polling{"status": time.Second})
		both := func(e Event) { s.Apply(e); again.Apply(e) }
		tool := []string{"read", "status", "", "no such \x00 tool"}
		kinds := []string{"", "InvalidArguments", "UnknownTool", "NotFound", "ExecutionFailed", "Timeout", "Cancelled", "Denied", "anything"}
		statuses := []message.ResultStatus{message.ResultOK, message.ResultError, message.ResultNotRun, message.ResultCancelled, ""}
		turn, now := 0, began
		for i := 0; i+1 < len(story); i += 2 {
			op, arg := story[i], int(story[i+1])
			now = now.Add(time.Duration(arg-100) * 10 * time.Millisecond)
			switch op % 8 {
			case 0:
				turn++
				a := Answer{Turn: turn}
				for n := range arg % 4 {
					a.Calls = append(a.Calls, Call{ID: fmt.Sprint(n), Tool: tool[arg/4%4], Arguments: fmt.Sprint(arg / 16 % 3)})
				}
				both(a)
			case 1:
				both(Noted{Kind: []NoteKind{NoteRepair, NoteLoop, "other"}[arg%3]})
			default:
				both(Result{At: now, CommandFailed: op%16 == 15, Refusal: []Refusal{NotRefused, NotRefused, RefusedRepeat, RefusedLoop}[op/16%4],
					Result: message.Result{CallID: fmt.Sprint(arg % 4), Status: statuses[arg/4%5], ErrorKind: kinds[arg/20%9], Text: fmt.Sprint(arg)}})
			}
			d := s.Decide(offered)
			if !reflect.DeepEqual(d, again.Decide(offered)) {
				t.Fatal("two equal histories are decided differently")
			}
			if d.Stop != nil && (!s.closed || d.Notes != nil || d.Stop.Message == "" || len(d.Stop.Text) > MaxFinalTextBytes) {
				t.Fatalf("got %+v", d)
			}
			for _, n := range d.Notes {
				if n.Text == "" || len(n.Text) > MaxNoteBytes {
					t.Fatalf("a note of %d bytes", len(n.Text))
				}
			}
			if refused, ok := s.Refuse(Call{Tool: "read", Arguments: "1"}); ok && (refused.Text == "" || refused.Kind == "" || refused.Refusal == NotRefused) {
				t.Fatalf("got %+v", refused)
			}
		}
	})
}
