package v1alpha1_test

import (
	"strings"
	"testing"
)

const runManifest = `
apiVersion: agents.belay.dev/v1alpha1
kind: AgentRun
metadata: {name: report}
spec:
  ladderRef: {name: demo}
  task: Write the report.
  limits: {maxTurns: 10, maxTokens: 1000, maxCostMicroUSD: 500}
  routing: {metered: Allow}
  workspace:
    image: golang:1.26
    volume: {size: 1Gi}
    setup:
    - {name: seed, command: [sh, -c, "true"], env: [{name: A, value: b}]}
`

func TestARunIsValidated(t *testing.T) {
	runs := loadCRD(t, "agentruns")
	tests := []struct {
		name  string
		path  string
		value any
		want  string
	}{
		{"the base manifest is accepted", "spec.system", nil, ""},
		{"no ladder", "spec.ladderRef", nil, "spec.ladderRef: Required value"},
		{"neither task nor taskFrom", "spec.task", nil, "spec.task: Invalid value: task: exactly one of task and taskFrom must be set"},
		{"an empty task", "spec.task", "", "spec.task"},
		{"a blank task", "spec.task", " \n\t", "task must not be blank"},
		{"a task over 16 KiB", "spec.task", strings.Repeat("x", 16385), "spec.task: Too long"},
		{"both task and taskFrom", "spec.taskFrom", fields("configMapKeyRef", fields("name", "t", "key", "task")), "exactly one of task and taskFrom must be set"},
		{"a system prompt of 16 KiB", "spec.system", strings.Repeat("x", 16384), ""},
		{"a name of 52 characters", "metadata.name", strings.Repeat("n", 52), ""},
		{"a name of 53 characters", "metadata.name", strings.Repeat("n", 53), "metadata.name must be a DNS label of at most 52 characters"},
		{"a name with dots", "metadata.name", "a.b", "metadata.name must be a DNS label"},
		{"an unknown tool", "spec.tools", fields("workspace", list(fields("name", "browser"))), "spec.tools.workspace[0].name: Unsupported value"},
		{"a tool twice", "spec.tools", fields("workspace", list(fields("name", "read"), fields("name", "read"))), "spec.tools.workspace[1]: Duplicate value"},
		{"an existing claim with a size", "spec.workspace.volume.claimName", "mine", "spec.workspace.volume.claimName: Invalid value: claimName names an existing claim"},
		{"a size that is no quantity", "spec.workspace.volume.size", "big", "spec.workspace.volume.size"},
		{"a ledger volume of its own", "spec.ledger", fields("volume", fields(), "retention", "Delete"), ""},
		{"setup without command", "spec.workspace.setup", list(fields("name", "s")), "spec.workspace.setup[0].command: Required value"},
		{"an unknown state", "spec.desiredState", "Paused", "spec.desiredState: Unsupported value"},
		{"a label of ours", "spec.podTemplate", fields("labels", fields("agents.belay.dev/run", "x")), "spec.podTemplate.labels"},
		{"a label of theirs", "spec.podTemplate", fields("labels", fields("team", "core"), "nodeSelector", fields("disk", "ssd")), ""},
		{"security settings in the pod template", "spec.podTemplate", fields("hostNetwork", true), "unknown field"},
		{"a misspelt field", "spec.sytem", "x", "unknown field"},
		{"an empty pod template", "spec.podTemplate", fields(), ""},
		{"no restarts", "spec.restartLimit", int64(0), ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			wantErrors(t, runs.validate(t.Context(), t, set(t, runManifest, test.path, test.value), nil), test.want)
		})
	}
}

func TestAnUpdateOfARunIsValidated(t *testing.T) {
	runs := loadCRD(t, "agentruns")
	tests := []struct {
		name  string
		path  string
		value any
		want  string
	}{
		{"another ladder", "spec.ladderRef.name", "other", "ladderRef is immutable"},
		{"another task", "spec.task", "Write another report.", "task is immutable"},
		{"a system prompt set later", "spec.system", "You are careful.", "system is immutable"},
		{"routing taken away", "spec.routing", nil, "routing is immutable"},
		{"tools set later", "spec.tools", fields("workspace", list(fields("name", "read"))), "tools is immutable"},
		{"a ledger set later", "spec.ledger", fields("retention", "Delete"), "ledger is immutable"},
		{"another image", "spec.workspace.image", "golang:1.27", "workspace.image is immutable"},
		{"the workspace taken away", "spec.workspace", nil, "workspace.image is immutable"},
		{"another volume", "spec.workspace.volume.size", "2Gi", "workspace.volume is immutable"},
		{"other setup", "spec.workspace.setup.0.command", list("true"), "workspace.setup is immutable"},
		{"other resources", "spec.workspace.resources", fields("requests", fields("cpu", "1")), ""},
		{"more turns", "spec.limits.maxTurns", int64(11), ""},
		{"fewer turns", "spec.limits.maxTurns", int64(9), "limits.maxTurns can only be raised"},
		{"turns back to the default of 200", "spec.limits.maxTurns", nil, ""},
		{"fewer retries than the default of 100", "spec.limits.maxModelRetries", int64(99), "limits.maxModelRetries can only be raised"},
		{"as many retries as the default", "spec.limits.maxModelRetries", int64(100), ""},
		{"fewer tokens", "spec.limits.maxTokens", int64(999), "limits.maxTokens can only be raised or removed"},
		{"tokens without limit", "spec.limits.maxTokens", nil, ""},
		{"less money", "spec.limits.maxCostMicroUSD", int64(499), "limits.maxCostMicroUSD can only be raised"},
		{"all limits back to the defaults", "spec.limits", nil, ""},
		{"a shorter deadline than the default", "spec.limits.activeDeadlineSeconds", int64(86399), "limits.activeDeadlineSeconds can only be raised"},
		{"suspended", "spec.desiredState", "Suspended", ""},
		{"another pod template", "spec.podTemplate", fields("priorityClassName", "low"), ""},
		{"a time to live", "spec.ttlSecondsAfterFinished", int64(60), ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			wantErrors(t, runs.validate(t.Context(), t, set(t, runManifest, test.path, test.value), object(t, runManifest)), test.want)
		})
	}
}

