package integration

import (
	"context"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"belay.dev/belay/api/v1alpha1"
	"belay.dev/belay/internal/runtime/ledger/record"
)

func TestRunWaitsForItsLadder(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.provider("only", oneAnswer)
	s.create(s.secret("only"), s.run("early"))

	run := s.await("early", soon, "says that its ladder is missing", func(r *v1alpha1.AgentRun) bool {
		return reason(r, v1alpha1.ConditionAdmitted) == v1alpha1.ReasonLadderNotFound
	})
	if isTrue(run, v1alpha1.ConditionAdmitted) || !strings.Contains(message(run, v1alpha1.ConditionAdmitted), ladderName) {
		t.Errorf("Admitted is %s, want False with the name of the ladder", condition(run, v1alpha1.ConditionAdmitted))
	}
	if pods := s.pods("early"); len(pods) != 0 || run.Status.Epoch != 0 {
		t.Errorf("the run has %d pods and epoch %d, want none of either before its ladder exists", len(pods), run.Status.Epoch)
	}
	s.create(s.ladder("only"))
	run = s.completes("early")
	if !isTrue(run, v1alpha1.ConditionAdmitted) {
		t.Errorf("Admitted is %s, want True", condition(run, v1alpha1.ConditionAdmitted))
	}
}

func TestMeteredLegIsDeniedBeforeAnyRequest(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.provider("paid", oneAnswer)
	run := s.run("thrifty")
	run.Spec.Routing = nil // the default denies what is paid by use
	s.create(s.secret("paid"), s.ladder("paid"), run)

	run = s.fails("thrifty", v1alpha1.ReasonPolicyConflict)
	for _, part := range []string{"leg paid", "routing.metered: Allow"} {
		if !strings.Contains(message(run, v1alpha1.ConditionSucceeded), part) {
			t.Errorf("the message does not name %q: %s", part, message(run, v1alpha1.ConditionSucceeded))
		}
	}
	s.wantAsked("paid", 0)
	if pods := s.pods("thrifty"); len(pods) != 0 {
		t.Errorf("the run has %d pods, want none", len(pods))
	}
}

func TestLegWithoutItsKeyIsSkipped(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.provider("primary", oneAnswer)
	s.provider("backup", oneAnswer)
	s.create(s.secret("backup"), s.ladder("primary", "backup"), s.run("skips"))

	run := s.completes("skips")
	s.wantAsked("primary", 0)
	s.wantAsked("backup", 1)
	told, err := shared.Belay(s.ctx, "ledger", "show", s.ledgerDir(run))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(told, "primary") || !strings.Contains(told, "CredentialMissing") {
		t.Errorf("belay ledger show does not say that leg primary was skipped for CredentialMissing:\n%s", told)
	}
	if m := message(run, v1alpha1.ConditionRouteAvailable); !strings.Contains(m, "leg primary is left out: CredentialMissing") {
		t.Errorf("the run's condition RouteAvailable does not name the leg that its chain lacks: %q", m)
	}
}

func TestRunWithoutAnyKeyFailsAndNamesIt(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.provider("only", oneAnswer)
	s.create(s.secret(), s.ladder("only"), s.run("keyless"))

	run := s.fails("keyless", v1alpha1.ReasonCredentialInvalid)
	for _, part := range []string{`key "only"`, `Secret "` + secretName + `"`, `leg "only"`} {
		if !strings.Contains(message(run, v1alpha1.ConditionSucceeded), part) {
			t.Errorf("the message does not name %s: %s", part, message(run, v1alpha1.ConditionSucceeded))
		}
	}
	s.wantAsked("only", 0)
}

func TestBadEditOfTheLadderDoesNotEndARun(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.provider("only", gatedTurns)
	s.create(s.secret("only"), s.ladder("only"), s.run("steady"))

	run := s.midCall("steady")
	good := run.Status.Epoch
	s.editLadder("is rejected", false, func(l *v1alpha1.RouteLadder) { l.Spec.Providers[0].CABundle = brokenBundle })
	s.open(gate, run)
	run = s.completes("steady")
	if run.Status.Epoch != good {
		t.Errorf("the run needed epoch %d, want it to end in epoch %d", run.Status.Epoch, good)
	}
	for _, plan := range payloads[record.TurnPlan](s.ledger(run)) {
		if plan.Ladder.Generation != 1 {
			t.Errorf("turn %d was planned by generation %d of the ladder, want 1, the last accepted one", plan.Turn, plan.Ladder.Generation)
		}
	}
}

