package cli

import (
	"fmt"
	"strings"
	"testing"
)

// TestATaskOfAWholeConfigMapRunsAndResumes has a task near the limit of a ConfigMap, 1 MiB, and an answer that is as large
// as a provider may give: neither fits into a record of the ledger, nor is lost.
func TestATaskOfAWholeConfigMapRunsAndResumes(t *testing.T) {
	t.Parallel()
	answer := strings.Repeat("An answer of many words. ", 12_000)
	w := newWorld(t, `{legs: {backup: {steps: [{answer: unused}]}, primary: {steps: [
	  {expect: {contains: ["the end of the task"]}, text: "`+answer+`", calls: [{name: write, arguments: {path: a, content: b}}]},
	  {silence: {}}, {expect: {contains: ["the end of the task", "An answer of many words."]}, answer: "`+answer+`"}]}}}`)
	w.edit("contextWindow: 128000", "contextWindow: 2000000")
	w.edit("  task: do the work\n", "  taskFrom: {configMapKeyRef: {name: texts, key: task}}\n")
	task := strings.Repeat("A line of a task that is long.\\n", 32_000) + "the end of the task"
	w.write("m.yaml", w.read("m.yaml")+fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: texts}\ndata: {task: \"%s\"}\n", task))

	p := w.startRun()
	eventually(t, "the second request is under way", func() bool { return w.asked("primary") == 2 })
	p.signal(9)
	<-p.ended
	w.run().must(CodeCompleted, "resuming after 1 turn").answers(answer + "\n")
	w.run().must(CodeCompleted, "ended before: Completed").answers(answer + "\n")
	w.belay("ledger", "verify", runLedger).must(CodeCompleted)
	shown := w.belay("ledger", "show", runLedger).must(CodeCompleted).stdout.String()
	for _, want := range []string{"task: A line of a task that is long.", "says: An answer of many words.", "answer: An answer of many words."} {
		if !strings.Contains(shown, want) {
			t.Errorf("show does not tell %q:\n%s", want, shown)
		}
	}
}
