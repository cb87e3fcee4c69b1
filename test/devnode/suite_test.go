package devnode_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"belay.dev/belay/test/devnode"
	"belay.dev/belay/test/rig"

	"belay.dev/belay/test/poll"
)

// One control plane and one node serve all tests; each test has a namespace.
var (
	cluster *rig.Rig
	node    *devnode.Node
	client  kubernetes.Interface
	nodeDir string
)

var hostImage = devnode.Image{Host: true}

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(childName) != "" {
		os.Exit(runChild())
	}
	os.Exit(runSuite(m))
}

func runSuite(m *testing.M) int {
	dir, err := os.MkdirTemp("", "devnode-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if cluster, err = rig.Start(ctx, rig.Config{Dir: dir + "/rig"}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer cluster.Stop()
	if client, err = kubernetes.NewForConfig(cluster.Config()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	nodeDir = dir + "/node"
	if node, err = startNode(ctx, "devnode", nodeDir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer node.Stop()
	return m.Run()
}

func startNode(ctx context.Context, name, dir string) (*devnode.Node, error) {
	tls, err := cluster.KubeletTLS(name)
	if err != nil {
		return nil, err
	}
	return devnode.Start(ctx, devnode.Config{
		Name: name, API: cluster.Config(), Dir: dir, LogServer: tls, Refresh: 200 * time.Millisecond,
		Images: map[string]devnode.Image{"host": hostImage},
		Log:    slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
}

// namespace makes a namespace for one test.
func namespace(t *testing.T) string {
	t.Helper()
	ns, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = client.CoreV1().Namespaces().Delete(context.Background(), ns.Name, *metav1.NewDeleteOptions(0))
	})
	eventually(t, "the namespace has its default service account", func() error {
		_, err := client.CoreV1().ServiceAccounts(ns.Name).Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	return ns.Name
}

// eventually polls until ok returns nil.
func eventually(t *testing.T, what string, ok func() error) {
	t.Helper()
	poll.Until(t, 30*time.Second, what, ok)
}

// sh is a container that runs a script in the host image.
func sh(name, script string) corev1.Container {
	return corev1.Container{Name: name, Image: "host", Command: []string{"sh", "-c", script}}
}

// sidecar makes an init container a sidecar.
func sidecar(c corev1.Container) corev1.Container {
	always := corev1.ContainerRestartPolicyAlways
	c.RestartPolicy = &always
	return c
}

func pod(ns, name string, spec corev1.PodSpec) *corev1.Pod {
	if spec.RestartPolicy == "" {
		spec.RestartPolicy = corev1.RestartPolicyNever
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: spec}
}

func create(t *testing.T, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	created, err := client.CoreV1().Pods(p.Namespace).Create(t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func get(t *testing.T, ns, name string) *corev1.Pod {
	t.Helper()
	p, err := client.CoreV1().Pods(ns).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// await waits for a phase and returns the pod.
func await(t *testing.T, p *corev1.Pod, phase corev1.PodPhase) *corev1.Pod {
	t.Helper()
	var last *corev1.Pod
	eventually(t, fmt.Sprintf("pod %s is %s", p.Name, phase), func() error {
		last = get(t, p.Namespace, p.Name)
		if last.Status.Phase != phase {
			return fmt.Errorf("it is %s: %s", last.Status.Phase, describe(last))
		}
		return nil
	})
	return last
}

func awaitGone(t *testing.T, p *corev1.Pod) {
	t.Helper()
	eventually(t, "pod "+p.Name+" is gone", func() error {
		got, err := client.CoreV1().Pods(p.Namespace).Get(t.Context(), p.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("%w: %s", err, describe(got))
	})
}

// describe is a pod's status in short, for failures.
func describe(p *corev1.Pod) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s;", p.Status.Phase, p.Status.Reason, p.Status.Message)
	for _, s := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
		switch {
		case s.State.Running != nil:
			fmt.Fprintf(&b, " %s running;", s.Name)
		case s.State.Terminated != nil:
			fmt.Fprintf(&b, " %s ended %d %s %q;", s.Name, s.State.Terminated.ExitCode, s.State.Terminated.Reason, s.State.Terminated.Message)
		case s.State.Waiting != nil:
			fmt.Fprintf(&b, " %s waits %s %q;", s.Name, s.State.Waiting.Reason, s.State.Waiting.Message)
		}
	}
	return b.String()
}

func readLogs(t *testing.T, p *corev1.Pod, o corev1.PodLogOptions) (string, error) {
	t.Helper()
	data, err := client.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &o).DoRaw(t.Context())
	return string(data), err
}

// logs returns a container's log through the API server.
func logs(t *testing.T, p *corev1.Pod, container string) string {
	t.Helper()
	text, err := readLogs(t, p, corev1.PodLogOptions{Container: container})
	if err != nil {
		t.Fatalf("logs of %s: %v", container, err)
	}
	return text
}
