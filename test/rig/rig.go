// Package rig runs a Kubernetes control plane as child processes: etcd,
// kube-apiserver, kube-controller-manager and kube-scheduler, so that garbage
// collection, claim binding, service accounts, scheduling and namespace deletion
// are the real ones. It has no node; package devnode adds one.
//
// Everything listens on 127.0.0.1, speaks TLS with certificates of the rig's own
// authority, keeps its data in one directory, needs no root and ends with the
// program that started it, even when that is killed.
//
// It imports client-go and package spawn.
package rig

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Config says how to run a rig.
type Config struct {
	// Dir holds the rig's files; it is made if missing and never removed. Each
	// Start begins with an empty cluster.
	Dir string
	// Assets is the directory of the four programs. Default: the environment's
	// KUBEBUILDER_ASSETS, which hack/assets.sh sets up.
	Assets string
	// StartTimeout bounds Start. Default 60 s.
	StartTimeout time.Duration
	// APIServerArgs are appended to kube-apiserver's own, for instance an
	// admission plugin.
	APIServerArgs []string
}

// Rig is a running control plane.
type Rig struct {
	dir        string
	pki        *pki
	ports      ports
	components []*component // in order of start
	config     *rest.Config
}

// ports are the ones a rig listens on.
type ports struct {
	etcd, etcdPeer, apiserver, manager, scheduler int
}

const (
	serviceRange = "10.96.0.0/24"
	// stopGrace is what each program gets for an orderly end. There is nothing
	// to keep: the data directory is not used again.
	stopGrace = 3 * time.Second
)

// serviceIP is the first address of serviceRange, the service "kubernetes".
var serviceIP = net.IPv4(10, 96, 0, 1)

// Start starts a control plane and returns when it serves, its built-in
// controllers work and the default service account exists.
func Start(ctx context.Context, cfg Config) (*Rig, error) {
	if cfg.Dir == "" {
		return nil, errors.New("rig: Config.Dir is empty; name a directory for its files")
	}
	if cfg.Assets == "" {
		cfg.Assets = os.Getenv("KUBEBUILDER_ASSETS")
	}
	if cfg.StartTimeout == 0 {
		cfg.StartTimeout = time.Minute
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("rig: directory %s: %w", cfg.Dir, err)
	}
	binaries, err := findBinaries(cfg.Assets, "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
	if err != nil {
		return nil, fmt.Errorf("rig: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.StartTimeout)
	defer cancel()
	for try := 1; ; try++ {
		r := &Rig{dir: dir}
		if err = r.start(ctx, cfg, binaries); err == nil {
			return r, nil
		}
		r.Stop()
		if !errors.Is(err, errPortTaken) || try == 3 {
			return nil, fmt.Errorf("rig: %w", err)
		}
	}
}

func (r *Rig) start(ctx context.Context, cfg Config, binaries map[string]string) error {
	if err := os.RemoveAll(filepath.Join(r.dir, "etcd")); err != nil {
		return fmt.Errorf("empty the data directory: %w", err)
	}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return fmt.Errorf("make the directory: %w", err)
	}
	var err error
	if r.pki, err = newPKI(); err != nil {
		return err
	}
	if err := r.pki.write(r.path("pki")); err != nil {
		return err
	}
	if r.ports, err = freePorts(); err != nil {
		return err
	}
	r.config = r.restConfig(r.pki.admin)
	for name, pair := range map[string]keyPair{"kubeconfig": r.pki.admin, "manager.kubeconfig": r.pki.manager, "scheduler.kubeconfig": r.pki.schedule} {
		if err := r.writeKubeconfig(name, pair); err != nil {
			return err
		}
	}

	etcd, err := r.run(binaries["etcd"], r.etcdArgs()...)
	if err != nil {
		return err
	}
	// The API server waits for etcd by itself, but the order makes a clearer
	// failure and costs nothing.
	if err := etcd.await(ctx, "no healthy etcd", r.probe(r.ports.etcd, "/health", r.pki.etcdClient)); err != nil {
		return err
	}
	apiserver, err := r.run(binaries["kube-apiserver"], append(r.apiserverArgs(), cfg.APIServerArgs...)...)
	if err != nil {
		return err
	}
	if err := apiserver.await(ctx, "not ready", r.probe(r.ports.apiserver, "/readyz", r.pki.admin)); err != nil {
		return err
	}
	manager, err := r.run(binaries["kube-controller-manager"], r.managerArgs()...)
	if err != nil {
		return err
	}
	schedule, err := r.run(binaries["kube-scheduler"], r.schedulerArgs()...)
	if err != nil {
		return err
	}
	if err := schedule.await(ctx, "not ready", r.probe(r.ports.scheduler, "/readyz", r.pki.admin)); err != nil {
		return err
	}
	clients, err := kubernetes.NewForConfig(r.Config())
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	return manager.await(ctx, "no default service account", func(ctx context.Context) error {
		if _, err := clients.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{}); err != nil {
			return err
		}
		_, err := clients.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return err
	})
}

func (r *Rig) run(binary string, args ...string) (*component, error) {
	c, err := startComponent(binary, r.dir, args...)
	if err == nil {
		r.components = append(r.components, c)
	}
	return c, err
}

// Stop ends every program, in reverse order, and waits for them. The files
// stay.
func (r *Rig) Stop() {
	for i := len(r.components) - 1; i >= 0; i-- {
		r.components[i].stop(stopGrace)
	}
	r.components = nil
}

// Kubeconfig is the path of an administrator's kubeconfig.
func (r *Rig) Kubeconfig() string { return r.path("kubeconfig") }

// Config is an administrator's client configuration, without a rate limit.
func (r *Rig) Config() *rest.Config { return rest.CopyConfig(r.config) }

// CA is the PEM certificate of the rig's authority.
func (r *Rig) CA() []byte { return r.pki.ca.pem }

// KubeletTLS is what a node's endpoint for logs needs: a serving certificate
// that the API server trusts, and the demand for the API server's own client
// certificate, so that nobody else on this machine can read logs.
func (r *Rig) KubeletTLS(nodeName string) (*tls.Config, error) {
	pair, err := r.pki.ca.issue(subject{name: "system:node:" + nodeName, dns: []string{nodeName, "localhost"},
		ips: []net.IP{net.IPv4(127, 0, 0, 1)}, usage: server})
	if err != nil {
		return nil, err
	}
	cert, err := pair.tls()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{cert},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    r.pool(),
		VerifyConnection: func(s tls.ConnectionState) error {
			if name := s.PeerCertificates[0].Subject.CommonName; name != kubeletClient {
				return fmt.Errorf("client %q is not the API server", name)
			}
			return nil
		},
	}, nil
}

