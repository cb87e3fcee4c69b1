package devnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	vkapi "github.com/virtual-kubelet/virtual-kubelet/node/api"
	corev1 "k8s.io/api/core/v1"

	"belay.dev/belay/test/devnode/logfile"
)

// logIndex knows the logs of a pod's containers. It is read by the log server
// while the worker writes it.
type logIndex struct {
	mu    sync.Mutex
	paths map[string][]string        // by container, oldest first
	ends  map[string]<-chan struct{} // by container: the end of the newest run
}

// began takes notice of a container's new run.
func (l *logIndex) began(container, path string, over <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.paths == nil {
		l.paths, l.ends = map[string][]string{}, map[string]<-chan struct{}{}
	}
	l.paths[container] = append(l.paths[container], path)
	l.ends[container] = over
}

// end is closed when the container's newest run has ended; nil when it has none.
func (l *logIndex) end(container string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ends[container]
}

func (l *logIndex) path(container string, previous bool) (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	paths := l.paths[container]
	at := len(paths) - 1
	if previous {
		at--
	}
	if at < 0 {
		return "", false
	}
	return paths[at], true
}

// serveLogs starts the node's endpoint and returns its port, 0 without one.
func (n *Node) serveLogs() (int32, error) {
	if n.cfg.LogServer == nil {
		return 0, nil
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(hostIP, "0"))
	if err != nil {
		return 0, fmt.Errorf("listen for log requests: %w", err)
	}
	n.logs = &http.Server{
		Handler: vkapi.PodHandler(vkapi.PodHandlerConfig{
			GetContainerLogs: n.containerLogs,
			GetPods:          n.listPods, GetPodsFromKubernetes: n.listPods,
		}, false),
		TLSConfig:         n.cfg.LogServer,
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          nil,
	}
	n.goes(func() {
		if err := n.logs.ServeTLS(listener, "", ""); err != nil && !errors.Is(err, http.ErrServerClosed) {
			n.cfg.Log.Error("serve logs", "error", err)
		}
	})
	return portOf(listener.Addr())
}

func (n *Node) listPods(context.Context) ([]*corev1.Pod, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var pods []*corev1.Pod
	for _, w := range n.workers {
		pods = append(pods, w.original)
	}
	return pods, nil
}

// containerLogs opens a container's log as the API server asks for it.
func (n *Node) containerLogs(ctx context.Context, namespace, pod, container string, o vkapi.ContainerLogOpts) (io.ReadCloser, error) {
	w := n.logsOf(namespace, pod)
	if w == nil {
		return nil, errdefs.NotFoundf("pod %s/%s is not on node %s", namespace, pod, n.cfg.Name)
	}
	path, ok := w.logs.path(container, o.Previous)
	if !ok {
		if o.Previous {
			return nil, errdefs.InvalidInputf("previous terminated container %q in pod %q not found", container, pod)
		}
		return nil, errdefs.InvalidInputf("container %q in pod %q is waiting to start", container, pod)
	}
	options := logfile.Options{Tail: -1, LimitBytes: o.LimitBytes, Timestamps: o.Timestamps, Since: o.SinceTime}
	if o.Tail > 0 {
		options.Tail = o.Tail
	}
	if o.SinceSeconds > 0 {
		options.Since = n.cfg.Clock.Now().Add(-time.Duration(o.SinceSeconds) * time.Second)
	}
	if o.Follow && !o.Previous {
		options.Follow = w.logs.end(container)
	}
	r, writer := io.Pipe()
	go func() {
		writer.CloseWithError(logfile.Copy(ctx, writer, path, options))
	}()
	return r, nil
}

func (n *Node) logsOf(namespace, name string) *worker {
	n.mu.Lock()
	defer n.mu.Unlock()
	var found *worker
	for _, w := range n.workers {
		if w.namespace == namespace && w.name == name && (found == nil || !w.over()) {
			found = w
		}
	}
	return found
}

// trimID is the name of a container's directory of files.
func trimID(id string) string { return strings.TrimPrefix(id, idScheme) }

func portOf(a net.Addr) (int32, error) {
	_, port, err := net.SplitHostPort(a.String())
	if err != nil {
		return 0, fmt.Errorf("the log server's address: %w", err)
	}
	n, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("the log server's address: %w", err)
	}
	return int32(n), nil
}
