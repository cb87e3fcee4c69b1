package guard

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"belay.dev/belay/internal/runtime/message"
	"belay.dev/belay/internal/runtime/tools"
)

// toolKinds are all the kinds that package tools has, and whether another call may cure them.
var toolKinds = map[tools.ErrorKind]bool{
	tools.KindUnknownTool: true, tools.KindInvalidArguments: true, tools.KindNotFound: true,
	tools.KindExecutionFailed: true, tools.KindTimeout: true,
	tools.KindNone: false, tools.KindCancelled: false, tools.KindDenied: false, tools.KindRevoked: false, tools.KindAuth: false,
	tools.KindRateLimited: false, tools.KindProcessCrashed: false, tools.KindInDoubt: false,
}

func TestTheKindsAreThoseOfPackageTools(t *testing.T) {
	for kind, want := range toolKinds {
		if got := Kind(kind).Correctable(); got != want {
			t.Errorf("%q is correctable: got %v, want %v", kind, got, want)
		}
		if got := kind.Correctable(); got != want {
			t.Errorf("tools: %q is correctable: got %v, want %v", kind, got, want)
		}
	}
	for _, kind := range []Kind{UnknownTool, InvalidArguments, NotFound, ExecutionFailed, Timeout, kindCancelled, Denied} {
		if _, ok := toolKinds[tools.ErrorKind(kind)]; !ok {
			t.Errorf("%q is no kind of package tools", kind)
		}
	}
}

func TestHints(t *testing.T) {
	seen := map[string]Kind{}
	for kind, correctable := range toolKinds {
		hint := Kind(kind).Hint()
		if !correctable {
			if hint != "" {
				t.Errorf("%s has a hint, though no other call can cure it: %s", kind, hint)
			}
			continue
		}
		if len(hint) > MaxHintBytes || !strings.HasPrefix(hint, "Hint: ") || !strings.HasSuffix(hint, ".") {
			t.Errorf("the hint of %s is not a bounded sentence: %q", kind, hint)
		}
		if other, ok := seen[hint]; ok {
			t.Errorf("%s and %s have the same hint", kind, other)
		}
		seen[hint] = Kind(kind)
	}
}

func TestAHintIsToldOnce(t *testing.T) {
	for _, test := range []struct {
		kind       Kind
		text, want string
	}{
		{NotFound, "no file", "no file\n" + NotFound.Hint()},
		{NotFound, "no file\n", "no file\n" + NotFound.Hint()},
		{NotFound, "", NotFound.Hint()},
		{Denied, "no\n", "no\n"},
	} {
		if got := test.kind.WithHint(test.text); got != test.want {
			t.Errorf("%s: got %q, want %q", test.kind, got, test.want)
		}
	}

	r := newRun(nil)
	missing := fails("read", "a", NotFound)
	missing.result.Text = NotFound.WithHint("no file a")
	r.turn(missing)
	r.turn(missing)
	if got := r.refused[0].Text; strings.Count(got, NotFound.Hint()) != 1 || !strings.Contains(got, "no file a\n"+NotFound.Hint()) {
		t.Errorf("got the refusal\n%s", got)
	}
	if got := r.noted[0].Text; strings.Contains(got, NotFound.Hint()) {
		t.Errorf("got the directive\n%s", got)
	}
}

func TestTheDirectiveRestatesTheSchemaOfEachRejectedTool(t *testing.T) {
	r := newRun(nil)
	r.turn(fails("write", "1", InvalidArguments))
	r.turn(fails("write", "2", InvalidArguments), fails("write", "3", InvalidArguments), fails("read", "4", NotFound))
	if len(r.noted) != 1 || r.noted[0].Kind != NoteRepair {
		t.Fatalf("got the notes %v", r.noted)
	}
	text := r.noted[0].Text
	contains(t, text, "In 2 turns in a row, all your tool calls failed.", "InvalidArguments of 2", "InvalidArguments of 3", "NotFound of 4",
		"The arguments of write must fit this JSON Schema:\n"+offered[1].Schema+"\n",
		"The arguments of read must fit this JSON Schema:\n"+offered[0].Schema+"\n")
	if strings.Count(text, offered[1].Schema) != 1 {
		t.Error("a schema is told more than once")
	}
	for _, not := range []string{offered[2].Schema + "\n\nThe arguments of shell", "These are all the tools", "InvalidArguments of 1"} {
		if strings.Contains(text, not) {
			t.Errorf("%q is in:\n%s", not, text)
		}
	}
}

func TestTheDirectiveTellsTheInventoryForAnUnknownName(t *testing.T) {
	r := newRun(nil)
	r.turn(fails("write_file", "1", UnknownTool))
	r.turn(fails("create file\n", "2", UnknownTool))
	contains(t, r.noted[0].Text, `"create file\n" failed with UnknownTool`, "These are all the tools there are: read, write, shell, status.")
	if strings.Contains(r.noted[0].Text, "JSON Schema") {
		t.Errorf("a schema is told for a tool that does not exist:\n%s", r.noted[0].Text)
	}

	again := r.state.directive(nil)
	contains(t, again, "There are no tools.")
}

