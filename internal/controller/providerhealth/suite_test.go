package providerhealth_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	controllerconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"belay.dev/belay/api/v1alpha1"
	"belay.dev/belay/internal/controller/providerhealth"
	"belay.dev/belay/internal/controller/routeladder"
)

// The suite runs both controllers that share health on a real API server: each depends on what the other writes. Time is
// the suite's own.
var (
	apiServer *envtest.Environment
	config    *rest.Config
	api       client.Client
	scheme    *runtime.Scheme
	testClock *clocktesting.FakePassiveClock

	stopManager context.CancelFunc
	managerDone chan error
)

func TestSharedHealth(t *testing.T) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Fatal("KUBEBUILDER_ASSETS is not set: this suite needs etcd and kube-apiserver. Run `make test`, which finds or builds them")
	}
	RegisterFailHandler(Fail)
	RunSpecs(t, "shared health")
}

var _ = BeforeSuite(func() {
	SetDefaultEventuallyTimeout(20 * time.Second)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	scheme = runtime.NewScheme()
	Expect(corev1.AddToScheme(scheme)).To(Succeed())
	Expect(eventsv1.AddToScheme(scheme)).To(Succeed())
	Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
	testClock = clocktesting.NewFakePassiveClock(time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC))
	apiServer = &envtest.Environment{
		CRDDirectoryPaths:     []string{filepath.Join("..", "..", "..", "config", "crd", "bases")},
		ErrorIfCRDPathMissing: true,
	}
	var err error
	config, err = apiServer.Start()
	Expect(err).NotTo(HaveOccurred())
	api, err = client.New(config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	startManager()
})

var _ = AfterSuite(func() {
	if stopManager != nil {
		stopManager()
		Eventually(managerDone).Should(Receive(BeNil()))
	}
	Expect(apiServer.Stop()).To(Succeed())
})

// startManager runs a manager as if it had just been started: what the last one knew is gone.
func startManager() {
	GinkgoHelper()
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  scheme,
		Logger:  GinkgoLogr,
		Metrics: metricsserver.Options{BindAddress: "0"},
		// Several managers live in this process, one after the other.
		Controller: controllerconfig.Controller{SkipNameValidation: ptr.To(true)},
	})
	Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(context.Background())
	Expect(routeladder.SetupWithManager(ctx, mgr, testClock)).To(Succeed())
	Expect(providerhealth.SetupWithManager(ctx, mgr, testClock)).To(Succeed())
	stopManager, managerDone = cancel, make(chan error, 1)
	go func() { managerDone <- mgr.Start(ctx) }()
}

// restartManager replaces the manager by a new one.
func restartManager() {
	GinkgoHelper()
	stopManager()
	Eventually(managerDone).Should(Receive(BeNil()))
	startManager()
}