func TestRunThatLosesItsPodUnderABadLadderWaitsForAGoodOne(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.provider("only", gatedTurns)
	s.create(s.secret("only"), s.ladder("only"), s.run("patient"))

	s.midCall("patient")
	s.editLadder("is rejected", false, func(l *v1alpha1.RouteLadder) { l.Spec.Providers[0].CABundle = brokenBundle })
	if err := shared.Node.KillPod(s.ns, "patient-1"); err != nil {
		t.Fatal(err)
	}
	run := s.await("patient", long, "is parked", func(r *v1alpha1.AgentRun) bool { return isTrue(r, v1alpha1.ConditionParked) })
	if reason(run, v1alpha1.ConditionParked) != v1alpha1.ReasonLadderUnusable || !strings.Contains(message(run, v1alpha1.ConditionParked), "caBundle") {
		t.Errorf("Parked is %s, want LadderUnusable and what is wrong", condition(run, v1alpha1.ConditionParked))
	}
	s.editLadder("is accepted", true, func(l *v1alpha1.RouteLadder) { l.Spec.Providers[0].CABundle = "" })
	run = s.completes("patient")
	s.wantOnce(run)
	s.wantIntact(run)
}

// brokenBundle looks like a certificate to the API server's rules and is none.
const brokenBundle = "-----BEGIN CERTIFICATE-----\nYm9yZWQ=\n-----END CERTIFICATE-----\n"

// editLadder changes the ladder and waits until the manager has judged the change.
func (s *scene) editLadder(what string, accepted bool, change func(*v1alpha1.RouteLadder)) {
	s.t.Helper()
	edit(s, ladderName, change)
	s.eventually(soon, "the edited ladder "+what, func() (bool, string) {
		ladder := get[v1alpha1.RouteLadder](s, ladderName)
		c := meta.FindStatusCondition(ladder.Status.Conditions, v1alpha1.ConditionAccepted)
		if c == nil || c.ObservedGeneration != ladder.Generation {
			return false, "not judged yet"
		}
		return (c.Status == "True") == accepted, c.Message
	})
}

func TestSetupStepThatFailsSaysWhichAndHow(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.provider("only", oneAnswer)
	run := s.run("unprepared")
	run.Spec.RestartLimit = ptr.To[int32](0)
	run.Spec.Workspace.Setup = []v1alpha1.SetupStep{{Name: "clone", Command: []string{"sh", "-c", "echo no such repository >&2; exit 3"}}}
	s.create(s.secret("only"), s.ladder("only"), run)

	run = s.fails("unprepared", v1alpha1.ReasonRestartLimit)
	for _, part := range []string{"setup-clone", "exit code 3", "restartLimit"} {
		if !strings.Contains(message(run, v1alpha1.ConditionSucceeded), part) {
			t.Errorf("the message does not name %q: %s", part, message(run, v1alpha1.ConditionSucceeded))
		}
	}
	if got := s.kubectl("logs", "unprepared-1", "-c", "setup-clone"); !strings.HasPrefix(got, "no such repository\n") {
		t.Errorf("the step's log is %q, want what it wrote", got)
	}
	s.wantAsked("only", 0)
}

func TestUnknownWorkspaceImageEndsAtTheStartupDeadline(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.provider("only", oneAnswer)
	run := s.run("imageless")
	run.Spec.Workspace.Image = "registry.example.com/missing:1"
	run.Spec.StartupDeadlineSeconds = 5
	s.create(s.secret("only"), s.ladder("only"), run)

	run = s.fails("imageless", v1alpha1.ReasonStartupDeadline)
	for _, part := range []string{"container workspace", "registry.example.com/missing:1", "startupDeadlineSeconds"} {
		if !strings.Contains(message(run, v1alpha1.ConditionSucceeded), part) {
			t.Errorf("the message does not name %q: %s", part, message(run, v1alpha1.ConditionSucceeded))
		}
	}
	s.wantAsked("only", 0)
}

func TestManifestThatMakesNoSenseIsRefusedByTheAPIServer(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	twoTasks := s.run("undecided")
	twoTasks.Spec.Task = ""
	twinLegs := s.ladder("a", "b")
	twinLegs.Spec.Legs[1].Name = "a"
	orphanLeg := s.ladder("a")
	orphanLeg.Spec.Legs[0].Provider = "nobody"
	frozen := s.run("frozen")
	s.create(frozen)
	for _, c := range []struct {
		what string
		try  func(context.Context) error
		want string
	}{
		{"a run without a task", func(ctx context.Context) error { return shared.api.Create(ctx, twoTasks) }, "task"},
		{"a ladder with two legs of one name", func(ctx context.Context) error { return shared.api.Create(ctx, twinLegs) }, "unique"},
		{"a leg of a provider that does not exist", func(ctx context.Context) error { return shared.api.Create(ctx, orphanLeg) }, "spec.providers"},
		{"another task for a run that exists", func(ctx context.Context) error {
			run := get[v1alpha1.AgentRun](s, "frozen")
			change := client.MergeFrom(run.DeepCopy())
			run.Spec.Task = "Something else."
			return shared.api.Patch(ctx, run, change)
		}, "task is immutable"},
	} {
		if err := c.try(s.ctx); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: the error is %v, want one that says %q", c.what, err, c.want)
		}
	}
}