func TestTheDirectiveIsBounded(t *testing.T) {
	large := `{"description":"` + strings.Repeat("x", maxDirectiveBytes) + `"}`
	small := `{"type":"object"}`
	given := []Tool{{"large", large}, {"small", small}}
	r := newRun(nil)
	r.turn(fails("large", "1", InvalidArguments))
	moves := []move{fails("large", "2", InvalidArguments), fails("small", "3", InvalidArguments)}
	for n := range 30 {
		m := fails("small", fmt.Sprint("more ", n), InvalidArguments)
		m.result.Text = strings.Repeat("é", 4000)
		moves = append(moves, m)
	}
	r.turn(moves...)
	text := r.state.directive(given)
	contains(t, text, "24 more calls failed.", "The schema of large is too large to be repeated here", "The arguments of small must fit this JSON Schema:\n"+small)
	if len(text) > maxDirectiveBytes+1024 || !utf8.ValidString(text) {
		t.Errorf("the directive has %d bytes", len(text))
	}

	var many []Tool
	for n := range 500 {
		many = append(many, Tool{Name: fmt.Sprintf("%s%03d", strings.Repeat("n", 61), n), Schema: small})
	}
	r = newRun(nil)
	r.turn(fails("a", "", UnknownTool))
	r.turn(fails("b", "", UnknownTool))
	text = r.state.directive(many)
	contains(t, text, "199 and 300 more.")
	if len(text) > MaxNoteBytes {
		t.Errorf("the inventory has %d bytes", len(text))
	}
}

func TestANoteStaysDueUntilItIsWritten(t *testing.T) {
	r := newRun(nil)
	call := Call{ID: "x", Tool: "write", Arguments: "1"}
	fail := Result{Result: message.Result{CallID: "x", Status: message.ResultNotRun, ErrorKind: "InvalidArguments", Text: "no"}}
	r.turn(fails("write", "0", InvalidArguments))
	r.state.Apply(Answer{Turn: 2, Calls: []Call{call}})
	if d := r.state.Decide(offered); d.Stop != nil || d.Notes != nil {
		t.Errorf("a turn whose calls are not answered yet was judged: %v", d)
	}
	r.state.Apply(fail)
	for range 2 {
		if d := r.state.Decide(offered); len(d.Notes) != 1 || d.Notes[0].Kind != NoteRepair {
			t.Fatalf("got %v, want the directive", d)
		}
	}
	r.state.Apply(Noted{Kind: NoteLoop})
	if d := r.state.Decide(offered); len(d.Notes) != 1 {
		t.Errorf("another note took the directive's place: %v", d)
	}
	r.state.Apply(Noted{Kind: NoteRepair})
	if d := r.state.Decide(offered); d.Notes != nil {
		t.Errorf("the directive is due again: %v", d)
	}
}

func TestANoteIsNotDueAfterTheNextAnswer(t *testing.T) {
	s := New(nil)
	for n := 1; n <= 2; n++ {
		id := fmt.Sprint(n)
		s.Apply(Answer{Turn: n, Calls: []Call{{ID: id, Tool: "write", Arguments: id}}})
		s.Apply(Result{Result: message.Result{CallID: id, Status: message.ResultError, ErrorKind: "ExecutionFailed"}})
	}
	s.Apply(Answer{Turn: 3})
	if d := s.Decide(offered); d.Stop != nil || d.Notes != nil {
		t.Errorf("got %v", d)
	}
}

func TestTheFinalTextIsMadeOfTheFailuresAndSaysWhoseItIs(t *testing.T) {
	r := newRun(nil)
	secret := "what the tool said"
	r.turn(fails("write", "1", InvalidArguments))
	r.turn(fails("nosuch", "2", UnknownTool))
	m := fails("read", "3", NotFound)
	m.result.Text = secret
	r.turn(m)
	if r.stop == nil || r.stop.Reason != ToolRepairExhausted {
		t.Fatalf("got %v", r.stop)
	}
	if want := "All tool calls of 3 turns in a row failed (turns 1, 2, 3: write InvalidArguments, nosuch UnknownTool, read NotFound), although the model was told how the calls must look."; r.stop.Message != want {
		t.Errorf("got the message\n%s\nwant\n%s", r.stop.Message, want)
	}
	if !strings.HasPrefix(r.stop.Text, "[This text was written by the runtime, not by the model.]\n") {
		t.Errorf("the final text does not say whose it is:\n%s", r.stop.Text)
	}
	contains(t, r.stop.Text, "Turn 1:\n- write failed with InvalidArguments: InvalidArguments of 1", "Turn 2:\n- nosuch failed with UnknownTool", "Turn 3:\n- read failed with NotFound: "+secret)
	if strings.Contains(r.stop.Message, secret) {
		t.Error("the message, which goes into conditions and events, has a tool's text")
	}
}

