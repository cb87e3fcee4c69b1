package admit

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// ordinary is a pod as the restricted pod security standard wants it.
func ordinary() *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{
		OS: &corev1.PodOS{Name: corev1.Linux},
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: ptr.To(true), FSGroup: ptr.To[int64](65532), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{{
			Name: "main", Ports: []corev1.ContainerPort{{ContainerPort: 8443}},
			Resources:    corev1.ResourceRequirements{Limits: corev1.ResourceList{}},
			StartupProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{}}},
			SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false), Privileged: ptr.To(false),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_BIND_SERVICE"}}},
		}},
		Volumes: []corev1.Volume{
			{Name: "a", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "b", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}},
			{Name: "c", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}}, {Secret: &corev1.SecretProjection{}}}}}},
		},
	}}
}

var caps = []string{"NET_BIND_SERVICE"}

func TestARestrictedPodIsAdmitted(t *testing.T) {
	if problems := Check(ordinary(), caps); problems != nil {
		t.Errorf("refused: %q", problems)
	}
}

func TestEveryProblemIsNamed(t *testing.T) {
	p := ordinary()
	s := &p.Spec
	s.HostPID, s.ShareProcessNamespace, s.RuntimeClassName = true, ptr.To(true), ptr.To("gvisor")
	s.SecurityContext.Sysctls = []corev1.Sysctl{{Name: "x"}}
	s.SecurityContext.SeccompProfile.Type = corev1.SeccompProfileTypeLocalhost
	s.Volumes = append(s.Volumes,
		corev1.Volume{Name: "nfs", VolumeSource: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}}},
		corev1.Volume{Name: "bundle", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{}}}}}})
	c := &s.Containers[0]
	c.StartupProbe.Exec, c.StartupProbe.GRPC = nil, &corev1.GRPCAction{}
	c.Ports[0].HostPort = 443
	c.VolumeMounts = []corev1.VolumeMount{{Name: "a", MountPropagation: ptr.To(corev1.MountPropagationBidirectional)}}
	c.SecurityContext.Capabilities.Add = []corev1.Capability{"CAP_NET_ADMIN"}
	want := []string{
		"hostPID: every container has a pid namespace of its own",
		"shareProcessNamespace: every container has a pid namespace of its own",
		"runtimeClassName: there is no container runtime",
		"securityContext.sysctls",
		"securityContext.seccompProfile: Localhost",
		"volume nfs: this type; known are emptyDir, secret, configMap, downwardAPI, projected and persistentVolumeClaim",
		"volume bundle: this projected source; known are secret, configMap, downwardAPI and serviceAccountToken",
		"container main: mountPropagation of a",
		"container main: hostPort 443 differs from containerPort 8443; pods share the host's network",
		"container main: grpc probe",
		"container main: capability NET_ADMIN",
	}
	if diff := cmp.Diff(want, Check(p, caps)); diff != "" {
		t.Errorf("otherwise (-want +got):\n%s", diff)
	}
}

func TestPortsAreThoseOfAllContainers(t *testing.T) {
	p := ordinary()
	p.Spec.InitContainers = []corev1.Container{{Ports: []corev1.ContainerPort{{ContainerPort: 1}, {ContainerPort: 2}}}}
	if diff := cmp.Diff([]int32{1, 2, 8443}, Ports(p)); diff != "" {
		t.Errorf("otherwise (-want +got):\n%s", diff)
	}
}
