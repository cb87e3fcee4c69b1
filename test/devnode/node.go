package devnode

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	vknode "github.com/virtual-kubelet/virtual-kubelet/node"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"belay.dev/belay/test/devnode/podenv"
	"belay.dev/belay/test/devnode/provision"
	"belay.dev/belay/test/devnode/volume"
)

// hostIP is the address of the node and of every pod on it.
const hostIP = "127.0.0.1"

// Node is a running node.
type Node struct {
	cfg      Config
	client   kubernetes.Interface
	volumes  *volume.Manager
	facts    podenv.Facts
	events   record.EventRecorder
	object   *corev1.Node
	logs     *http.Server
	shutdown []func()

	mu      sync.Mutex
	images  map[string]Image
	workers map[types.UID]*worker
	stopped bool

	running sync.WaitGroup
	cancel  context.CancelFunc
}

// Start registers the node and returns when pods can be scheduled to it. ctx
// bounds the start only; Stop ends the node.
func Start(ctx context.Context, cfg Config) (*Node, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	api := rest.CopyConfig(cfg.API)
	api.QPS = -1 // a node's traffic is bounded by its pods
	client, err := kubernetes.NewForConfig(api)
	if err != nil {
		return nil, fmt.Errorf("devnode: make a client: %w", err)
	}
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("devnode: make the directory: %w", err)
	}
	// What an earlier run left of its pods; their processes ended with it.
	if err := os.RemoveAll(filepath.Join(cfg.Dir, "pods")); err != nil {
		return nil, fmt.Errorf("devnode: remove old pods' files: %w", err)
	}
	n := &Node{cfg: cfg, client: client, images: maps.Clone(cfg.Images), workers: map[types.UID]*worker{}}
	if n.images == nil {
		n.images = map[string]Image{}
	}
	if n.facts, err = facts(api); err != nil {
		return nil, err
	}
	if err := n.selfCheck(); err != nil {
		return nil, err
	}
	n.volumes = volume.NewManager(volume.Config{
		PodsDir: filepath.Join(cfg.Dir, "pods"), ClaimsDir: cfg.ClaimsDir, Client: client, Clock: cfg.Clock, Facts: n.facts,
	})
	n.startEvents()
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	n.cancel = cancel
	if err := n.start(ctx, life); err != nil {
		n.Stop()
		return nil, fmt.Errorf("devnode: %w", err)
	}
	return n, nil
}

// start starts the node's parts, which end with life.
func (n *Node) start(ctx, life context.Context) error {
	port, err := n.serveLogs()
	if err != nil {
		return err
	}
	provisioning := make(chan struct{})
	failed := make(chan error, 3)
	n.goes(func() {
		storage := provision.Config{Client: n.client, Node: n.cfg.Name, Dir: n.cfg.ClaimsDir, Log: n.cfg.Log, Ready: func() { close(provisioning) }}
		if err := provision.Run(life, storage); err != nil && life.Err() == nil {
			failed <- fmt.Errorf("storage: %w", err)
		}
	})
	n.object = n.describe(port)
	controller, err := vknode.NewNodeController(vknode.NaiveNodeProvider{}, n.object, n.client.CoreV1().Nodes(),
		vknode.WithNodeEnableLeaseV1(n.client.CoordinationV1().Leases(corev1.NamespaceNodeLease), vknode.DefaultLeaseDuration))
	if err != nil {
		return fmt.Errorf("make the node controller: %w", err)
	}
	n.goes(func() {
		if err := controller.Run(life); err != nil && life.Err() == nil {
			failed <- fmt.Errorf("register the node: %w", err)
		}
	})
	synced, err := n.watchPods(life)
	if err != nil {
		return err
	}
	for _, ready := range []<-chan struct{}{provisioning, controller.Ready(), synced} {
		select {
		case <-ready:
		case err := <-failed:
			return err
		case <-ctx.Done():
			return fmt.Errorf("the node is not ready: %w", context.Cause(ctx))
		}
	}
	return n.awaitSchedulable(ctx)
}

// goes runs f as a part of the node.
func (n *Node) goes(f func()) {
	n.running.Go(f)
}