func (r *Rig) path(elem ...string) string {
	return filepath.Join(append([]string{r.dir}, elem...)...)
}

func (r *Rig) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(r.pki.ca.cert)
	return pool
}

func (r *Rig) url(port int) string { return fmt.Sprintf("https://127.0.0.1:%d", port) }

func (r *Rig) restConfig(pair keyPair) *rest.Config {
	return &rest.Config{
		Host:            r.url(r.ports.apiserver),
		TLSClientConfig: rest.TLSClientConfig{CAData: r.pki.ca.pem, CertData: pair.cert, KeyData: pair.key},
		QPS:             -1,
	}
}

func (r *Rig) writeKubeconfig(name string, pair keyPair) error {
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters["belay"] = &clientcmdapi.Cluster{Server: r.url(r.ports.apiserver), CertificateAuthorityData: r.pki.ca.pem}
	cfg.AuthInfos["belay"] = &clientcmdapi.AuthInfo{ClientCertificateData: pair.cert, ClientKeyData: pair.key}
	cfg.Contexts["belay"] = &clientcmdapi.Context{Cluster: "belay", AuthInfo: "belay", Namespace: metav1.NamespaceDefault}
	cfg.CurrentContext = "belay"
	data, err := clientcmd.Write(*cfg)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	if err := os.WriteFile(r.path(name), data, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// probe asks a health endpoint.
func (r *Rig) probe(port int, path string, as keyPair) func(context.Context) error {
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: r.pool()}}
	if port == r.ports.scheduler {
		transport.TLSClientConfig.InsecureSkipVerify = true // it signs its own certificate
	}
	cert, certErr := as.tls()
	transport.TLSClientConfig.Certificates = []tls.Certificate{cert}
	hc := &http.Client{Transport: transport, Timeout: 3 * time.Second}
	return func(ctx context.Context) error {
		if certErr != nil {
			return certErr
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url(port)+path, nil)
		if err != nil {
			return err
		}
		resp, err := hc.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(io.LimitReader(resp.Body, 2048))
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %s: %s", path, resp.Status, body)
		}
		return nil
	}
}

// freePorts chooses ports that are free now.
func freePorts() (ports, error) {
	var p ports
	for _, to := range []*int{&p.etcd, &p.etcdPeer, &p.apiserver, &p.manager, &p.scheduler} {
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return p, fmt.Errorf("choose a port: %w", err)
		}
		// All stay taken until all are chosen.
		defer func() { _ = l.Close() }()
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err == nil {
			*to, err = strconv.Atoi(port)
		}
		if err != nil {
			return p, fmt.Errorf("choose a port: %w", err)
		}
	}
	return p, nil
}
