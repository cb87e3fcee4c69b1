package devnode_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// agentPod has the shape of the pods that the operator makes: an init container
// that installs a tool, a sidecar that serves it on a socket, a main container
// with a read-only root, one claim shared by subPath, and users of their own.
func agentPod(ns string) (*corev1.PersistentVolumeClaim, *corev1.Pod) {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "run"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	restricted := func(uid int64, readOnly bool) *corev1.SecurityContext {
		return &corev1.SecurityContext{
			RunAsUser: ptr.To(uid), RunAsNonRoot: ptr.To(true), AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(readOnly),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}
	}
	install := sh("toolbox-install", "cp /bin/sleep /belay/bin/toolbox; echo installed > /workspace/order")
	install.SecurityContext = restricted(65533, false)
	install.VolumeMounts = []corev1.VolumeMount{{Name: "bin", MountPath: "/belay/bin"}, {Name: "data", MountPath: "/workspace", SubPath: "workspace"}}

	workspace := sidecar(sh("workspace", `echo sidecar >> /workspace/order; trap 'echo stopping; exit 0' TERM; touch /belay/run/ready; while :; do sleep 0.05; done`))
	workspace.SecurityContext = restricted(65533, false)
	workspace.StartupProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"test", "-e", "/belay/run/ready"}}}, PeriodSeconds: 1}
	workspace.VolumeMounts = []corev1.VolumeMount{
		{Name: "bin", MountPath: "/belay/bin", ReadOnly: true}, {Name: "run", MountPath: "/belay/run"},
		{Name: "data", MountPath: "/workspace", SubPath: "workspace"},
	}

	runner := sh("runner", `set -e
id -u; ls /belay/run; ls -ld /belay/ledger | cut -c1-10
echo '{"v":1}' > /belay/ledger/ledger.jsonl
cat /belay/credentials/keys/primary; echo
test ! -e /workspace; touch /x 2>/dev/null && echo root-is-writable
test -s /belay/token/token; test -s /belay/token/ca.crt
echo "$POD_NAME $GREETING"
echo done > /dev/termination-log`)
	runner.SecurityContext = restricted(65532, true)
	runner.Env = []corev1.EnvVar{
		{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
		{Name: "GREETING", Value: "of-$(POD_NAME)"},
	}
	runner.VolumeMounts = []corev1.VolumeMount{
		{Name: "run", MountPath: "/belay/run"}, {Name: "data", MountPath: "/belay/ledger", SubPath: "ledger"},
		{Name: "credentials", MountPath: "/belay/credentials", ReadOnly: true}, {Name: "token", MountPath: "/belay/token", ReadOnly: true},
	}
	return claim, pod(ns, "run-1", corev1.PodSpec{
		AutomountServiceAccountToken: ptr.To(false),
		SecurityContext: &corev1.PodSecurityContext{
			FSGroup: ptr.To[int64](65532), FSGroupChangePolicy: ptr.To(corev1.FSGroupChangeOnRootMismatch),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		InitContainers: []corev1.Container{install, workspace},
		Containers:     []corev1.Container{runner},
		Volumes: []corev1.Volume{
			{Name: "bin", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "run", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
			{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "run"}}},
			{Name: "credentials", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "keys"}, Optional: ptr.To(true),
					Items: []corev1.KeyToPath{{Key: "primary", Path: "keys/primary"}}}},
				{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "absent"}, Optional: ptr.To(true)}},
			}}}},
			{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: ptr.To[int64](3600)}},
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}}},
			}}}},
		},
	})
}

func TestAnAgentPodRunsToItsEnd(t *testing.T) {
	ns := namespace(t)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "keys"}, StringData: map[string]string{"primary": "s3cret"}}
	if _, err := client.CoreV1().Secrets(ns).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	claim, p := agentPod(ns)
	if _, err := client.CoreV1().PersistentVolumeClaims(ns).Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	create(t, p)
	got := await(t, p, corev1.PodSucceeded)
	want := "65532\nready\ndrwxrwsr-x\ns3cret\nrun-1 of-run-1\n"
	if out := logs(t, p, "runner"); out != want {
		t.Errorf("the runner wrote:\n%s\nwant:\n%s", out, want)
	}
	if out := logs(t, p, "workspace"); !strings.Contains(out, "stopping") {
		t.Errorf("the sidecar was not asked to stop: %q", out)
	}
	runner := got.Status.ContainerStatuses[0]
	if s := runner.State.Terminated; s == nil || s.ExitCode != 0 || s.Reason != "Completed" || s.Message != "done\n" {
		t.Errorf("the runner's state is %+v", runner.State)
	}
	sidecar := got.Status.InitContainerStatuses[1]
	if s := sidecar.State.Terminated; s == nil || s.ExitCode != 0 {
		t.Errorf("the sidecar's state is %+v", sidecar.State)
	}
}