func TestCancelledIsFinal(t *testing.T) {
	runs := loadCRD(t, "agentruns")
	cancelled := set(t, runManifest, "spec.desiredState", "Cancelled")
	suspended := set(t, runManifest, "spec.desiredState", "Suspended")
	wantErrors(t, runs.validate(t.Context(), t, cancelled, suspended), "")
	wantErrors(t, runs.validate(t.Context(), t, object(t, runManifest), suspended), "")
	wantErrors(t, runs.validate(t.Context(), t, suspended, cancelled), "Cancelled is final")
	wantErrors(t, runs.validate(t.Context(), t, object(t, runManifest), cancelled), "Cancelled is final")
}

func condition(kind, status, reason string) map[string]any {
	return fields("type", kind, "status", status, "reason", reason, "message", "", "lastTransitionTime", "2026-01-02T03:04:05Z")
}

func TestTheStatusOfARunOnlyMovesForward(t *testing.T) {
	runs := loadCRD(t, "agentruns")
	status := func(epoch int64, podName string, conditions ...any) map[string]any {
		return set(t, runManifest, "status", fields("epoch", epoch, "podName", podName, "conditions", list(conditions...)))
	}
	running := condition("Succeeded", "Unknown", "Running")
	done := condition("Succeeded", "True", "Completed")
	failed := condition("Succeeded", "False", "Cancelled")
	finished := condition("Finished", "True", "Finished")
	unfinished := condition("Finished", "False", "NotFinished")
	tests := []struct {
		name     string
		old, new map[string]any
		want     string
	}{
		{"the next epoch with its pod", status(1, "report-1"), status(2, "report-2"), ""},
		{"the same epoch", status(2, "report-2"), status(2, "report-2"), ""},
		{"an epoch back", status(2, "report-2"), status(1, "report-1"), "epoch never decreases"},
		{"the epoch taken away", status(2, "report-2"), set(t, runManifest, "status", fields("podName", "report-2")), "epoch never decreases"},
		{"another pod in the same epoch", status(2, "report-2"), status(2, "report-1"), "podName changes only with a new epoch"},
		{"the whole status taken away", status(2, "report-2"), object(t, runManifest), "status cannot be removed"},
		{"success", status(1, "report-1", running, unfinished), status(1, "report-1", done, finished), ""},
		{"success taken back", status(1, "report-1", done), status(1, "report-1", running), "condition Succeeded is final"},
		{"success turned to failure", status(1, "report-1", done), status(1, "report-1", failed), "condition Succeeded is final"},
		{"another reason for a failure", status(1, "report-1", failed), status(1, "report-1", condition("Succeeded", "False", "RestartLimit")), "condition Succeeded is final"},
		{"success removed", status(1, "report-1", done, finished), status(1, "report-1", finished), "condition Succeeded is final"},
		{"all conditions removed", status(1, "report-1", done), set(t, runManifest, "status", fields("epoch", int64(1), "podName", "report-1")), "condition Succeeded is final"},
		{"a finished run unfinished", status(1, "report-1", finished), status(1, "report-1", unfinished), "condition Finished is final"},
		{"other conditions change after the end", status(1, "report-1", done, condition("Parked", "True", "AllRoutesTripped")), status(1, "report-1", done, condition("Parked", "False", "NotParked")), ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			wantErrors(t, runs.validate(t.Context(), t, test.new, test.old), test.want)
		})
	}
}

func TestARunnersReportIsBounded(t *testing.T) {
	runs := loadCRD(t, "agentruns")
	manifest := runManifest + `
status:
  epoch: 1
  podName: report-1
  runner:
    epoch: 1
    turn: 0
    final: {outcome: Produced, reason: Completed, text: done}
`
	tests := []struct {
		name  string
		path  string
		value any
		want  string
	}{
		{"turn 0 is a value", "status.runner.turn", int64(0), ""},
		{"a text of 4 KiB", "status.runner.final.text", strings.Repeat("x", 4096), ""},
		{"a longer text", "status.runner.final.text", strings.Repeat("x", 4097), "status.runner.final.text: Too long"},
		{"a fenced end without the ledger's epoch", "status.runner.final.outcome", "Fenced", ""},
		{"a reason of several words", "status.runner.final.reason", "it broke", "status.runner.final.reason"},
		{"a provider's code with other characters", "status.runner.routes", list(fields("route", "r", "lastCode", "say \"hi\"")), "status.runner.routes[0].lastCode"},
		{"an unknown outcome", "status.runner.final.outcome", "Maybe", "status.runner.final.outcome: Unsupported value"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			wantErrors(t, runs.validate(t.Context(), t, set(t, manifest, test.path, test.value), nil), test.want)
		})
	}
}
