package agentrun_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	controllerconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"belay.dev/belay/api/v1alpha1"
	"belay.dev/belay/internal/controller/agentrun"
)

// The suite runs the controller on a real API server, with no more rights than its role gives. There is no kubelet, so the
// specs move the pods; time is the suite's own.
var (
	apiServer *envtest.Environment
	config    *rest.Config
	api       client.Client
	scheme    *runtime.Scheme
	testClock *clocktesting.FakePassiveClock

	stopManager context.CancelFunc
	managerDone chan error
)

const managerUser = "system:serviceaccount:belay-system:belay-manager"

func TestAgentRunController(t *testing.T) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Fatal("KUBEBUILDER_ASSETS is not set: this suite needs etcd and kube-apiserver. Run `make test`, which finds or builds them")
	}
	RegisterFailHandler(Fail)
	RunSpecs(t, "agentrun controller")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	SetDefaultConsistentlyDuration(500 * time.Millisecond)
	scheme = runtime.NewScheme()
	Expect(corev1.AddToScheme(scheme)).To(Succeed())
	Expect(rbacv1.AddToScheme(scheme)).To(Succeed())
	Expect(eventsv1.AddToScheme(scheme)).To(Succeed())
	Expect(authenticationv1.AddToScheme(scheme)).To(Succeed())
	Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
	testClock = clocktesting.NewFakePassiveClock(time.Now())
	apiServer = &envtest.Environment{
		CRDDirectoryPaths:     []string{filepath.Join("..", "..", "..", "config", "crd", "bases")},
		ErrorIfCRDPathMissing: true,
	}
	var err error
	config, err = apiServer.Start()
	Expect(err).NotTo(HaveOccurred())
	api, err = client.New(config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	install(ctx)
	startManager()
})

var _ = AfterSuite(func() {
	if stopManager != nil {
		stopManager()
		Eventually(managerDone).Should(Receive(BeNil()))
	}
	Expect(apiServer.Stop()).To(Succeed())
})

// install applies config/default: the manager of the suite has the rights that an installation gives it, and the pods'
// tokens meet the admission policy.
func install(ctx context.Context) {
	GinkgoHelper()
	kubectl := exec.CommandContext(ctx, filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"), "kustomize", filepath.Join("..", "..", "..", "config", "default"))
	kubectl.Stderr = GinkgoWriter
	rendered, err := kubectl.Output()
	Expect(err).NotTo(HaveOccurred())
	for document := range bytes.SplitSeq(rendered, []byte("\n---\n")) {
		obj := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal(document, &obj.Object)).To(Succeed())
		Expect(api.Apply(ctx, client.ApplyConfigurationFromUnstructured(obj), client.FieldOwner("installer"), client.ForceOwnership)).
			To(Succeed(), "%s %s", obj.GetKind(), obj.GetName())
	}
}

// startManager runs a manager as if it had just been started: what the last one knew is gone.
func startManager() {
	GinkgoHelper()
	asManager := rest.CopyConfig(config)
	asManager.Impersonate = rest.ImpersonationConfig{UserName: managerUser}
	mgr, err := ctrl.NewManager(asManager, ctrl.Options{
		Scheme:  scheme,
		Logger:  GinkgoLogr,
		Metrics: metricsserver.Options{BindAddress: "0"},
		// Several managers live in this process, one after the other.
		Controller: controllerconfig.Controller{SkipNameValidation: ptr.To(true)},
	})
	Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(context.Background())
	Expect(agentrun.SetupWithManager(ctx, mgr, testClock, agentrun.Options{Image: "belay:test"})).To(Succeed())
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
