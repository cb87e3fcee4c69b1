package devnode

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"belay.dev/belay/test/devnode/container"
	"belay.dev/belay/test/devnode/lifecycle"
)

type probeKind int

const (
	startupProbe probeKind = iota
	readinessProbe
	livenessProbe
)

func (k probeKind) String() string {
	return [...]string{"startup", "readiness", "liveness"}[k]
}

// startProbes runs a container's probes until ctx ends: the startup probe first,
// the others after it.
func (w *worker) startProbes(ctx context.Context, spec *corev1.Container, process *container.Process) {
	run := func(kind probeKind, p *corev1.Probe) bool {
		return w.runProbe(ctx, spec, process, kind, p)
	}
	if spec.StartupProbe == nil && spec.ReadinessProbe == nil && spec.LivenessProbe == nil {
		return
	}
	w.helps(func() {
		if spec.StartupProbe != nil && !run(startupProbe, spec.StartupProbe) {
			return
		}
		if spec.LivenessProbe != nil {
			w.helps(func() { run(livenessProbe, spec.LivenessProbe) })
		}
		if spec.ReadinessProbe != nil {
			run(readinessProbe, spec.ReadinessProbe)
		}
	})
}

// eagerly is how often a container that is not up yet is looked at. A kubelet
// waits a whole period; here nobody gains by that.
const eagerly = 100 * time.Millisecond

// runProbe reports each turn of a probe's verdict. A startup probe returns with
// its first verdict, a liveness probe at its failure. Failures count once a
// period, however often the container is looked at.
func (w *worker) runProbe(ctx context.Context, spec *corev1.Container, process *container.Process, kind probeKind, p *corev1.Probe) bool {
	period := seconds(p.PeriodSeconds, 10)
	if !w.sleep(ctx, time.Duration(p.InitialDelaySeconds)*time.Second) {
		return false
	}
	var verdict lifecycle.Verdict
	for {
		err := w.probeOnce(ctx, spec, process, p)
		if ctx.Err() != nil {
			return false
		}
		if verdict.Count(err == nil, w.now(), period, p) {
			message := ""
			if err != nil {
				message = err.Error()
			}
			if !w.send(probed{name: spec.Name, process: process, kind: kind, ok: verdict.OK, message: message}) {
				return false
			}
			if kind == startupProbe || kind == livenessProbe && !verdict.OK {
				return verdict.OK
			}
		}
		wait := period
		if kind != livenessProbe && !verdict.OK {
			wait = min(wait, eagerly)
		}
		if !w.sleep(ctx, wait) {
			return false
		}
	}
}

func seconds(n, unset int32) time.Duration {
	if n <= 0 {
		n = unset
	}
	return time.Duration(n) * time.Second
}

// sleep reports false when ctx ended first.
func (w *worker) sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	select {
	case <-ctx.Done():
		return false
	case <-w.node.cfg.Clock.After(d):
		return true
	}
}

func (w *worker) probeOnce(ctx context.Context, spec *corev1.Container, process *container.Process, p *corev1.Probe) error {
	ctx, cancel := context.WithTimeout(ctx, seconds(p.TimeoutSeconds, 1))
	defer cancel()
	switch {
	case p.Exec != nil:
		code, output, err := process.Exec(ctx, p.Exec.Command)
		if err != nil {
			return err
		}
		if code != 0 {
			return fmt.Errorf("command ended with %d: %s", code, strings.TrimSpace(output))
		}
		return nil
	case p.TCPSocket != nil:
		address, err := dialAddress(spec, p.TCPSocket.Host, p.TCPSocket.Port)
		if err != nil {
			return err
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	case p.HTTPGet != nil:
		return httpProbe(ctx, spec, p.HTTPGet)
	}
	return fmt.Errorf("the probe names nothing that the node can do")
}

func dialAddress(spec *corev1.Container, host string, port intstr.IntOrString) (string, error) {
	if host == "" {
		host = hostIP
	}
	if port.Type == intstr.Int {
		return net.JoinHostPort(host, strconv.Itoa(port.IntValue())), nil
	}
	for _, p := range spec.Ports {
		if p.Name == port.StrVal {
			return net.JoinHostPort(host, strconv.Itoa(int(p.ContainerPort))), nil
		}
	}
	return "", fmt.Errorf("container %s has no port named %q", spec.Name, port.StrVal)
}

// httpProbe accepts any status from 200 to 399, and any certificate, as a kubelet
// does.
func httpProbe(ctx context.Context, spec *corev1.Container, get *corev1.HTTPGetAction) error {
	address, err := dialAddress(spec, get.Host, get.Port)
	if err != nil {
		return err
	}
	scheme := strings.ToLower(string(get.Scheme))
	if scheme == "" {
		scheme = "http"
	}
	u, err := url.Parse(get.Path)
	if err != nil {
		return fmt.Errorf("probe path: %w", err)
	}
	u.Scheme, u.Host = scheme, address
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	for _, h := range get.HTTPHeaders {
		req.Header.Add(h.Name, h.Value)
	}
	resp, err := probeClient.Do(req)
	if err != nil {
		return err
	}
	if err := resp.Body.Close(); err != nil {
		return err
	}
	if resp.StatusCode < 200 || resp.StatusCode >= 400 {
		return fmt.Errorf("%s answers %s", u, resp.Status)
	}
	return nil
}

var probeClient = &http.Client{
	Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the kubelet's rule for probes
	},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// onProbe takes a probe's verdict in.
func (w *worker) onProbe(e probed) {
	l, c := w.lives[e.name], w.facts.Containers[e.name]
	if l == nil || l.process != e.process {
		return // of an earlier run of the container
	}
	switch {
	case e.kind == readinessProbe:
		c.Ready = e.ok
	case e.kind == startupProbe && e.ok:
		c.Started = true
	case !e.ok && l.killAt.IsZero():
		w.node.events.Eventf(w.pod, corev1.EventTypeWarning, "Unhealthy", "%s probe of container %s failed: %s", e.kind, e.name, e.message)
		w.stopContainer(l, w.now().Add(w.grace()))
	}
}
