package chart

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"belay.dev/belay/test/cluster"
	"belay.dev/belay/test/poll"
)

const (
	system = "belay-system"
	// team is watched from the start, later only after an upgrade.
	team, later = "team", "later"
	soon        = 40 * time.Second
)

// installation is the chart on a cluster of its own. Pods of the node share the machine's network, so each port is a free
// one, and there is one manager at a time.
type installation struct {
	*cluster.Cluster
	t                      *testing.T
	metrics, probes, chaos int
}

// TestInstallation follows an installation through its life, in the order in which it happens.
func TestInstallation(t *testing.T) {
	i := newInstallation(t)
	for _, chapter := range []struct {
		name string
		run  func(*installation)
	}{
		{"install in one namespace", (*installation).install},
		{"the notes tell what works", (*installation).followNotes},
		{"a run completes on the second leg", (*installation).completeRun},
		{"the manager has its rights in that namespace only", (*installation).checkRights},
		{"a runner reports on its own run only", (*installation).checkRunnerPolicy},
		{"metrics are for those who may read them", (*installation).checkMetrics},
		{"an upgrade of nothing changes nothing", (*installation).upgradeNothing},
		{"an upgrade changes what it says", (*installation).upgradeEverywhere},
		{"uninstalled, the runs are still there", (*installation).uninstall},
		{"installed again, it adopts them", (*installation).reinstall},
	} {
		if !t.Run(chapter.name, func(t *testing.T) { i.t = t; chapter.run(i) }) {
			return
		}
	}
}

func newInstallation(t *testing.T) *installation {
	dir, err := os.MkdirTemp("", "belay-chart-")
	if err != nil {
		t.Fatal(err)
	}
	// The pods run as users of their own, who have to get to their files.
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	c, err := cluster.Start(t.Context(), cluster.Options{Dir: dir, Root: root, Bare: true})
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("logs and volumes are kept in %s", dir)
			return
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	i := &installation{Cluster: c, t: t}
	for _, port := range []*int{&i.metrics, &i.probes, &i.chaos} {
		*port = freePort(t)
	}
	for _, namespace := range []string{system, team, later} {
		i.kubectl("create", "namespace", namespace)
		i.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
	}
	return i
}

