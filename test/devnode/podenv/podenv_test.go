package podenv

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type objects struct {
	configMaps map[string]map[string]string
	secrets    map[string]map[string][]byte
}

func (o objects) ConfigMap(_ context.Context, name string) (map[string]string, error) {
	if data, ok := o.configMaps[name]; ok {
		return data, nil
	}
	return nil, fmt.Errorf("configmaps %q: %w", name, ErrNotFound)
}

func (o objects) Secret(_ context.Context, name string) (map[string][]byte, error) {
	if data, ok := o.secrets[name]; ok {
		return data, nil
	}
	return nil, fmt.Errorf("secrets %q: %w", name, ErrNotFound)
}

func TestExpand(t *testing.T) {
	values := map[string]string{"A": "1", "B": "$(A)", "EMPTY": ""}
	for text, want := range map[string]string{
		"plain":              "plain",
		"$(A)":               "1",
		"x$(A)y$(A)":         "x1y1",
		"$(B)":               "$(A)", // a value is not expanded again
		"[$(EMPTY)]":         "[]",
		"$(NONE)":            "$(NONE)",
		"$$(A)":              "$(A)",
		"$$$(A)":             "$1",
		"$A ${A} $":          "$A ${A} $",
		"$(A":                "$(A",
		"$(A $(A)":           "$(A $(A)", // one name, and none of that name
		"100$$":              "100$",
		"":                   "",
		"$(A)$(NONE)$$(A)$(": "1$(NONE)$(A)$(",
	} {
		if got := Expand(text, values); got != want {
			t.Errorf("Expand(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestCommand(t *testing.T) {
	entry, defaults := []string{"/entry"}, []string{"default"}
	env := []corev1.EnvVar{{Name: "N", Value: "7"}}
	for name, c := range map[string]struct {
		command, args, want []string
	}{
		"the image's":               {want: []string{"/entry", "default"}},
		"arguments replace":         {args: []string{"--n=$(N)"}, want: []string{"/entry", "--n=7"}},
		"a command drops defaults":  {command: []string{"run$(N)"}, want: []string{"run7"}},
		"both":                      {command: []string{"run"}, args: []string{"a", "$$(N)"}, want: []string{"run", "a", "$(N)"}},
		"an unknown name stays put": {command: []string{"$(X)"}, want: []string{"$(X)"}},
	} {
		got := Command(&corev1.Container{Command: c.command, Args: c.args}, entry, defaults, env)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestEnvironmentIsResolvedInOrder(t *testing.T) {
	yes := true
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "run-1", Namespace: "ns", UID: "u-1", Labels: map[string]string{"app": "x"}, Annotations: map[string]string{"note": "y"}},
		Spec:       corev1.PodSpec{NodeName: "n", ServiceAccountName: "sa"},
	}
	field := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	secret := func(name, key string, optional *bool) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key, Optional: optional}}
	}
	c := &corev1.Container{
		EnvFrom: []corev1.EnvFromSource{
			{Prefix: "P_", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}}},
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "absent"}, Optional: &yes}},
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}}},
		},
		Env: []corev1.EnvVar{
			{Name: "FIRST", Value: "1"},
			{Name: "SECOND", Value: "$(FIRST)+$(P_a)+$(LATER)"},
			{Name: "LATER", Value: "later"},
			{Name: "k", Value: "env wins"},
			{Name: "PATH", Value: "/mine:$(PATH)"},
			{Name: "NAME", ValueFrom: field("metadata.name")},
			{Name: "UID", ValueFrom: field("metadata.uid")},
			{Name: "LABEL", ValueFrom: field("metadata.labels['app']")},
			{Name: "NOTE", ValueFrom: field("metadata.annotations['note']")},
			{Name: "IP", ValueFrom: field("status.podIP")},
			{Name: "KEY", ValueFrom: secret("s", "k", nil)},
			{Name: "OPTIONAL", ValueFrom: secret("s", "none", &yes)},
			{Name: "ABSENT", ValueFrom: secret("absent", "none", &yes)},
			{Name: "CPU", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu"}}},
			{Name: "MEM", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "requests.memory", Divisor: resource.MustParse("1Mi")}}},
		},
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1500Ki")}},
	}
	facts := Facts{PodIP: "127.0.0.1", Base: []corev1.EnvVar{{Name: "PATH", Value: "/bin"}},
		Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m")}}
	sources := objects{
		configMaps: map[string]map[string]string{"cm": {"a": "A", "not a name=": "x"}},
		secrets:    map[string]map[string][]byte{"s": {"k": []byte("secret")}},
	}
	got, err := Environment(t.Context(), p, c, facts, sources)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"PATH=/mine:/bin", "P_a=A", "k=env wins", "FIRST=1", "SECOND=1+A+$(LATER)", "LATER=later", "NAME=run-1", "UID=u-1",
		"LABEL=x", "NOTE=y", "IP=127.0.0.1", "KEY=secret", "CPU=2", "MEM=2",
	}
	if diff := cmp.Diff(want, Strings(got)); diff != "" {
		t.Errorf("otherwise (-want +got):\n%s", diff)
	}
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	key := func(name, key string) corev1.Container {
		return corev1.Container{Env: []corev1.EnvVar{{Name: "KEY", ValueFrom: &corev1.EnvVarSource{
			SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key}}}}}
	}
	sources := objects{secrets: map[string]map[string][]byte{"s": {"k": nil}}}
	for want, c := range map[string]corev1.Container{
		`environment variable KEY: secret "absent"`:          key("absent", "k"),
		`couldn't find key none in secret "s"`:               key("s", "none"),
		`configmap "gone"`:                                   {EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "gone"}}}}},
		`field "spec.secret" is not one of the downward API`: {Env: []corev1.EnvVar{{Name: "F", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.secret"}}}}},
	} {
		_, err := Environment(t.Context(), &corev1.Pod{}, &c, Facts{}, sources)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %s", err, want)
		}
	}
}
