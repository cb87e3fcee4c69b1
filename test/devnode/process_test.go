package devnode_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"belay.dev/belay/test/devnode"
	"belay.dev/belay/test/devnode/provision"
)

// The variables that make this test's program a node of its own.
const (
	childName       = "DEVNODE_TEST_NODE"
	childDir        = "DEVNODE_TEST_DIR"
	childKubeconfig = "DEVNODE_TEST_KUBECONFIG"
)

// runChild is a program that is a node until its input ends.
func runChild() int {
	api, err := clientcmd.BuildConfigFromFlags("", os.Getenv(childKubeconfig))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n, err := devnode.Start(ctx, devnode.Config{Name: os.Getenv(childName), API: api, Dir: os.Getenv(childDir),
		Images: map[string]devnode.Image{"host": hostImage}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	n.Stop()
	return 0
}

// child is a node in a process of its own.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer
}

// startChild starts a node as another process, and as another user if uid is not 0.
func startChild(t *testing.T, name, dir string, uid uint32) *child {
	t.Helper()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	data, err := os.ReadFile(cluster.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(kubeconfig, data, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), childName+"="+name, childDir+"="+filepath.Join(dir, "node"), childKubeconfig+"="+kubeconfig)
	cmd.Stderr = os.Stderr
	if uid != 0 {
		for _, p := range []string{dir, kubeconfig} {
			if err := os.Chown(p, int(uid), int(uid)); err != nil {
				t.Fatal(err)
			}
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: cmd, stdin: stdin}
	t.Cleanup(func() {
		c.kill()
		_ = client.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{})
	})
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the node said %q, %v", line, err)
	}
	return c
}

func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// stop ends the node in order.
func (c *child) stop(t *testing.T) {
	t.Helper()
	if err := c.stdin.Close(); err != nil {
		t.Error(err)
	}
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("the node ended: %v", err)
	}
}

// openDir is a directory that another user can reach.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "devnode-child-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// processes counts this machine's processes whose command line has a mark.
func processes(t *testing.T, mark string) int {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, path := range lines {
		if data, err := os.ReadFile(path); err == nil && strings.Contains(string(data), mark) {
			n++
		}
	}
	return n
}

// onNode binds a pod to a node, past the scheduler.
func onNode(p *corev1.Pod, name string) *corev1.Pod {
	p.Spec.NodeName = name
	return p
}

func TestAKilledNodeTakesItsContainersAlongAndItsSuccessorReportsThem(t *testing.T) {
	ns := namespace(t)
	dir := openDir(t)
	c := startChild(t, "fragile", dir, 0)
	p := create(t, onNode(pod(ns, "lost", corev1.PodSpec{
		InitContainers: []corev1.Container{sidecar(sh("side", "exec sleep 98761"))},
		Containers:     []corev1.Container{sh("main", "setsid sleep 98762 & exec sleep 98763")},
	}), "fragile"))
	running(t, p, "main")
	eventually(t, "three processes run", func() error {
		if n := processes(t, "sleep\x009876"); n != 3 {
			return fmt.Errorf("%d do", n)
		}
		return nil
	})
	c.kill()
	eventually(t, "no process is left", func() error {
		if n := processes(t, "sleep\x009876"); n != 0 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	if got := get(t, ns, p.Name); got.Status.Phase != corev1.PodRunning {
		t.Errorf("nobody is there to report, yet the pod is %s", describe(got))
	}

	c = startChild(t, "fragile", dir, 0)
	got := await(t, p, corev1.PodFailed)
	if got.Status.Reason != "NodeRestarted" {
		t.Errorf("the lost pod is %s", describe(got))
	}
	for _, s := range append(got.Status.InitContainerStatuses, got.Status.ContainerStatuses...) {
		if s.State.Terminated == nil || s.State.Terminated.ExitCode != 137 {
			t.Errorf("the lost container %s is %+v", s.Name, s.State)
		}
	}
	c.stop(t)
}

func TestAStoppedNodeLeavesNothingBehind(t *testing.T) {
	ns := namespace(t)
	dir := openDir(t)
	c := startChild(t, "brief", dir, 0)
	main := sh("main", "exec sleep 98771")
	main.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	p := create(t, onNode(pod(ns, "brief", corev1.PodSpec{Containers: []corev1.Container{main},
		Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}}), "brief"))
	running(t, p, "main")
	begin := time.Now()
	c.stop(t)
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("the stop took %v", took)
	}
	if n := processes(t, "sleep\x0098771"); n != 0 {
		t.Errorf("%d processes are left", n)
	}
	// Other nodes on this machine may have containers; what a dead node leaves behind has no parent.
	if n := orphansNamed(t, "devnode-container"); n != 0 {
		t.Errorf("%d containers are left", n)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), dir) {
		t.Error("mounts are left")
	}
	if _, err := os.Stat(filepath.Join(dir, "node", "pods")); !os.IsNotExist(err) {
		t.Errorf("the pods' files are left: %v", err)
	}
}

// orphansNamed counts the processes of a name whose parent has died.
func orphansNamed(t *testing.T, name string) int {
	t.Helper()
	n := 0
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		if err != nil || !strings.HasPrefix(string(line), name) {
			continue
		}
		fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
		if len(fields) > 1 && fields[1] == "1" {
			n++
		}
	}
	return n
}

func TestAgentPodsRunWithoutRoot(t *testing.T) {
	ns := namespace(t)
	var uid uint32
	if os.Geteuid() == 0 {
		uid = 54321
	}
	startChild(t, "rootless", openDir(t), uid)
	putSecret(t, ns, "keys", "primary", "s3cret")
	claim, p := agentPod(ns)
	claim.Spec.StorageClassName = ptr.To(provision.ClassWait)
	if _, err := client.CoreV1().PersistentVolumeClaims(ns).Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "rootless"}
	create(t, p)
	got := await(t, p, corev1.PodSucceeded)
	if got.Spec.NodeName != "rootless" {
		t.Errorf("the pod ran on %s", got.Spec.NodeName)
	}
	if s := got.Status.ContainerStatuses[0].State.Terminated; s == nil || s.Message != "done\n" {
		t.Errorf("the runner is %+v", got.Status.ContainerStatuses[0].State)
	}

	apart := create(t, onNode(apartPod(ns), "rootless"))
	got = await(t, apart, corev1.PodSucceeded)
	if s := got.Status.ContainerStatuses[0].State.Terminated; s == nil || s.Message != "searched\n" {
		t.Errorf("the workspace found: %+v", s)
	}
	object, err := client.CoreV1().Nodes().Get(t.Context(), "rootless", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if text := object.Annotations[devnode.IsolationAnnotation]; !strings.Contains(text, "one user id of the host for all") {
		t.Errorf("the node does not say how weak its isolation is: %q", text)
	}
}
