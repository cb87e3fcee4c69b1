package chart

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"belay.dev/belay/test/poll"
)

var agentRuns = schema.GroupVersionResource{Group: "agents.belay.dev", Version: "v1alpha1", Resource: "agentruns"}

// policed is a namespace that no manager watches, so the test moves runs and pods itself.
const policed = "policed"

// policedPod is a pod that nobody starts: only its name, UID and account matter.
const policedPod = `
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  serviceAccountName: belay-runner
  schedulerName: nobody
  containers: [{name: runner, image: none}]
`

func (i *installation) checkRunnerPolicy() {
	i.kubectl("create", "namespace", policed)
	i.apply(policed, runnerAccount(i.t))
	for _, run := range []string{"mine", "other"} {
		i.apply(policed, fmt.Sprintf(`{"apiVersion": "agents.belay.dev/v1alpha1", "kind": "AgentRun", "metadata": {"name": %q},
			"spec": {"ladderRef": {"name": "models"}, "task": "Whatever."}}`, run))
		i.apply(policed, fmt.Sprintf(policedPod, run+"-1"))
		i.status(run, map[string]any{"epoch": 1, "podName": run + "-1", "podUID": i.uid(run + "-1")})
	}
	const report = `{"status": {"runner": {"epoch": 1, "turn": 1}}}`
	mine := i.runner(policed, "mine-1")
	// A policy takes effect a moment after it was created; in the time of this test it has.
	if err := patch(i.t, mine, "mine", report, "status"); err != nil {
		i.t.Fatalf("the run's own pod may not report: %v", err)
	}
	for _, test := range []struct {
		name   string
		runner dynamic.Interface
		run    string
		patch  string
		want   string
	}{
		{"another run", mine, "other", report, "only the run's current pod may report on it: the run's is other-1, this token is of mine-1"},
		{"another key", mine, "mine", `{"status": {"outcome": "Produced"}}`, "a runner may change the key runner of the status only; this changes outcome"},
		{"a key taken away", mine, "mine", `{"status": {"podUID": null, "runner": {"epoch": 1, "turn": 2}}}`, "this changes podUID"},
		{"another epoch", mine, "mine", `{"status": {"runner": {"epoch": 2}}}`, "a runner reports in the run's current epoch"},
		{"a token of no pod", i.runner(policed, ""), "mine", report, "this token is of no pod"},
		{"an impersonated account", i.impersonated(), "mine", report, "this token is of no pod"},
	} {
		wantRefused(i.t, test.name, patch(i.t, test.runner, test.run, test.patch, "status"), test.want)
	}

	// Whatever else somebody binds to the runners' account, a runner changes nothing but its report.
	i.kubectl("create", "rolebinding", "-n", policed, "generous", "--clusterrole=belay-run-editor", "--serviceaccount="+policed+":belay-runner")
	poll.Until(i.t, soon, "the generous binding takes effect", func() error {
		_, err := mine.Resource(agentRuns).Namespace(policed).List(i.t.Context(), metav1.ListOptions{})
		return err
	})
	wantRefused(i.t, "its own spec", patch(i.t, mine, "mine", `{"spec": {"desiredState": "Cancelled"}}`), "a runner may change nothing of a run but its status")
	i.kubectl("create", "namespace", "abroad")
	i.apply("abroad", runnerAccount(i.t))
	i.apply("abroad", fmt.Sprintf(policedPod, "mine-1"))
	i.kubectl("create", "rolebinding", "-n", policed, "abroad", "--role=belay-runner", "--serviceaccount=abroad:belay-runner")
	abroad := i.runner("abroad", "mine-1")
	poll.Until(i.t, soon, "a runner of another namespace is refused by the policy", func() error {
		err := patch(i.t, abroad, "mine", report, "status")
		if err == nil || !strings.Contains(err.Error(), "a runner may report on runs of its own namespace only") {
			return fmt.Errorf("it gets %w", err)
		}
		return nil
	})

	i.status("mine", map[string]any{"epoch": 2, "podName": "mine-2", "podUID": nil})
	wantRefused(i.t, "a stale pod", patch(i.t, mine, "mine", `{"status": {"runner": {"epoch": 2}}}`, "status"), "the run's is mine-2, this token is of mine-1")

	// A pod of the same name is not the same pod.
	i.apply(policed, fmt.Sprintf(policedPod, "mine-2"))
	earlier := i.runner(policed, "mine-2")
	i.status("mine", map[string]any{"podUID": "00000000-0000-0000-0000-000000000000"})
	wantRefused(i.t, "a pod of the same name", patch(i.t, earlier, "mine", `{"status": {"runner": {"epoch": 2}}}`, "status"), "an earlier pod of the same name")
}

// runnerAccount is what docs/operations.md tells to make in a namespace without bootstrap.
func runnerAccount(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```yaml\n(apiVersion: v1\nkind: ServiceAccount.*?)```").FindSubmatch(text)
	if block == nil {
		t.Fatal("docs/operations.md does not say what a namespace without bootstrap needs")
	}
	return string(block[1])
}

func wantRefused(t *testing.T, what string, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: got %v, want a refusal with %q", what, err, want)
	}
}

func patch(t *testing.T, as dynamic.Interface, run, patch string, subresources ...string) error {
	t.Helper()
	_, err := as.Resource(agentRuns).Namespace(policed).Patch(t.Context(), run, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	return err
}

// status writes as the manager would.
func (i *installation) status(run string, status map[string]any) {
	i.t.Helper()
	text, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		i.t.Fatal(err)
	}
	i.kubectl("patch", "-n", policed, "agentrun", run, "--subresource=status", "--type=merge", "-p", string(text))
}

func (i *installation) uid(pod string) string {
	i.t.Helper()
	return i.field(policed, "pod/"+pod, "{.metadata.uid}")
}

// runner is a client with the token that the kubelet gives to a pod; without a pod, a token of the account alone.
func (i *installation) runner(namespace, pod string) dynamic.Interface {
	i.t.Helper()
	request := &authenticationv1.TokenRequest{}
	if pod != "" {
		uid := types.UID(i.field(namespace, "pod/"+pod, "{.metadata.uid}"))
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod, UID: uid}
	}
	admin, err := kubernetes.NewForConfig(i.Rig.Config())
	if err != nil {
		i.t.Fatal(err)
	}
	request, err = admin.CoreV1().ServiceAccounts(namespace).CreateToken(i.t.Context(), "belay-runner", request, metav1.CreateOptions{})
	if err != nil {
		i.t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(i.Rig.Config())
	config.BearerToken = request.Status.Token
	return i.client(config)
}

// impersonated says that it is the account, and has none of a token's facts.
func (i *installation) impersonated() dynamic.Interface {
	config := i.Rig.Config()
	config.Impersonate.UserName = "system:serviceaccount:" + policed + ":belay-runner"
	return i.client(config)
}

func (i *installation) client(config *rest.Config) dynamic.Interface {
	i.t.Helper()
	c, err := dynamic.NewForConfig(config)
	if err != nil {
		i.t.Fatal(err)
	}
	return c
}