// awaitSchedulable waits until the control plane has seen the node ready and
// took away the taint of a new node.
func (n *Node) awaitSchedulable(ctx context.Context) error {
	for {
		node, err := n.client.CoreV1().Nodes().Get(ctx, n.cfg.Name, metav1.GetOptions{})
		if err == nil && len(node.Spec.Taints) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the control plane does not accept the node: %w", errors.Join(context.Cause(ctx), err))
		case <-n.cfg.Clock.After(20 * time.Millisecond):
		}
	}
}

// Stop ends the node as a power cut would end a machine: every process of its
// pods is killed and the API server is told nothing. Nothing is left running or
// mounted. The node's object and the claims' data stay; a node started under the
// same name reports its lost pods as failed.
func (n *Node) Stop() {
	n.mu.Lock()
	n.stopped = true
	n.mu.Unlock()
	if n.cancel != nil {
		n.cancel()
	}
	if n.logs != nil {
		_ = n.logs.Close()
	}
	n.running.Wait()
	for _, f := range n.shutdown {
		f()
	}
	// Only stubs of mount points are left in it.
	if err := os.RemoveAll(filepath.Join(n.cfg.Dir, "pods")); err != nil {
		n.cfg.Log.Warn("remove the pods' files", "error", err)
	}
}

// RegisterImage adds or replaces an image.
func (n *Node) RegisterImage(name string, image Image) error {
	if err := image.validate(name); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.images[name] = image
	return nil
}

func (n *Node) image(name string) (Image, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	image, ok := n.images[name]
	return image, ok
}

// KillPod kills every process of a pod at once with SIGKILL and returns when
// they are gone. The pod's status follows.
func (n *Node) KillPod(namespace, name string) error {
	w, err := n.worker(namespace, name)
	if err != nil {
		return err
	}
	return w.kill("")
}

// KillContainer kills every process of one container of a pod with SIGKILL.
func (n *Node) KillContainer(namespace, name, containerName string) error {
	w, err := n.worker(namespace, name)
	if err != nil {
		return err
	}
	return w.kill(containerName)
}

// Exec runs a command in a running container, as the container's user, and
// returns its exit code and the first 4 KiB of its output.
func (n *Node) Exec(ctx context.Context, namespace, name, containerName string, args ...string) (code int, output string, err error) {
	w, err := n.worker(namespace, name)
	if err != nil {
		return 0, "", err
	}
	p, err := w.process(containerName)
	if err != nil {
		return 0, "", err
	}
	return p.Exec(ctx, args)
}

// Evict ends a pod as a node under pressure does: it fails with the reason
// Evicted and the condition DisruptionTarget.
func (n *Node) Evict(namespace, name, message string) error {
	w, err := n.worker(namespace, name)
	if err != nil {
		return err
	}
	w.send(evicted{message: message})
	return nil
}

func (n *Node) worker(namespace, name string) (*worker, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range n.workers {
		if w.namespace == namespace && w.name == name && !w.over() {
			return w, nil
		}
	}
	return nil, fmt.Errorf("devnode: no pod %s/%s runs on node %s", namespace, name, n.cfg.Name)
}

func (n *Node) startEvents() {
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: n.client.CoreV1().Events("")})
	n.events = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "devnode", Host: n.cfg.Name})
	n.shutdown = append(n.shutdown, broadcaster.Shutdown)
}

// facts are what all pods of this node learn about their surroundings.
func facts(api *rest.Config) (podenv.Facts, error) {
	u, err := url.Parse(api.Host)
	if err != nil {
		return podenv.Facts{}, fmt.Errorf("devnode: address of the API server: %w", err)
	}
	host, port := u.Hostname(), u.Port()
	if port == "" {
		port = "443"
	}
	return podenv.Facts{
		HostIP: hostIP, PodIP: hostIP, Allocatable: allocatable(),
		// The service "kubernetes" has an address that nothing serves here.
		Base: []corev1.EnvVar{
			{Name: "KUBERNETES_SERVICE_HOST", Value: host},
			{Name: "KUBERNETES_SERVICE_PORT", Value: port},
			{Name: "KUBERNETES_SERVICE_PORT_HTTPS", Value: port},
			{Name: "KUBERNETES_PORT", Value: "tcp://" + net.JoinHostPort(host, port)},
		},
	}, nil
}
