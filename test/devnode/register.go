package devnode

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"belay.dev/belay/test/devnode/container"
	"belay.dev/belay/test/devnode/provision"
)

// maxPods is a kubelet's default.
const maxPods = 110

// IsolationAnnotation on the node says how containers are kept apart.
const IsolationAnnotation = "devnode.belay.dev/isolation"

// isolation is the value of IsolationAnnotation.
func isolation() string {
	if os.Geteuid() == 0 {
		return "own mount, pid, IPC and UTS namespaces and user ids per container; network of the host"
	}
	return "own mount, pid, IPC, UTS and user namespaces per container; one user id of the host for all; network of the host"
}

// describe makes the node's object.
func (n *Node) describe(logPort int32) *corev1.Node {
	now := metav1.NewTime(n.cfg.Clock.Now())
	condition := func(kind corev1.NodeConditionType, ok bool, reason, message string) corev1.NodeCondition {
		status := corev1.ConditionFalse
		if ok {
			status = corev1.ConditionTrue
		}
		return corev1.NodeCondition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: now, LastHeartbeatTime: now}
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: n.cfg.Name,
			Labels: map[string]string{
				corev1.LabelHostname:   n.cfg.Name,
				corev1.LabelOSStable:   runtime.GOOS,
				corev1.LabelArchStable: runtime.GOARCH,
				provision.StorageLabel: provision.Storage(n.cfg.ClaimsDir),
			},
			Annotations: map[string]string{IsolationAnnotation: isolation()},
		},
		Status: corev1.NodeStatus{
			Capacity: allocatable(), Allocatable: allocatable(),
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: hostIP},
				{Type: corev1.NodeHostName, Address: n.cfg.Name},
			},
			Conditions: []corev1.NodeCondition{
				condition(corev1.NodeReady, true, "KubeletReady", "devnode runs pods as processes"),
				condition(corev1.NodeMemoryPressure, false, "KubeletHasSufficientMemory", ""),
				condition(corev1.NodeDiskPressure, false, "KubeletHasNoDiskPressure", ""),
				condition(corev1.NodePIDPressure, false, "KubeletHasSufficientPID", ""),
			},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: logPort}},
			NodeInfo: corev1.NodeSystemInfo{
				OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH,
				KernelVersion: kernel(), ContainerRuntimeVersion: "devnode://1", KubeletVersion: "devnode",
			},
		},
	}
}

func kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return string(u.Release[:bytes.IndexByte(u.Release[:], 0)])
}

func allocatable() corev1.ResourceList {
	list := corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		corev1.ResourcePods:             *resource.NewQuantity(maxPods, resource.DecimalSI),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		list[corev1.ResourceMemory] = *resource.NewQuantity(int64(info.Totalram)*int64(info.Unit), resource.BinarySI)
	}
	return list
}

// selfCheck runs an empty container, so that a machine that cannot isolate
// containers fails the start instead of every pod.
func (n *Node) selfCheck() error {
	root := filepath.Join(n.cfg.Dir, "pods", "self-check")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return fmt.Errorf("devnode: self check: %w", err)
	}
	defer func() { _ = os.RemoveAll(root) }()
	var out bytes.Buffer
	p, err := container.Start(container.Spec{
		Hostname: "self-check", Root: root, Files: container.HostFiles(), Args: []string{"true"},
		Env: []string{"PATH=" + defaultPath}, UID: 65532, GID: 65532, NoNewPrivileges: true,
	}, &out, &out)
	if err != nil {
		return fmt.Errorf("devnode: this machine cannot isolate containers: %w", err)
	}
	select {
	case <-p.Done():
	case <-n.cfg.Clock.After(20 * time.Second):
		p.Kill()
		<-p.Done()
		return errors.New("devnode: a self check container did not end within 20 s")
	}
	if exit := p.Exit(); exit.Code != 0 {
		return fmt.Errorf("devnode: this machine cannot isolate containers: self check ended with %d: %w; %s", exit.Code, exit.StartError, out.Bytes())
	}
	return nil
}
