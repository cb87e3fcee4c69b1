package integration

import (
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"belay.dev/belay/api/v1alpha1"
)

func TestKubectlWaitReturnsForEveryEnd(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.provider("only", oneAnswer)
	denied := s.run("denied")
	denied.Spec.Routing.Metered = v1alpha1.MeteredDeny
	s.create(s.secret("only"), s.ladder("only"), s.run("good"), denied)

	for _, name := range []string{"good", "denied"} {
		if got, want := s.kubectl("wait", "--for=condition=Finished", "--timeout=120s", "arun/"+name), "agentrun.agents.belay.dev/"+name+" condition met\n"; got != want {
			t.Errorf("kubectl wait printed %q, want %q", got, want)
		}
		// kubectl wait takes a condition of an older generation for outdated, so a change after the end must not hang it.
		edit(s, name, func(r *v1alpha1.AgentRun) { r.Spec.TTLSecondsAfterFinished = ptr.To[int32](3600) })
		s.kubectl("wait", "--for=condition=Finished", "--timeout=60s", "arun/"+name)
	}
	s.kubectl("wait", "--for=condition=Succeeded", "--timeout=60s", "arun/good")
	s.kubectl("wait", "--for=condition=Succeeded=False", "--timeout=60s", "arun/denied")
	s.kubectl("wait", "--for=condition=Stalled", "--timeout=60s", "arun/denied")

	// What has not ended does not look as if it had.
	s.provider("only", `
- {silence: {}, times: Forever}`)
	s.create(s.run("busy"))
	if out, err := shared.Kubectl(s.ctx, "wait", "--for=condition=Finished", "--timeout=3s", "arun/busy", "-n", s.ns); err == nil || !strings.Contains(err.Error(), "timed out") {
		t.Errorf("kubectl wait for a busy run printed %q and gave %v, want a timeout", out, err)
	}
}
