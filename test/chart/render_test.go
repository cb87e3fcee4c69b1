package chart

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestHelmFindsNothingToComplainOf(t *testing.T) {
	out, err := helm(t.Context(), t, "", "lint", "--strict", chartDir, "--set", "image.repository=example.com/belay,chaos.enabled=true,podDisruptionBudget.enabled=true",
		"--set", "metrics.serviceMonitor.enabled=true,metrics.alerts.enabled=true,watchNamespaces={team-a}")
	if err != nil || strings.Contains(out, "[WARNING]") {
		t.Errorf("helm lint: %v\n%s", err, out)
	}
}

// TestChartInstallsWhatConfigInstalls compares every object but the namespace, which Helm makes itself. What is left out of
// the comparison are Helm's own labels and its annotation of CRDs.
func TestChartInstallsWhatConfigInstalls(t *testing.T) {
	got := render(t, append(sameAsConfig, "--set", "metrics.serviceMonitor.enabled=true,metrics.alerts.enabled=true")...)
	want := kustomize(t, "default")
	maps.Copy(want, kustomize(t, "prometheus"))
	delete(want, "Namespace/belay-system")
	for _, set := range []map[string]*unstructured.Unstructured{got, want} {
		for _, obj := range set {
			withoutHelm(obj.Object)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if got[key] == nil {
			t.Errorf("the chart has no %s", key)
			continue
		}
		if diff := cmp.Diff(want[key].Object, got[key].Object); diff != "" {
			t.Errorf("%s differs (-config +chart):\n%s", key, diff)
		}
	}
	for key := range got {
		if want[key] == nil {
			t.Errorf("config has no %s", key)
		}
	}
}

// withoutHelm removes what Helm alone has, in metadata, selectors and pod templates alike.
func withoutHelm(value any) {
	switch v := value.(type) {
	case map[string]any:
		for _, key := range []string{"app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart", "helm.sh/resource-policy"} {
			delete(v, key)
		}
		for key, child := range v {
			withoutHelm(child)
			if m, ok := child.(map[string]any); ok && len(m) == 0 && (key == "labels" || key == "annotations") {
				delete(v, key)
			}
		}
	case []any:
		for _, child := range v {
			withoutHelm(child)
		}
	}
}

func TestDefinitionsAreKeptUnlessAskedOtherwise(t *testing.T) {
	const crd = "CustomResourceDefinition/agentruns.agents.belay.dev"
	if kept := render(t, sameAsConfig...)[crd]; kept.GetAnnotations()["helm.sh/resource-policy"] != "keep" {
		t.Errorf("%s has annotations %v, want helm.sh/resource-policy: keep", crd, kept.GetAnnotations())
	}
	if taken := render(t, append(sameAsConfig, "--set", "crds.keep=false")...)[crd]; taken.GetAnnotations()["helm.sh/resource-policy"] != "" {
		t.Errorf("with crds.keep=false %s has annotations %v", crd, taken.GetAnnotations())
	}
	for key := range render(t, append(sameAsConfig, "--set", "crds.install=false")...) {
		if strings.HasPrefix(key, "CustomResourceDefinition/") {
			t.Errorf("with crds.install=false there is %s", key)
		}
	}
}

func TestValuesThatCannotWorkAreRefusedByName(t *testing.T) {
	image := []string{"--set", "image.repository=belay"}
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"no image", nil, "image.repository is required"},
		{"a misspelt value", append(image, "--set", "replica=1"), "'replica'"},
		{"a misspelt nested value", append(image, "--set", "metrics.prot=1"), "'prot'"},
		{"several managers without a leader", append(image, "--set", "leaderElection.enabled=false"), "several managers would work against each other"},
		{"an unknown bootstrap", append(image, "--set", "bootstrap=Off"), "bootstrap"},
		{"a port that is none", append(image, "--set", "metrics.port=70000"), "/metrics/port"},
		{"a namespace that cannot exist", append(image, "--set", "watchNamespaces={Team_A}"), "/watchNamespaces/0"},
		{"a digest that is none", append(image, "--set", "image.digest=latest"), "/image/digest"},
		{"an account without a name", append(image, "--set", "serviceAccount.create=false"), "serviceAccount.name is required"},
		{"alerts without metrics", append(image, "--set", "metrics.enabled=false,metrics.alerts.enabled=true"), "need metrics.enabled=true"},
		{"chaos without a script", append(image, "--set", "chaos.enabled=true,chaos.script="), "chaos.script is required"},
		{"an older cluster", append(image, "--kube-version", "1.32.0"), "1.33.0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := helm(t.Context(), t, "", append([]string{"template", "belay", chartDir}, test.args...)...)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}

// TestManagerKnowsEveryFlagOfTheChart renders the chart with no value at its default and looks the flags up.
func TestManagerKnowsEveryFlagOfTheChart(t *testing.T) {
	deployment := as[appsv1.Deployment](t, render(t, append(sameAsConfig, "--set",
		"watchNamespaces={a,b},bootstrap=Disabled,workers=8,kubeAPI.qps=12,kubeAPI.burst=200,log.format=text,log.verbosity=2",
		"--set", "metrics.port=9443,metrics.secure=false,probes.port=9081,runImage=mirror/belay:1,extraArgs={--resync=1h}")...)["Deployment/belay-manager"])
	container := deployment.Spec.Template.Spec.Containers[0]
	want := []string{
		"--image=$(BELAY_IMAGE)", "--leader-elect", "--namespaces=a,b", "--bootstrap=Disabled", "--workers=8", "--kube-api-qps=12",
		"--kube-api-burst=200", "--log-format=text", "--verbosity=2", "--metrics-bind-address=:9443", "--metrics-insecure",
		"--health-probe-bind-address=:9081", "--resync=1h",
	}
	if diff := cmp.Diff(want, container.Args); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
	if env := container.Env[0]; env.Name != "BELAY_IMAGE" || env.Value != "mirror/belay:1" {
		t.Errorf("the image of runs is %v, want mirror/belay:1", env)
	}
	help, err := output(exec.CommandContext(t.Context(), filepath.Join("..", "..", "bin", "manager"), "--help"))
	if err != nil {
		t.Fatalf("%v (did \"make build\" run?)", err)
	}
	for _, arg := range container.Args {
		flag, _, _ := strings.Cut(arg, "=")
		if !regexp.MustCompile(regexp.QuoteMeta(flag) + `\b`).MatchString(help) {
			t.Errorf("the manager knows no flag %s", flag)
		}
	}
}

func TestImageIsNamedByTagOrDigest(t *testing.T) {
	digest := "sha256:" + strings.Repeat("ab", 32)
	for _, test := range []struct{ values, want string }{
		{"image.repository=example.com/belay", "example.com/belay:" + appVersion(t)},
		{"image.repository=example.com/belay,image.tag=v7", "example.com/belay:v7"},
		{"image.repository=example.com/belay,image.tag=v7,image.digest=" + digest, "example.com/belay@" + digest},
	} {
		deployment := as[appsv1.Deployment](t, render(t, "--set", test.values)["Deployment/belay-manager"])
		container := deployment.Spec.Template.Spec.Containers[0]
		if container.Image != test.want || container.Env[0].Value != test.want {
			t.Errorf("%s: the manager's image is %s and that of runs %s, want %s", test.values, container.Image, container.Env[0].Value, test.want)
		}
	}
}

func appVersion(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chartDir, "Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var about struct {
		AppVersion string `json:"appVersion"`
	}
	if err := yaml.Unmarshal(text, &about); err != nil {
		t.Fatal(err)
	}
	return about.AppVersion
}

func TestManagerHasNoRightThatItDoesNotNeed(t *testing.T) {
	resources := func(args ...string) []string {
		var all []string
		for _, rule := range as[rbacv1.ClusterRole](t, render(t, append(sameAsConfig, args...)...)["ClusterRole/belay-manager-role"]).Rules {
			all = append(all, rule.Resources...)
		}
		return all
	}
	if all := resources(); !slices.Contains(all, "rolebindings") || slices.Contains(all, "secrets") {
		t.Errorf("by default the manager's role is about %v, want rolebindings and no secrets", all)
	}
	for _, resource := range resources("--set", "bootstrap=Disabled") {
		if slices.Contains([]string{"serviceaccounts", "roles", "rolebindings"}, resource) {
			t.Errorf("with bootstrap=Disabled the manager's role is about %s", resource)
		}
	}

	narrow := render(t, append(sameAsConfig, "--set", "watchNamespaces={team-a,team-b}")...)
	if narrow["ClusterRoleBinding/belay-manager"] != nil {
		t.Error("with watchNamespaces the manager's role is bound in the whole cluster")
	}
	for _, namespace := range []string{"team-a", "team-b"} {
		binding := as[rbacv1.RoleBinding](t, narrow["RoleBinding/"+namespace+"/belay-manager"])
		want := []rbacv1.Subject{{Kind: "ServiceAccount", Name: "belay-manager", Namespace: "belay-system"}}
		if binding.RoleRef.Name != "belay-manager-role" || !cmp.Equal(want, binding.Subjects) {
			t.Errorf("in %s the binding is of %v to %v", namespace, binding.RoleRef, binding.Subjects)
		}
	}
	if nodes := as[rbacv1.ClusterRole](t, narrow["ClusterRole/belay-manager-nodes"]); len(nodes.Rules) != 1 {
		t.Errorf("in the whole cluster the manager may %v, want get nodes alone", nodes.Rules)
	}
}

func TestRolesForPeopleJoinKubernetesOwnUnlessAskedOtherwise(t *testing.T) {
	roles := map[string]string{"viewer": "view", "run-editor": "edit", "ladder-editor": "admin"}
	for _, joined := range []bool{true, false} {
		args := sameAsConfig
		if !joined {
			args = append(args, "--set", "rbac.aggregate=false")
		}
		rendered := render(t, args...)
		for name, into := range roles {
			role := as[rbacv1.ClusterRole](t, rendered["ClusterRole/belay-"+name])
			if got := role.Labels["rbac.authorization.k8s.io/aggregate-to-"+into] == "true"; got != joined {
				t.Errorf("rbac.aggregate=%t: %s has labels %v", joined, name, role.Labels)
			}
			for _, rule := range role.Rules {
				writes := slices.Contains(rule.Verbs, "update")
				if writes && (name == "viewer" || name == "run-editor" && !cmp.Equal(rule.Resources, []string{"agentruns"}) || name == "ladder-editor" && slices.Contains(rule.Resources, "agentruns")) {
					t.Errorf("%s may write %v", name, rule.Resources)
				}
			}
		}
	}
}

func TestReleasesOfAnyNameAgreeOnTheirNames(t *testing.T) {
	out, err := helm(t.Context(), t, "", "template", "x"+strings.Repeat("-longname", 5)[:45], chartDir, "--set", "image.repository=belay,chaos.enabled=true,podDisruptionBudget.enabled=true")
	if err != nil {
		t.Fatal(err)
	}
	all := objects(t, out)
	for key, obj := range all {
		if len(obj.GetName()) > 63 {
			t.Errorf("%s has a name of %d characters", key, len(obj.GetName()))
		}
		if role, _, _ := unstructured.NestedString(obj.Object, "roleRef", "name"); role != "" && all["Role/"+role] == nil && all["ClusterRole/"+role] == nil {
			t.Errorf("%s refers to role %s, which does not exist", key, role)
		}
		if policy, _, _ := unstructured.NestedString(obj.Object, "spec", "policyName"); policy != "" && all["ValidatingAdmissionPolicy/"+policy] == nil {
			t.Errorf("%s refers to policy %s, which does not exist", key, policy)
		}
		subjects, _, _ := unstructured.NestedSlice(obj.Object, "subjects")
		for _, subject := range subjects {
			if name, _, _ := unstructured.NestedString(subject.(map[string]any), "name"); all["ServiceAccount/"+name] == nil {
				t.Errorf("%s binds account %s, which does not exist", key, name)
			}
		}
	}
	for key, obj := range all {
		if obj.GetKind() != "PodDisruptionBudget" {
			continue
		}
		budget := as[policyv1.PodDisruptionBudget](t, obj)
		deployment := as[appsv1.Deployment](t, all["Deployment/"+obj.GetName()])
		if diff := cmp.Diff(deployment.Spec.Selector, budget.Spec.Selector); diff != "" {
			t.Errorf("%s selects other pods than the deployment (-deployment +budget):\n%s", key, diff)
		}
	}
}
