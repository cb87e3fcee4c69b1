// Package admit says what of a pod the process-backed node cannot honour. Such
// a pod is refused with a reason rather than run as something else.
//
// Accepted without effect, because a pod means the same without them: resource
// requests and limits, the seccomp and AppArmor profile RuntimeDefault, DNS
// settings, pull secrets, pull policies and priorities.
//
// It is pure and imports core/v1 only.
package admit

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Check returns why the node cannot run pod; empty means that it can. caps are
// the capabilities a container may ask for.
func Check(pod *corev1.Pod, caps []string) []string {
	c := &checker{caps: caps}
	c.pod(&pod.Spec)
	for i := range pod.Spec.Volumes {
		c.volume(&pod.Spec.Volumes[i])
	}
	for i := range pod.Spec.InitContainers {
		c.container(&pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		c.container(&pod.Spec.Containers[i])
	}
	return c.problems
}

type checker struct {
	caps     []string
	problems []string
}

func (c *checker) refuse(when bool, format string, args ...any) {
	if when {
		c.problems = append(c.problems, fmt.Sprintf(format, args...))
	}
}

func isTrue(b *bool) bool { return b != nil && *b }

func (c *checker) pod(s *corev1.PodSpec) {
	c.refuse(s.HostNetwork, "hostNetwork: pods share the host's network already, but a pod that asks for it may expect its ports there")
	c.refuse(s.HostPID, "hostPID: every container has a pid namespace of its own")
	c.refuse(s.HostIPC, "hostIPC: every container has an IPC namespace of its own")
	c.refuse(s.HostUsers != nil && !*s.HostUsers, "hostUsers: false: no range of user ids is mapped for pods")
	c.refuse(isTrue(s.ShareProcessNamespace), "shareProcessNamespace: every container has a pid namespace of its own")
	c.refuse(s.RuntimeClassName != nil && *s.RuntimeClassName != "", "runtimeClassName: there is no container runtime")
	c.refuse(len(s.EphemeralContainers) > 0, "ephemeralContainers")
	c.refuse(len(s.ResourceClaims) > 0, "resourceClaims")
	c.refuse(s.OS != nil && s.OS.Name != corev1.Linux, "os: the node runs Linux")
	if sc := s.SecurityContext; sc != nil {
		c.refuse(len(sc.Sysctls) > 0, "securityContext.sysctls")
		c.refuse(sc.SELinuxOptions != nil, "securityContext.seLinuxOptions")
		c.refuse(sc.WindowsOptions != nil, "securityContext.windowsOptions")
		c.profiles("securityContext", sc.SeccompProfile, sc.AppArmorProfile)
	}
}

func (c *checker) profiles(where string, seccomp *corev1.SeccompProfile, armor *corev1.AppArmorProfile) {
	c.refuse(seccomp != nil && seccomp.Type == corev1.SeccompProfileTypeLocalhost, "%s.seccompProfile: Localhost", where)
	c.refuse(armor != nil && armor.Type == corev1.AppArmorProfileTypeLocalhost, "%s.appArmorProfile: Localhost", where)
}

func (c *checker) volume(v *corev1.Volume) {
	s := v.VolumeSource
	if s.Projected != nil {
		for i := range s.Projected.Sources {
			p := &s.Projected.Sources[i]
			known := p.Secret != nil || p.ConfigMap != nil || p.DownwardAPI != nil || p.ServiceAccountToken != nil
			c.refuse(!known, "volume %s: this projected source; known are secret, configMap, downwardAPI and serviceAccountToken", v.Name)
		}
		return
	}
	known := s.EmptyDir != nil || s.Secret != nil || s.ConfigMap != nil || s.DownwardAPI != nil || s.PersistentVolumeClaim != nil
	c.refuse(s.HostPath != nil, "volume %s: hostPath: pods get no part of the host", v.Name)
	c.refuse(!known && s.HostPath == nil,
		"volume %s: this type; known are emptyDir, secret, configMap, downwardAPI, projected and persistentVolumeClaim", v.Name)
}

func (c *checker) container(k *corev1.Container) {
	where := "container " + k.Name
	c.refuse(k.Lifecycle != nil && (k.Lifecycle.PostStart != nil || k.Lifecycle.PreStop != nil), "%s: lifecycle hooks", where)
	c.refuse(k.TTY || k.Stdin, "%s: stdin and tty", where)
	c.refuse(len(k.VolumeDevices) > 0, "%s: volumeDevices", where)
	c.refuse(len(k.RestartPolicyRules) > 0, "%s: restartPolicyRules", where)
	for _, m := range k.VolumeMounts {
		propagates := m.MountPropagation != nil && *m.MountPropagation != corev1.MountPropagationNone
		c.refuse(propagates, "%s: mountPropagation of %s", where, m.Name)
	}
	for _, p := range k.Ports {
		c.refuse(p.HostIP != "" && p.HostIP != "127.0.0.1" && p.HostIP != "0.0.0.0", "%s: hostIP %s", where, p.HostIP)
		c.refuse(p.HostPort != 0 && p.HostPort != p.ContainerPort, "%s: hostPort %d differs from containerPort %d; pods share the host's network",
			where, p.HostPort, p.ContainerPort)
	}
	for _, probe := range []*corev1.Probe{k.StartupProbe, k.ReadinessProbe, k.LivenessProbe} {
		c.refuse(probe != nil && probe.GRPC != nil, "%s: grpc probe", where)
	}
	for _, e := range k.Env {
		c.refuse(e.ValueFrom != nil && e.ValueFrom.FileKeyRef != nil, "%s: environment variable %s: fileKeyRef", where, e.Name)
	}
	sc := k.SecurityContext
	if sc == nil {
		return
	}
	c.refuse(isTrue(sc.Privileged), "%s: privileged", where)
	c.refuse(sc.ProcMount != nil && *sc.ProcMount != corev1.DefaultProcMount, "%s: procMount %s", where, deref(sc.ProcMount))
	c.refuse(sc.SELinuxOptions != nil, "%s: seLinuxOptions", where)
	c.refuse(sc.WindowsOptions != nil, "%s: windowsOptions", where)
	c.profiles(where, sc.SeccompProfile, sc.AppArmorProfile)
	if sc.Capabilities != nil {
		for _, added := range sc.Capabilities.Add {
			name := strings.TrimPrefix(strings.ToUpper(string(added)), "CAP_")
			c.refuse(!slices.Contains(c.caps, name), "%s: capability %s", where, name)
		}
	}
}

func deref(m *corev1.ProcMountType) corev1.ProcMountType {
	if m == nil {
		return ""
	}
	return *m
}

// Ports returns the ports that a pod names. Pods share the host's network, so
// two pods cannot serve the same one.
func Ports(pod *corev1.Pod) []int32 {
	var ports []int32
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			for _, p := range list[i].Ports {
				ports = append(ports, p.ContainerPort)
			}
		}
	}
	return ports
}
