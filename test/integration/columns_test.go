package integration

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"belay.dev/belay/api/v1alpha1"
)

// variable are the cells of a table that differ from run to run.
var variable = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`^\d{4}-\d\d-\d\dT[\d:]+Z$`), "TIME"},
	{regexp.MustCompile(`-[0-9a-f]{10}$`), "-HASH"},
	{regexp.MustCompile(`^(\d+m)?\d+s$`), "AGE"},
}

// table makes a table of kubectl comparable: its cells are separated by bars, and those that vary are named.
func table(out string) string {
	rows := strings.Split(strings.TrimRight(out, "\n"), "\n")
	var starts []int
	for _, at := range regexp.MustCompile(`\S+( \S+)*`).FindAllStringIndex(rows[0], -1) {
		starts = append(starts, at[0])
	}
	for i, row := range rows {
		var cells []string
		for j, start := range starts {
			end := len(row)
			if j+1 < len(starts) {
				end = min(starts[j+1], len(row))
			}
			cell := strings.TrimSpace(row[min(start, len(row)):end])
			for _, v := range variable {
				cell = v.pattern.ReplaceAllString(cell, v.name)
			}
			cells = append(cells, cell)
		}
		rows[i] = strings.TrimSpace(strings.Join(cells, "|"))
	}
	return strings.Join(rows, "\n")
}

func TestKubectlGetShowsWhatMatters(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.provider("primary", outage)
	s.provider("backup", oneAnswer)
	ladder := s.ladder("primary", "backup")
	ladder.Spec.Breaker = &v1alpha1.BreakerPolicy{BaseCooldownSeconds: ptr.To[int32](900)}
	denied := s.run("denied")
	denied.Spec.Routing.Metered = v1alpha1.MeteredDeny
	lost := s.run("lost")
	lost.Spec.LadderRef.Name = "missing"
	s.create(s.secret("primary", "backup"), ladder, s.run("done"), denied, lost)
	s.completes("done")
	s.fails("denied", v1alpha1.ReasonPolicyConflict)
	s.await("lost", soon, "says that its ladder is missing", func(r *v1alpha1.AgentRun) bool {
		return reason(r, v1alpha1.ConditionAdmitted) == v1alpha1.ReasonLadderNotFound
	})
	s.awaitHealth("primary", v1alpha1.HealthOpen)
	s.awaitHealth("backup", v1alpha1.HealthClosed)
	s.eventually(soon, "the ladder mirrors its routes", func() (bool, string) {
		available := get[v1alpha1.RouteLadder](s, ladderName).Status.Available
		return available == "1/2", available
	})

	for _, c := range []struct{ resources, wide, want string }{
		{resources: "arun", want: `
NAME|SUCCEEDED|REASON|LEG|TURN|RESUMES|COST|AGE
denied|False|PolicyConflict|||||AGE
done|True|Completed|backup (from primary)|1|0|0.00021|AGE
lost|Unknown|Pending|||||AGE`},
		{resources: "arun", wide: "-owide", want: `
NAME|SUCCEEDED|REASON|LEG|TURN|RESUMES|COST|AGE|POD|TOKENS|LADDER|EPOCH
denied|False|PolicyConflict|||||AGE|||chain|
done|True|Completed|backup (from primary)|1|0|0.00021|AGE|done-1|1100|chain|1
lost|Unknown|Pending|||||AGE|||missing|`},
		{resources: "ladder", want: `
NAME|LEGS|READY|AVAILABLE|ACTIVE|AGE
chain|2|True|1/2|backup|AGE`},
		{resources: "providerhealth", want: `
NAME|STATE|PROVIDER|MODEL|FAILURES|TRIPS|UNTIL|REASON|AGE
127-0-0-1-model-of-backup-HASH|Closed|127.0.0.1|model-of-backup|0|0||Available|AGE
127-0-0-1-model-of-primary-HASH|Open|127.0.0.1|model-of-primary|3|1|TIME|Open|AGE`},
	} {
		args := []string{"get", c.resources}
		if c.wide != "" {
			args = append(args, c.wide)
		}
		if diff := cmp.Diff(strings.TrimSpace(c.want), table(s.kubectl(args...))); diff != "" {
			t.Errorf("kubectl %s (-want +got):\n%s", strings.Join(args, " "), diff)
		}
	}
	all := s.kubectl("get", "belay")
	for _, part := range []string{"agentrun.agents.belay.dev/done", "routeladder.agents.belay.dev/" + ladderName, "providerhealth.agents.belay.dev/127-0-0-1-model-of-primary"} {
		if !strings.Contains(all, part) {
			t.Errorf("kubectl get belay does not list %s:\n%s", part, all)
		}
	}
}

func TestKubectlDescribeOfAFailedRunTellsWhatHappenedWhyAndWhatToDo(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.provider("only", oneAnswer)
	denied := s.run("denied")
	denied.Spec.Routing.Metered = v1alpha1.MeteredDeny
	s.create(s.secret(), s.ladder("only"), s.run("keyless"), denied)
	s.fails("keyless", v1alpha1.ReasonCredentialInvalid)
	s.fails("denied", v1alpha1.ReasonPolicyConflict)

	for run, parts := range map[string][]string{
		"keyless": {
			"CredentialInvalid", `leg "only"`, `key "only" of Secret "keys" does not exist`, "Warning", "Outcome:", "Failed",
		},
		"denied": {
			"PolicyConflict", "leg only of RouteLadder chain is metered", "set routing.metered: Allow", "Warning",
		},
	} {
		var told string
		s.eventually(soon, "the events of run "+run+" are there", func() (bool, string) {
			told = s.kubectl("describe", "arun", run)
			_, events, _ := strings.Cut(told, "\nEvents:")
			return strings.Contains(events, parts[0]), events
		})
		for _, part := range parts {
			if !strings.Contains(told, part) {
				t.Errorf("kubectl describe of run %s does not say %q:\n%s", run, part, told)
			}
		}
	}
}
