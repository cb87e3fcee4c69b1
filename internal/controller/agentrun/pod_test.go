package agentrun

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"belay.dev/belay/api/v1alpha1"
)

var update = flag.Bool("update", false, "write the golden files of testdata")

// golden compares got, as YAML, with a file of testdata.
func golden(t *testing.T, name string, got any) {
	t.Helper()
	raw, err := yaml.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, raw, 0o644); err != nil { //nolint:gosec // a test's data is for everyone
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("reading the golden file (run the test with -update to write it): %v", err)
	}
	if diff := cmp.Diff(string(want), string(raw)); diff != "" {
		t.Errorf("%s differs (-want +got):\n%s", name, diff)
	}
}

func minimalRun() *v1alpha1.AgentRun {
	return &v1alpha1.AgentRun{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "report", UID: "0b5e9a7c-1111-2222-3333-444455556666"},
		Spec:       v1alpha1.AgentRunSpec{LadderRef: v1alpha1.LadderReference{Name: "demo"}, Task: "Write the report."},
		Status:     v1alpha1.AgentRunStatus{Epoch: 1, PodName: "report-1"},
	}
}

func fullRun() *v1alpha1.AgentRun {
	run := minimalRun()
	run.Status = v1alpha1.AgentRunStatus{Epoch: 12, PodName: "report-12"}
	run.Spec.Task = ""
	run.Spec.TaskFrom = &v1alpha1.TextSource{ConfigMapKeyRef: v1alpha1.ConfigMapKeyReference{Name: "texts", Key: "task.md"}}
	run.Spec.SystemFrom = &v1alpha1.TextSource{ConfigMapKeyRef: v1alpha1.ConfigMapKeyReference{Name: "house-rules", Key: "system"}}
	run.Spec.Workspace = &v1alpha1.Workspace{
		Image: "golang:1.26",
		Volume: &v1alpha1.Volume{
			Size: ptr.To(resource.MustParse("5Gi")), StorageClassName: "fast", AccessMode: v1alpha1.ReadWriteOnce,
		},
		Setup: []v1alpha1.SetupStep{
			{
				Name: "clone", Image: "git:2", Command: []string{"git", "clone"}, Args: []string{"https://git.example.com/x", "."},
				Env: []v1alpha1.EnvVar{
					{Name: "DEPTH", Value: ptr.To("1")},
					{Name: "TOKEN", ValueFrom: &v1alpha1.EnvVarSource{SecretKeyRef: &v1alpha1.SecretKeyReference{Name: "git", Key: "token"}}},
					{Name: "USER", ValueFrom: &v1alpha1.EnvVarSource{ConfigMapKeyRef: &v1alpha1.ConfigMapKeyReference{Name: "git", Key: "user"}}},
				},
				EnvFrom: []v1alpha1.EnvFromSource{
					{Prefix: "S_", SecretRef: &v1alpha1.ObjectNameReference{Name: "more"}},
					{ConfigMapRef: &v1alpha1.ObjectNameReference{Name: "settings"}},
				},
			},
			{Name: "deps", Command: []string{"go", "mod", "download"}},
		},
		Resources: &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")}},
	}
	run.Spec.Ledger = &v1alpha1.Ledger{Volume: &v1alpha1.Volume{}, Retention: v1alpha1.LedgerRetentionDelete}
	run.Spec.PodTemplate = &v1alpha1.PodTemplate{
		Labels:            map[string]string{"team": "core", "app.kubernetes.io/name": "mine", v1alpha1.LabelEpoch: "99"},
		Annotations:       map[string]string{"note": "x"},
		NodeSelector:      map[string]string{"disk": "ssd"},
		Tolerations:       []corev1.Toleration{{Key: "spot", Operator: corev1.TolerationOpExists}},
		RuntimeClassName:  "gvisor",
		PriorityClassName: "low",
		ImagePullSecrets:  []corev1.LocalObjectReference{{Name: "registry"}},
		Proxy:             &v1alpha1.Proxy{HTTPSProxy: "http://proxy:3128", NoProxy: ".svc"},
		Resources:         &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}},
	}
	return run
}

