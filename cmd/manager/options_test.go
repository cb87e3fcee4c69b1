package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func parse(t *testing.T, args ...string) *options {
	t.Helper()
	o := &options{}
	flags := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	o.addFlags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestFlagsThatCannotWorkAreRefusedByName(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"the defaults with an image", []string{"--image=belay:v1"}, ""},
		{"no image", nil, "--image is required"},
		{"an unknown bootstrap", []string{"--image=x", "--bootstrap=Off"}, `--bootstrap is "Off"`},
		{"no worker", []string{"--image=x", "--workers=0"}, "--workers is 0"},
		{"no resync", []string{"--image=x", "--resync=0s"}, "--resync is 0s"},
		{"no requests", []string{"--image=x", "--kube-api-qps=0"}, "--kube-api-qps is 0"},
		{"an unknown log format", []string{"--image=x", "--log-format=xml"}, `--log-format is "xml"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := parse(t, test.args...).validate()
			switch {
			case test.want == "" && err != nil:
				t.Errorf("got %v, want no error", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}

func TestOnlyBelaysOwnPodsAreCached(t *testing.T) {
	for object, by := range parse(t, "--image=x").cacheOptions().ByObject {
		if _, pod := object.(*corev1.Pod); !pod {
			continue
		}
		if by.Label == nil || !by.Label.Matches(labels.Set{"app.kubernetes.io/managed-by": "belay"}) || by.Label.Matches(labels.Set{"app": "web"}) {
			t.Errorf("the cache selects pods by %v, want those with app.kubernetes.io/managed-by=belay alone", by.Label)
		}
		return
	}
	t.Error("the cache of pods is not limited")
}

func TestMetricsAreServedSecurelyUnlessAskedOtherwise(t *testing.T) {
	if o := parse(t, "--image=x").metricsOptions(); !o.SecureServing || o.FilterProvider == nil || o.BindAddress != ":8443" {
		t.Errorf("by default metrics are served as %+v, want https with authorization on :8443", o)
	}
	if o := parse(t, "--image=x", "--metrics-insecure").metricsOptions(); o.SecureServing || o.FilterProvider != nil {
		t.Error("--metrics-insecure still serves securely")
	}
}