// freePort is a port that was free a moment ago.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// kubectl runs it as the administrator; a failure fails the test.
func (i *installation) kubectl(args ...string) string {
	i.t.Helper()
	out, err := i.Kubectl(i.t.Context(), args...)
	if err != nil {
		i.t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

func (i *installation) apply(namespace, manifest string, args ...string) {
	i.t.Helper()
	if _, err := i.KubectlInput(i.t.Context(), manifest, append([]string{"apply", "--server-side", "-n", namespace, "-f", "-"}, args...)...); err != nil {
		i.t.Fatal(err)
	}
}

func (i *installation) field(namespace, object, path string) string {
	i.t.Helper()
	return i.kubectl("get", "-n", namespace, object, "-o", "jsonpath="+path)
}

func (i *installation) helm(args ...string) string {
	i.t.Helper()
	out, err := helm(i.t.Context(), i.t, i.Rig.Kubeconfig(), append(args, "--namespace", system)...)
	if err != nil {
		i.t.Fatalf("%v\n%s\n%s", err, i.diagnosis(), out)
	}
	return out
}

// diagnosis is what a person would look at when the chart does not come up.
func (i *installation) diagnosis() string {
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	var all strings.Builder
	for _, args := range [][]string{
		{"get", "pods", "-n", system, "-o", "wide"},
		{"get", "events", "-n", system},
		{"logs", "-n", system, "deployment/belay-manager", "--tail=20"},
	} {
		out, err := i.Kubectl(ctx, args...)
		fmt.Fprintf(&all, "$ kubectl %s\n%s%v\n", strings.Join(args, " "), out, err)
	}
	return all.String()
}

// values are the flags of an installation that works on this machine.
func (i *installation) values() []string {
	return []string{
		"--wait", "--timeout", "60s",
		"--set", "image.repository=" + strings.TrimSuffix(cluster.Image, ":dev") + ",image.tag=dev,replicas=1",
		"--set", fmt.Sprintf("metrics.port=%d,probes.port=%d,chaos.enabled=true,chaos.port=%d", i.metrics, i.probes, i.chaos),
		"--set", "metrics.readers[0].namespace=monitoring,metrics.readers[0].name=prometheus,podDisruptionBudget.enabled=true",
	}
}

func (i *installation) install() {
	out := i.helm(append([]string{"install", "belay", chartDir, "--set", "watchNamespaces={" + team + "}"}, i.values()...)...)
	if !strings.Contains(out, "STATUS: deployed") {
		i.t.Errorf("helm install says:\n%s", out)
	}
	// The namespace enforces the restricted standard, so that this pod exists shows that it meets it.
	if ready := i.field(system, "deployment/belay-manager", "{.status.readyReplicas}"); ready != "1" {
		i.t.Errorf("%s managers are ready, want 1", ready)
	}
	for _, namespace := range []string{team, later} {
		i.apply(namespace, fmt.Sprintf(ladderAndRun, i.chaos))
	}
}

// followNotes applies what the notes say, as far as a dry run goes.
func (i *installation) followNotes() {
	notes := i.helm("get", "notes", "belay")
	manifests := regexp.MustCompile(`(?s)<<'END'\n(.*?)\nEND\n`).FindAllStringSubmatch(notes, -1)
	if len(manifests) == 0 {
		i.t.Fatalf("the notes have no manifest:\n%s", notes)
	}
	for _, manifest := range manifests {
		i.apply("default", manifest[1], "--dry-run=server")
	}
	if !strings.Contains(notes, "kubectl -n "+team+" ") {
		i.t.Errorf("the notes do not speak of the watched namespace:\n%s", notes)
	}
}

// ladderAndRun rehearses with the chart's own script; %[1]d is the port of its providers.
const ladderAndRun = `
apiVersion: v1
kind: Secret
metadata: {name: keys}
stringData: {any: rehearsal}
---
apiVersion: agents.belay.dev/v1alpha1
kind: RouteLadder
metadata: {name: models}
spec:
  providers:
  - {name: primary, dialect: OpenAIChat, baseURL: "http://127.0.0.1:%[1]d/primary/v1", insecure: Loopback, credential: {secretRef: {name: keys, key: any}}}
  - {name: backup, dialect: OpenAIChat, baseURL: "http://127.0.0.1:%[1]d/backup/v1", insecure: Loopback, credential: {secretRef: {name: keys, key: any}}}
  legs:
  - {name: a, provider: primary, model: large, contextWindow: 128000, billing: Included}
  - {name: b, provider: backup, model: small, contextWindow: 128000, billing: Included}
---
apiVersion: agents.belay.dev/v1alpha1
kind: AgentRun
metadata: {name: rehearsal}
spec:
  ladderRef: {name: models}
  task: Write one line to rehearsal.txt.
  tools: {workspace: [{name: write}]}
  workspace: {image: "golang:1.26", volume: {size: 1Gi}}
`

func (i *installation) completeRun() { i.wantCompleted(team) }

func (i *installation) wantCompleted(namespace string) {
	i.t.Helper()
	poll.Until(i.t, soon, "the run of "+namespace+" completes on leg b", func() error {
		got, err := i.Kubectl(i.t.Context(), "get", "-n", namespace, "agentrun/rehearsal", "-o",
			`jsonpath={.status.conditions[?(@.type=="Succeeded")].status} {.status.conditions[?(@.type=="Succeeded")].reason} {.status.runner.legDisplay}`)
		if err == nil && got != "True Completed b (from a)" {
			err = fmt.Errorf("it is %q", got)
		}
		return err
	})
}

func (i *installation) checkRights() {
	if got := i.field(later, "agentrun/rehearsal", "{.status}"); got != "" {
		i.t.Errorf("the run of a namespace that is not watched has status %s", got)
	}
	for _, test := range []struct{ question, want string }{
		{"create pods -n " + team, "yes"},
		{"patch agentruns.agents.belay.dev --subresource=status -n " + team, "yes"},
		{"create pods -n " + later, "no"},
		{"list agentruns.agents.belay.dev -n " + later, "no"},
		{"list secrets -n " + team, "no"},
		{"get secrets -n " + system, "no"},
		{"get nodes", "yes"},
		{"list nodes", "no"},
		{"create subjectaccessreviews.authorization.k8s.io", "yes"},
		{"update leases.coordination.k8s.io -n " + system, "yes"},
		{"update leases.coordination.k8s.io -n " + team, "no"},
	} {
		// "no" is exit code 1.
		got, err := i.Kubectl(i.t.Context(), append([]string{"auth", "can-i", "--as=system:serviceaccount:belay-system:belay-manager"}, strings.Fields(test.question)...)...)
		if strings.TrimSpace(got) != test.want {
			i.t.Errorf("may the manager %s? %q (%v), want %s", test.question, got, err, test.want)
		}
	}
	for _, test := range []struct{ role, question, want string }{
		{"view", "list agentruns.agents.belay.dev", "yes"},
		{"view", "create agentruns.agents.belay.dev", "no"},
		{"edit", "create agentruns.agents.belay.dev", "yes"},
		{"edit", "patch routeladders.agents.belay.dev", "no"},
		{"edit", "patch providerhealths.agents.belay.dev", "no"},
		{"admin", "patch routeladders.agents.belay.dev", "yes"},
		{"admin", "patch providerhealths.agents.belay.dev", "yes"},
	} {
		person := test.role + "-person"
		i.apply(team, fmt.Sprintf(`{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": %[1]q},
			"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": %[2]q},
			"subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": %[1]q}]}`, person, test.role))
		poll.Until(i.t, soon, fmt.Sprintf("whether %s may %s is %s", test.role, test.question, test.want), func() error {
			got, err := i.Kubectl(i.t.Context(), append([]string{"auth", "can-i", "-n", team, "--as=" + person}, strings.Fields(test.question)...)...)
			if strings.TrimSpace(got) != test.want {
				return fmt.Errorf("it is %q (%w)", got, errors.Join(err))
			}
			return nil
		})
	}
}

// checkMetrics scrapes as Prometheus would, and looks up what the alerts ask for.
func (i *installation) checkMetrics() {
	i.kubectl("create", "namespace", "monitoring")
	for _, account := range []string{"prometheus", "stranger"} {
		i.kubectl("create", "serviceaccount", "-n", "monitoring", account)
	}
	if code, _ := i.scrape("stranger"); code != http.StatusForbidden {
		i.t.Errorf("an account without the right gets %d, want 403", code)
	}
	// Only what is wrong with ladders is counted: one leg is no chain.
	i.apply(team, `{"apiVersion": "agents.belay.dev/v1alpha1", "kind": "RouteLadder", "metadata": {"name": "thin"}, "spec": {
		"providers": [{"name": "only", "dialect": "OpenAIChat", "baseURL": "https://models.example.com/v1"}],
		"legs": [{"name": "a", "provider": "only", "model": "large", "contextWindow": 128000, "billing": "Included"}]}}`)
	var text string
	poll.Until(i.t, soon, "Prometheus sees the thin ladder", func() error {
		var code int
		if code, text = i.scrape("prometheus"); code != http.StatusOK {
			i.t.Fatalf("Prometheus gets %d: %s", code, text)
		}
		if !strings.Contains(text, `belay_routeladder_conditions{condition="Resilient",reason="ThinChain"} 1`) {
			return errors.New("it is not among the metrics")
		}
		return nil
	})
	if !strings.Contains(text, `belay_providerhealth_routes{dialect="OpenAIChat",state="Open"} 1`) {
		i.t.Errorf("the open route is not among the metrics:\n%s", regexp.MustCompile(`(?m)^belay_.*`).FindAllString(text, -1))
	}
	for _, a := range alerts(i.t) {
		for _, selector := range a.selectors(i.t) {
			pattern := `(?m)^` + selector.Name + `\{`
			for _, matcher := range selector.LabelMatchers {
				if matcher.Name != metricName && !regexp.MustCompile(pattern+`[^}]*\b`+matcher.Name+`="`).MatchString(text) {
					i.t.Errorf("%s asks for the label %s of %s, which the manager does not serve", a.Alert, matcher.Name, selector.Name)
				}
			}
		}
	}
}

func (i *installation) scrape(account string) (int, string) {
	i.t.Helper()
	token := i.kubectl("create", "token", "-n", "monitoring", account)
	request, err := http.NewRequestWithContext(i.t.Context(), http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/metrics", i.metrics), nil)
	if err != nil {
		i.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	// The manager signs its own certificate.
	hc := &http.Client{Timeout: soon, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	response, err := hc.Do(request)
	if err != nil {
		i.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		i.t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// pods are the UIDs of the chart's pods.
func (i *installation) pods() string {
	i.t.Helper()
	return i.kubectl("get", "pods", "-n", system, "-o", `jsonpath={range .items[*]}{.metadata.labels.app\.kubernetes\.io/component}={.metadata.uid} {end}`)
}

func (i *installation) upgradeNothing() {
	before := i.pods()
	i.helm("upgrade", "belay", chartDir, "--reset-then-reuse-values", "--wait", "--timeout", "60s")
	if after := i.pods(); after != before {
		i.t.Errorf("the pods were %s and are %s after an upgrade that changes nothing", before, after)
	}
}

// upgradeEverywhere lets the manager watch all namespaces. Its successor starts while it runs, on ports of its own, and takes
// over the lead.
func (i *installation) upgradeEverywhere() {
	before := i.field(team, "agentrun/rehearsal", "{.metadata.resourceVersion}")
	i.metrics, i.probes = freePort(i.t), freePort(i.t)
	i.helm(append([]string{"upgrade", "belay", chartDir}, i.values()...)...)
	if args := i.field(system, "deployment/belay-manager", "{.spec.template.spec.containers[0].args}"); strings.Contains(args, "--namespaces") {
		i.t.Errorf("after the upgrade the manager has the arguments %s", args)
	}
	i.wantCompleted(later)
	if after := i.field(team, "agentrun/rehearsal", "{.metadata.resourceVersion}"); after != before {
		i.t.Errorf("the finished run of %s was written to by the new manager: version %s, then %s", team, before, after)
	}
}

func (i *installation) uninstall() {
	out := i.helm("uninstall", "belay", "--wait", "--timeout", "60s")
	if !strings.Contains(out, "uninstalled") {
		i.t.Errorf("helm uninstall says:\n%s", out)
	}
	for _, namespace := range []string{team, later} {
		i.wantCompleted(namespace)
	}
	left := i.kubectl("get", "deployments,services,serviceaccounts,roles,rolebindings,poddisruptionbudgets", "-n", system, "-o", "name")
	for _, name := range strings.Fields(left) {
		if strings.Contains(name, "belay") {
			i.t.Errorf("%s is left in %s", name, system)
		}
	}
	left = i.kubectl("get", "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings", "-o", "name")
	for _, name := range strings.Fields(left) {
		if strings.Contains(name, "belay") {
			i.t.Errorf("%s is left", name)
		}
	}
}

func (i *installation) reinstall() {
	i.helm(append([]string{"install", "belay", chartDir}, i.values()...)...)
	i.wantCompleted(team)
	i.kubectl("delete", "agentrun", "-n", team, "rehearsal", "--wait=false")
	i.apply("default", fmt.Sprintf(ladderAndRun, i.chaos))
	i.wantCompleted("default")
}
