package agentrun_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"belay.dev/belay/api/v1alpha1"
	applyv1alpha1 "belay.dev/belay/api/v1alpha1/applyconfiguration/api/v1alpha1"
)

// runnerOf is a client with the token that the kubelet would give to a pod.
func runnerOf(ctx SpecContext, pod *corev1.Pod) client.Client {
	GinkgoHelper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
	}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: "belay-runner"}}
	Expect(api.SubResource("token").Create(ctx, account, request)).To(Succeed())
	asRunner := rest.AnonymousClientConfig(config)
	asRunner.BearerToken = request.Status.Token
	c, err := client.New(asRunner, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	return c
}

var _ = Describe("A runner's token", func() {
	var f *fixture
	BeforeEach(func(ctx SpecContext) {
		f = newFixture(ctx)
		f.createLadder(ctx)
		f.createRun(ctx)
	})

	apply := func(ctx SpecContext, c client.Client, name string, status *applyv1alpha1.AgentRunStatusApplyConfiguration) error {
		return c.Status().Apply(ctx, applyv1alpha1.AgentRun(name, f.namespace).WithStatus(status), client.FieldOwner(v1alpha1.FieldManagerRunner), client.ForceOwnership)
	}
	turn := func(epoch int64, turn int32) *applyv1alpha1.AgentRunStatusApplyConfiguration {
		return applyv1alpha1.AgentRunStatus().WithRunner(applyv1alpha1.RunnerStatus().WithEpoch(epoch).WithTurn(turn))
	}

	It("reports on its own run, and changes nothing else", func(ctx SpecContext) {
		runner := runnerOf(ctx, f.started(ctx, 1, "node-a"))
		// The policy takes effect a moment after it was created.
		Eventually(func() error { return apply(ctx, runner, "report", turn(1, 1).WithOutcome(v1alpha1.OutcomeProduced)) }).
			Should(MatchError(ContainSubstring("a runner may change the key runner of the status only")))
		Expect(apply(ctx, runner, "report", turn(1, 1))).To(Succeed())
		Expect(apply(ctx, runner, "report", turn(1, 2))).To(Succeed())
		Expect(apply(ctx, runner, "report", turn(2, 2))).To(MatchError(ContainSubstring("current epoch")))

		run := f.run(ctx)
		run.Status.PodName = "report-2"
		run.Status.Epoch = 2
		Expect(runner.Status().Update(ctx, run)).To(MatchError(ContainSubstring("forbidden"))) // no verb update
		Expect(runner.Get(ctx, f.key, run)).To(Succeed())
		Expect(runner.List(ctx, &v1alpha1.RouteLadderList{}, client.InNamespace(f.namespace))).To(Succeed())
		Expect(runner.List(ctx, &v1alpha1.AgentRunList{}, client.InNamespace(f.namespace))).To(MatchError(ContainSubstring("forbidden")))
		Expect(runner.List(ctx, &corev1.SecretList{}, client.InNamespace(f.namespace))).To(MatchError(ContainSubstring("forbidden")))
	})

	It("says nothing about another run of the namespace", func(ctx SpecContext) {
		runner := runnerOf(ctx, f.started(ctx, 1, "node-a"))
		other := &v1alpha1.AgentRun{
			ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "other"},
			Spec:       v1alpha1.AgentRunSpec{LadderRef: v1alpha1.LadderReference{Name: "demo"}, Task: "Something else."},
		}
		Expect(api.Create(ctx, other)).To(Succeed())
		Eventually(func() string {
			Expect(api.Get(ctx, client.ObjectKeyFromObject(other), other)).To(Succeed())
			return other.Status.PodUID
		}).ShouldNot(BeEmpty())
		Expect(apply(ctx, runner, "other", turn(1, 9))).To(MatchError(ContainSubstring("only the run's current pod may report on it")))
	})

	It("says nothing any more once its run has gone on", func(ctx SpecContext) {
		runner := runnerOf(ctx, f.started(ctx, 1, "node-a"))
		Expect(apply(ctx, runner, "report", turn(1, 1))).To(Succeed())
		run := f.run(ctx)
		run.Status.Epoch, run.Status.PodName, run.Status.PodUID = 2, "report-2", ""
		Expect(api.Status().Update(ctx, run)).To(Succeed())
		// Its token ends with its pod; until then it is fenced by the policy.
		Expect(apply(ctx, runner, "report", turn(1, 5))).NotTo(Succeed())
	})
})
