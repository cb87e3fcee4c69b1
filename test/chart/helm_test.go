package chart

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const chartDir = "../../charts/belay"

// sameAsConfig are the values with which the chart writes what config/ has.
var sameAsConfig = []string{"--namespace", "belay-system", "--set", "image.repository=belay,image.tag=latest"}

// helm runs Helm with homes of its own and returns what it printed; its error has the rest.
func helm(ctx context.Context, t *testing.T, kubeconfig string, args ...string) (string, error) {
	t.Helper()
	program := os.Getenv("HELM")
	if program == "" {
		t.Fatal("HELM is not set: this test needs Helm. Run `make test-integration`, or set HELM=$(hack/tool.sh helm)")
	}
	home := t.TempDir()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home, "KUBECONFIG="+kubeconfig)
	return output(cmd)
}

func output(cmd *exec.Cmd) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w: %s", filepath.Base(cmd.Path), strings.Join(cmd.Args[1:], " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}

// render is what "helm template" writes, by kind and name.
func render(t *testing.T, args ...string) map[string]*unstructured.Unstructured {
	t.Helper()
	out, err := helm(t.Context(), t, "", append([]string{"template", "belay", chartDir}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return objects(t, out)
}

// kustomize is what "kubectl kustomize" writes for a directory below config.
func kustomize(t *testing.T, dir string) map[string]*unstructured.Unstructured {
	t.Helper()
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		t.Fatal("KUBEBUILDER_ASSETS is not set: this test needs kubectl. Run `make test-integration`, which finds or builds it")
	}
	out, err := output(exec.CommandContext(t.Context(), filepath.Join(assets, "kubectl"), "kustomize", filepath.Join("..", "..", "config", dir)))
	if err != nil {
		t.Fatal(err)
	}
	return objects(t, out)
}

func objects(t *testing.T, text string) map[string]*unstructured.Unstructured {
	t.Helper()
	all := map[string]*unstructured.Unstructured{}
	for document := range strings.SplitSeq("\n"+text, "\n---\n") {
		obj := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &obj.Object); err != nil {
			t.Fatalf("%v in:\n%s", err, document)
		}
		if len(obj.Object) == 0 {
			continue
		}
		key := obj.GetKind() + "/" + obj.GetName()
		if obj.GetKind() == "RoleBinding" {
			key = obj.GetKind() + "/" + obj.GetNamespace() + "/" + obj.GetName()
		}
		if all[key] != nil {
			t.Errorf("%s is written twice", key)
		}
		all[key] = obj
	}
	return all
}

// as decodes an object into its type, strictly: a misspelt field fails.
func as[T any](t *testing.T, obj *unstructured.Unstructured) *T {
	t.Helper()
	if obj == nil {
		t.Fatalf("there is no %T", *new(T))
	}
	text, err := yaml.Marshal(obj.Object)
	if err != nil {
		t.Fatal(err)
	}
	typed := new(T)
	if err := yaml.UnmarshalStrict(text, typed); err != nil {
		t.Fatal(err)
	}
	return typed
}
