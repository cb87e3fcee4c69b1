package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"belay.dev/belay/internal/controller/agentrun"
)

// leaderElectionID is the name of the Lease that managers compete for.
const leaderElectionID = "belay-manager"

const (
	logFormatJSON = "json"
	logFormatText = "text"
)

// options are the manager's flags.
type options struct {
	image                   string
	bootstrap               string
	workers                 int
	namespaces              []string
	resync                  time.Duration
	metricsAddress          string
	metricsInsecure         bool
	probeAddress            string
	leaderElect             bool
	leaderElectionNamespace string
	kubeAPIQPS              float32
	kubeAPIBurst            int
	logFormat               string
	verbosity               int
}

func (o *options) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.image, "image", "", "image with Belay's binaries for the pods of runs (required)")
	flags.StringVar(&o.bootstrap, "bootstrap", string(agentrun.BootstrapEnabled), "Enabled keeps the account, role and binding of runners in every namespace with a run; Disabled leaves them to you")
	flags.IntVar(&o.workers, "workers", 4, "number of runs that are reconciled at the same time")
	flags.StringSliceVar(&o.namespaces, "namespaces", nil, "namespaces to watch; all if unset")
	flags.DurationVar(&o.resync, "resync", 10*time.Hour, "how often every object is reconciled even if nothing happened")
	flags.StringVar(&o.metricsAddress, "metrics-bind-address", ":8443", "address of the metrics; 0 serves none")
	flags.BoolVar(&o.metricsInsecure, "metrics-insecure", false, "serve metrics over plain http to everyone, instead of https to those whom the API server lets get /metrics")
	flags.StringVar(&o.probeAddress, "health-probe-bind-address", ":8081", "address of /healthz and /readyz; 0 serves none")
	flags.BoolVar(&o.leaderElect, "leader-elect", false, "let only one of several managers work")
	flags.StringVar(&o.leaderElectionNamespace, "leader-election-namespace", "", "namespace of the leader's Lease; the manager's own if unset")
	flags.Float32Var(&o.kubeAPIQPS, "kube-api-qps", 50, "requests per second to the API server, in the long run")
	flags.IntVar(&o.kubeAPIBurst, "kube-api-burst", 100, "requests to the API server at once")
	flags.StringVar(&o.logFormat, "log-format", logFormatJSON, "json or text")
	flags.IntVarP(&o.verbosity, "verbosity", "v", 0, "0 logs changes of state, 1 decisions, 4 and more details")
}

// validate refuses what cannot work before anything is started.
func (o *options) validate() error {
	var errs []error
	if o.image == "" {
		errs = append(errs, errors.New("--image is required: the image with Belay's binaries for the pods of runs"))
	}
	if b := agentrun.Bootstrap(o.bootstrap); b != agentrun.BootstrapEnabled && b != agentrun.BootstrapDisabled {
		errs = append(errs, fmt.Errorf("--bootstrap is %q, want %s or %s", o.bootstrap, agentrun.BootstrapEnabled, agentrun.BootstrapDisabled))
	}
	if o.workers < 1 {
		errs = append(errs, fmt.Errorf("--workers is %d, want at least 1", o.workers))
	}
	if o.resync <= 0 {
		errs = append(errs, fmt.Errorf("--resync is %s, want more than 0", o.resync))
	}
	if o.kubeAPIQPS <= 0 || o.kubeAPIBurst < 1 {
		errs = append(errs, fmt.Errorf("--kube-api-qps is %g and --kube-api-burst %d, want more than 0", o.kubeAPIQPS, o.kubeAPIBurst))
	}
	if o.logFormat != logFormatJSON && o.logFormat != logFormatText {
		errs = append(errs, fmt.Errorf("--log-format is %q, want %s or %s", o.logFormat, logFormatJSON, logFormatText))
	}
	return errors.Join(errs...)
}

func (o *options) managerOptions(scheme *runtime.Scheme) ctrl.Options {
	return ctrl.Options{
		Scheme:                        scheme,
		Cache:                         o.cacheOptions(),
		Metrics:                       o.metricsOptions(),
		HealthProbeBindAddress:        o.probeAddress,
		LeaderElection:                o.leaderElect,
		LeaderElectionID:              leaderElectionID,
		LeaderElectionNamespace:       o.leaderElectionNamespace,
		LeaderElectionReleaseOnCancel: true, // the process ends right after
	}
}

// cacheOptions keep what is not Belay's out of memory: of pods, accounts, roles and bindings only those with its label.
func (o *options) cacheOptions() cache.Options {
	ours := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{"app.kubernetes.io/managed-by": "belay"})}
	options := cache.Options{
		SyncPeriod:       ptr.To(o.resync),
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: ours, &corev1.ServiceAccount{}: ours, &rbacv1.Role{}: ours, &rbacv1.RoleBinding{}: ours,
		},
	}
	if len(o.namespaces) > 0 {
		options.DefaultNamespaces = make(map[string]cache.Config, len(o.namespaces))
		for _, namespace := range o.namespaces {
			options.DefaultNamespaces[namespace] = cache.Config{}
		}
	}
	return options
}

func (o *options) metricsOptions() metricsserver.Options {
	options := metricsserver.Options{BindAddress: o.metricsAddress}
	if !o.metricsInsecure && o.metricsAddress != "0" {
		options.SecureServing = true
		options.FilterProvider = filters.WithAuthenticationAndAuthorization
		options.TLSOpts = []func(*tls.Config){func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }} // no HTTP/2: rapid resets
	}
	return options
}