func TestAFinalTextIsBounded(t *testing.T) {
	r := newRun(nil)
	for n := range RepairTurns {
		var moves []move
		for i := range 20 {
			m := fails(strings.Repeat("\x01", 300)+fmt.Sprint(i), fmt.Sprint(n), UnknownTool)
			m.result.Text = strings.Repeat("\xff日", 2000)
			moves = append(moves, m)
		}
		r.turn(moves...)
	}
	if r.stop == nil || len(r.stop.Text) > MaxFinalTextBytes || len(r.stop.Message) > MaxFinalTextBytes || !utf8.ValidString(r.stop.Text) {
		t.Fatalf("got %+v", r.stop)
	}
	contains(t, r.stop.Text, "- 16 more failed")
}

func TestARefusalTellsTheFailureThatItSpares(t *testing.T) {
	r := newRun(nil)
	r.turn(fails("read", "a", NotFound))
	r.turn(fails("read", "a", NotFound))
	if got := r.refused[0]; got.Kind != NotFound {
		t.Errorf("the refused repetition has the kind %s, want that of the failure", got.Kind)
	}
	contains(t, r.refused[0].Text, "Not executed", "NotFound of a", NotFound.Hint())
	r.turn(fails("read", "a", NotFound))
	if n := strings.Count(r.refused[0].Text, "Not executed"); n != 1 {
		t.Errorf("a refusal quotes the refusal before it:\n%s", r.refused[0].Text)
	}
	contains(t, r.stop.Text, "Turn 2:\n- read failed with NotFound: NotFound of a", "Turn 3:\n- read failed with NotFound: NotFound of a")

	r = newRun(nil)
	for range 4 {
		r.turn(ok("read", "a", "text"))
	}
	if got := r.refused[0]; got.Kind != Denied {
		t.Errorf("a refused success has the kind %s", got.Kind)
	}
	contains(t, r.refused[0].Text, "the same calls had the same results 3 times in a row", "If the next turn is the same again, the run is stopped.")
	r.turn(ok("read", "a", "text"))
	contains(t, r.refused[0].Text, "4 times in a row", "The run is stopped.")
	contains(t, r.stop.Message, "The same calls (read) had the same results in 5 turns in a row (turns 1 to 5)")
}

func TestTheClassWarningNamesTheClassAndTheNewestFailure(t *testing.T) {
	r := newRun(nil)
	for n := 1; n <= 8; n++ {
		r.turn(ok("read", fmt.Sprint(n), fmt.Sprint("text ", n)), fails("write", fmt.Sprint(n), InvalidArguments))
		if n == 3 {
			contains(t, r.noted[0].Text, "Calls of write have failed 3 times with InvalidArguments", "InvalidArguments of 3", "The run is stopped after 8 such failures.")
		}
	}
	contains(t, r.stop.Message, "Calls of write failed 8 times with InvalidArguments within 8 turns")
	contains(t, r.stop.Text, "The newest failure:\nInvalidArguments of 8")
	if strings.Contains(r.stop.Message, "InvalidArguments of 8") {
		t.Error("the message has a tool's text")
	}
}

func TestClassWarningsAreToldTogetherAndBounded(t *testing.T) {
	r := newRun(nil)
	for n := range 3 {
		moves := []move{ok("read", fmt.Sprint(n), fmt.Sprint("text ", n))}
		for i := range 40 {
			m := fails(fmt.Sprint("tool", i), fmt.Sprint(n), InvalidArguments)
			m.result.Text = strings.Repeat("x", 1000)
			moves = append(moves, m)
		}
		r.turn(moves...)
	}
	if len(r.noted) != 1 || r.noted[0].Kind != NoteLoop {
		t.Fatalf("got %v", r.noted)
	}
	contains(t, r.noted[0].Text, "Calls of tool0 have failed", "Calls of tool1 have failed")
	if len(r.noted[0].Text) > maxWarningBytes+1024 {
		t.Errorf("the warning has %d bytes", len(r.noted[0].Text))
	}
}

func TestClip(t *testing.T) {
	for _, test := range []struct {
		text  string
		limit int
		want  string
	}{
		{"", 8, ""},
		{"12345678", 8, "12345678"},
		{"123456789", 8, "12345…"},
		{"1234日本", 9, "1234…"}, // 10 bytes; the cut would be within 日
		{"123日本語", 9, "123日…"}, // 12 bytes; 日 just fits before the mark
		{"a\xffb", 8, "a\uFFFDb"},
	} {
		if got := clip(test.text, test.limit); got != test.want {
			t.Errorf("clip(%q, %d) = %q, want %q", test.text, test.limit, got, test.want)
		}
	}
}

func TestToolNamesThatNoToolCanHaveAreQuoted(t *testing.T) {
	for name, want := range map[string]string{
		"files__put-2": "files__put-2", "": `""`, "a b": `"a b"`, "é": `"é"`, "[x](y)": `"[x](y)"`,
		strings.Repeat("a", 64): strings.Repeat("a", 64),
		strings.Repeat("a", 65): `"` + strings.Repeat("a", 61) + `…"`,
	} {
		if got := toolName(name); got != want {
			t.Errorf("toolName(%q) = %s, want %s", name, got, want)
		}
	}
}