func TestThePodOfAMinimalRun(t *testing.T) {
	golden(t, "pod-minimal.yaml", desiredPod(minimalRun(), testLadder(), "belay:v1"))
}

func TestThePodOfARunThatSetsEverything(t *testing.T) {
	golden(t, "pod-full.yaml", desiredPod(fullRun(), testLadder(), "belay:v1"))
}

func TestTheClaimsOfARunThatSetsEverything(t *testing.T) {
	golden(t, "claims-full.yaml", desiredClaims(fullRun()))
}

func TestTheClaimOfAMinimalRunOutlivesIt(t *testing.T) {
	claims := desiredClaims(minimalRun())
	if len(claims) != 1 {
		t.Fatalf("got %d claims, want one for workspace and ledger together", len(claims))
	}
	claim := claims[0]
	if want := "belay-0b5e9a7c-1111-2222-3333-444455556666"; claim.Name != want {
		t.Errorf("the claim's name is %s, want %s", claim.Name, want)
	}
	if len(claim.OwnerReferences) != 0 {
		t.Errorf("the claim is owned by %v; retention defaults to Retain, so nothing may own it", claim.OwnerReferences)
	}
	if diff := cmp.Diff([]corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}, claim.Spec.AccessModes); diff != "" {
		t.Errorf("access modes (-want +got):\n%s", diff)
	}
	if got := claim.Spec.Resources.Requests.Storage().String(); got != "1Gi" {
		t.Errorf("the claim asks for %s, want 1Gi", got)
	}
	if claim.Spec.StorageClassName != nil {
		t.Errorf("the claim names storage class %q, want the cluster's default", *claim.Spec.StorageClassName)
	}
}

func TestAnExistingClaimIsUsedAndNotMade(t *testing.T) {
	run := minimalRun()
	run.Spec.Workspace = &v1alpha1.Workspace{Volume: &v1alpha1.Volume{ClaimName: "mine"}}
	run.Spec.Ledger = &v1alpha1.Ledger{Volume: &v1alpha1.Volume{ClaimName: "ledgers"}}
	if claims := desiredClaims(run); len(claims) != 0 {
		t.Errorf("claims are made although both exist: %v", claims)
	}
	got := map[string]string{}
	for _, volume := range desiredPod(run, testLadder(), "belay:v1").Spec.Volumes {
		if volume.PersistentVolumeClaim != nil {
			got[volume.Name] = volume.PersistentVolumeClaim.ClaimName
		}
	}
	if diff := cmp.Diff(map[string]string{"workspace": "mine", "ledger": "ledgers"}, got); diff != "" {
		t.Errorf("claims of the pod (-want +got):\n%s", diff)
	}
}

// TestOnlyTheRunnerSeesWhatIsSecret walks every container of the fullest pod.
func TestOnlyTheRunnerSeesWhatIsSecret(t *testing.T) {
	pod := desiredPod(fullRun(), testLadder(), "belay:v1")
	secret := map[string]bool{volumeCredentials: true, volumeToken: true, volumeLedger: true, volumeTexts: true}
	seen := map[string]bool{}
	for _, container := range pod.Spec.InitContainers {
		for _, mount := range container.VolumeMounts {
			if secret[mount.Name] {
				t.Errorf("container %s mounts %s", container.Name, mount.Name)
			}
		}
	}
	for _, mount := range pod.Spec.Containers[0].VolumeMounts {
		seen[mount.Name] = true
		if mount.Name == volumeWorkspace {
			t.Errorf("the runner mounts the workspace although the ledger has a volume of its own")
		}
	}
	for name := range secret {
		if !seen[name] {
			t.Errorf("the runner does not mount %s", name)
		}
	}
}

func TestTheRunnersRoleIsSmall(t *testing.T) {
	golden(t, "role.yaml", runnerRole("team"))
}
