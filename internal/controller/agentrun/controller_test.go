package agentrun_test

import (
	"fmt"
	"io"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"belay.dev/belay/api/v1alpha1"
	applyv1alpha1 "belay.dev/belay/api/v1alpha1/applyconfiguration/api/v1alpha1"
)

var namespaces int

// fixture is a namespace of its own with a ladder and a run.
type fixture struct {
	namespace string
	key       types.NamespacedName
}

func newFixture(ctx SpecContext) *fixture {
	GinkgoHelper()
	namespaces++
	f := &fixture{namespace: fmt.Sprintf("team-%d", namespaces)}
	f.key = types.NamespacedName{Namespace: f.namespace, Name: "report"}
	// The pods of runs must pass where the restricted standard is enforced.
	Expect(api.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: f.namespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}})).To(Succeed())
	return f
}

func (f *fixture) createLadder(ctx SpecContext) {
	GinkgoHelper()
	Expect(api.Create(ctx, &v1alpha1.RouteLadder{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "demo"},
		Spec: v1alpha1.RouteLadderSpec{
			Providers: []v1alpha1.Provider{{Name: "own", Dialect: v1alpha1.DialectOpenAIChat, BaseURL: "https://models.example.com/v1"}},
			Legs:      []v1alpha1.Leg{{Name: "a", Provider: "own", Model: "large-1", ContextWindow: 128000, Billing: v1alpha1.BillingIncluded}},
		},
	})).To(Succeed())
}

func (f *fixture) createRun(ctx SpecContext) {
	GinkgoHelper()
	Expect(api.Create(ctx, &v1alpha1.AgentRun{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: f.key.Name},
		Spec: v1alpha1.AgentRunSpec{
			LadderRef: v1alpha1.LadderReference{Name: "demo"}, Task: "Write the report.",
			StartupDeadlineSeconds: 86400, // the API server's clock dates the pods, and the suite's clock runs ahead of it
			Workspace:              &v1alpha1.Workspace{Image: "golang:1.26", Setup: []v1alpha1.SetupStep{{Name: "seed", Command: []string{"true"}}}},
		},
	})).To(Succeed())
}

func (f *fixture) run(ctx SpecContext) *v1alpha1.AgentRun {
	GinkgoHelper()
	run := &v1alpha1.AgentRun{}
	Expect(api.Get(ctx, f.key, run)).To(Succeed())
	return run
}

// condition is status and reason, as "True/Completed".
func (f *fixture) condition(ctx SpecContext, kind string) func() string {
	return func() string {
		c := meta.FindStatusCondition(f.run(ctx).Status.Conditions, kind)
		if c == nil {
			return ""
		}
		return string(c.Status) + "/" + c.Reason
	}
}

func (f *fixture) pod(ctx SpecContext, name string) *corev1.Pod {
	pod := &corev1.Pod{}
	if err := api.Get(ctx, types.NamespacedName{Namespace: f.namespace, Name: name}, pod); err != nil {
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
		return nil
	}
	return pod
}

// started waits until the run has written down the pod of an epoch, and binds it to a node.
func (f *fixture) started(ctx SpecContext, epoch int64, node string) *corev1.Pod {
	GinkgoHelper()
	name := fmt.Sprintf("%s-%d", f.key.Name, epoch)
	var pod *corev1.Pod
	Eventually(func(g Gomega) {
		pod = f.pod(ctx, name)
		g.Expect(pod).NotTo(BeNil())
		status := f.run(ctx).Status
		g.Expect(status.Epoch).To(Equal(epoch))
		g.Expect(status.PodName).To(Equal(name))
		g.Expect(status.PodUID).To(Equal(string(pod.UID)))
	}).Should(Succeed())
	Expect(api.SubResource("binding").Create(ctx, pod, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: node},
	})).To(Succeed())
	f.setPod(ctx, name, corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
	return pod
}

func (f *fixture) setPod(ctx SpecContext, name string, phase corev1.PodPhase, state corev1.ContainerState) {
	GinkgoHelper()
	pod := f.pod(ctx, name)
	Expect(pod).NotTo(BeNil())
	pod.Status.Phase = phase
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "runner", Ready: state.Running != nil, State: state}}
	Expect(api.Status().Update(ctx, pod)).To(Succeed())
}

func (f *fixture) exits(ctx SpecContext, name string, code int32) {
	GinkgoHelper()
	phase := corev1.PodSucceeded
	if code != 0 {
		phase = corev1.PodFailed
	}
	f.setPod(ctx, name, phase, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}})
}

// report applies status.runner as a runner does.
func (f *fixture) report(ctx SpecContext, runner *applyv1alpha1.RunnerStatusApplyConfiguration) {
	GinkgoHelper()
	apply := applyv1alpha1.AgentRun(f.key.Name, f.namespace).WithStatus(applyv1alpha1.AgentRunStatus().WithRunner(runner))
	Expect(api.Status().Apply(ctx, apply, client.FieldOwner(v1alpha1.FieldManagerRunner), client.ForceOwnership)).To(Succeed())
}

// touch makes the controller look again, as its own timer would later.
func (f *fixture) touch(ctx SpecContext) {
	GinkgoHelper()
	run := f.run(ctx)
	patch := client.MergeFrom(run.DeepCopy())
	metav1.SetMetaDataAnnotation(&run.ObjectMeta, "touched", fmt.Sprint(time.Now().UnixNano()))
	Expect(api.Patch(ctx, run, patch)).To(Succeed())
}

func later(d time.Duration) { testClock.SetTime(testClock.Now().Add(d)) }

var _ = Describe("A run", func() {
	var f *fixture
	BeforeEach(func(ctx SpecContext) {
		testClock.SetTime(time.Now())
		f = newFixture(ctx)
	})

	It("gets its pod and what the pod needs, and succeeds by its runner's report", func(ctx SpecContext) {
		f.createLadder(ctx)
		f.createRun(ctx)
		pod := f.started(ctx, 1, "node-a")
		run := f.run(ctx)
		Expect(metav1.IsControlledBy(pod, run)).To(BeTrue())
		Expect(pod.Finalizers).To(ConsistOf(v1alpha1.FinalizerEndRecorded))

		claim := &corev1.PersistentVolumeClaim{}
		Expect(api.Get(ctx, types.NamespacedName{Namespace: f.namespace, Name: "belay-" + string(run.UID)}, claim)).To(Succeed())
		Expect(claim.OwnerReferences).To(BeEmpty())
		account := types.NamespacedName{Namespace: f.namespace, Name: "belay-runner"}
		Expect(api.Get(ctx, account, &corev1.ServiceAccount{})).To(Succeed())
		Expect(api.Get(ctx, account, &rbacv1.Role{})).To(Succeed())
		Expect(api.Get(ctx, account, &rbacv1.RoleBinding{})).To(Succeed())

		f.report(ctx, applyv1alpha1.RunnerStatus().WithEpoch(1).WithTurn(2).WithLeg("a").
			WithLedger(applyv1alpha1.LedgerHead().WithSeq(7).WithHash("0123456789abcdef")))
		Eventually(f.condition(ctx, v1alpha1.ConditionPodReady)).Should(Equal("True/PodReady"))
		Eventually(f.condition(ctx, v1alpha1.ConditionLedgerHealthy)).Should(Equal("True/Healthy"))
		Expect(ptr.Deref(f.run(ctx).Status.Runner.Turn, 0)).To(BeEquivalentTo(2), "the controller's writes must leave the runner's block alone")

		f.report(ctx, applyv1alpha1.RunnerStatus().WithEpoch(1).WithTurn(3).
			WithFinal(applyv1alpha1.Final().WithOutcome(v1alpha1.FinalProduced).WithReason("Completed").WithText("The report.")))
		f.exits(ctx, "report-1", 0)
		Eventually(f.condition(ctx, v1alpha1.ConditionSucceeded)).Should(Equal("True/Completed"))
		Eventually(f.condition(ctx, v1alpha1.ConditionFinished)).Should(Equal("True/Finished"))
		Expect(f.run(ctx).Status.Result.Text).To(Equal("The report."))
		Eventually(func() []string { return f.pod(ctx, "report-1").Finalizers }).Should(BeEmpty())

		Eventually(func(g Gomega) {
			var list eventsv1.EventList
			g.Expect(api.List(ctx, &list, client.InNamespace(f.namespace))).To(Succeed())
			reasons := []string{}
			for _, event := range list.Items {
				reasons = append(reasons, event.Reason)
			}
			g.Expect(reasons).To(ConsistOf("PodCreated", "Completed"))
		}).Should(Succeed())
	})

	It("waits for its ladder and starts when it appears", func(ctx SpecContext) {
		f.createRun(ctx)
		Eventually(f.condition(ctx, v1alpha1.ConditionAdmitted)).Should(Equal("False/LadderNotFound"))
		Consistently(func() *corev1.Pod { return f.pod(ctx, "report-1") }).Should(BeNil())
		f.createLadder(ctx)
		f.started(ctx, 1, "node-a")
	})

	It("gets a new pod after a crash, also from a new manager", func(ctx SpecContext) {
		f.createLadder(ctx)
		f.createRun(ctx)
		f.started(ctx, 1, "node-a")
		f.report(ctx, applyv1alpha1.RunnerStatus().WithEpoch(1).WithTurn(2))
		f.exits(ctx, "report-1", 137)
		Eventually(func() int { return len(f.run(ctx).Status.Epochs) }).Should(Equal(1))
		restartManager()
		later(2 * time.Second)
		f.touch(ctx)
		f.started(ctx, 2, "node-a")
		status := f.run(ctx).Status
		Expect(ptr.Deref(status.Restarts, 0)).To(BeEquivalentTo(1))
		Expect(ptr.Deref(status.Resumes, 0)).To(BeEquivalentTo(1))
		Eventually(func() *corev1.Pod { return f.pod(ctx, "report-1") }).Should(BeNil())
	})

	It("gets no second pod while the node of a deleted pod is silent", func(ctx SpecContext) {
		f.createLadder(ctx)
		f.createRun(ctx)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "silent-" + f.namespace}}
		Expect(api.Create(ctx, node)).To(Succeed())
		pod := f.started(ctx, 1, node.Name)
		Expect(api.Delete(ctx, pod)).To(Succeed())
		Eventually(f.condition(ctx, v1alpha1.ConditionPodReady)).Should(Equal("False/NodeUnreachable"))
		later(time.Hour)
		f.touch(ctx)
		Consistently(func() *corev1.Pod { return f.pod(ctx, "report-2") }).Should(BeNil())

		Expect(api.Get(ctx, client.ObjectKeyFromObject(node), node)).To(Succeed())
		node.Spec.Taints = []corev1.Taint{{Key: "node.kubernetes.io/out-of-service", Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}}
		Expect(api.Update(ctx, node)).To(Succeed())
		f.touch(ctx)
		Eventually(func() int { return len(f.run(ctx).Status.Epochs) }).Should(Equal(1))
		later(2 * time.Second)
		f.touch(ctx)
		f.started(ctx, 2, node.Name)
		Expect(ptr.Deref(f.run(ctx).Status.Disruptions, 0)).To(BeEquivalentTo(1))
	})

	It("parks without a pod and wakes in time", func(ctx SpecContext) {
		f.createLadder(ctx)
		f.createRun(ctx)
		f.started(ctx, 1, "node-a")
		until := metav1.NewMicroTime(testClock.Now().Add(time.Hour))
		f.report(ctx, applyv1alpha1.RunnerStatus().WithEpoch(1).
			WithWake(applyv1alpha1.Wake().WithReason(v1alpha1.ReasonAllRoutesTripped).WithUntil(until)).
			WithFinal(applyv1alpha1.Final().WithOutcome(v1alpha1.FinalParked).WithReason(v1alpha1.ReasonAllRoutesTripped)))
		f.exits(ctx, "report-1", 0)
		Eventually(f.condition(ctx, v1alpha1.ConditionParked)).Should(Equal("True/AllRoutesTripped"))
		later(time.Hour)
		f.touch(ctx)
		f.started(ctx, 2, "node-a")
		Eventually(f.condition(ctx, v1alpha1.ConditionParked)).Should(Equal("False/NotParked"))
	})

	It("is never turned back by a stale writer", func(ctx SpecContext) {
		f.createLadder(ctx)
		f.createRun(ctx)
		f.started(ctx, 1, "node-a")
		stale := applyv1alpha1.AgentRun(f.key.Name, f.namespace).WithStatus(applyv1alpha1.AgentRunStatus().WithEpoch(1).WithPodName("report-other"))
		err := api.Status().Apply(ctx, stale, client.FieldOwner(v1alpha1.FieldManagerAgentRun), client.ForceOwnership)
		Expect(err).To(MatchError(ContainSubstring("podName changes only with a new epoch")))
		outdated := applyv1alpha1.AgentRun(f.key.Name, f.namespace).WithResourceVersion("1").WithStatus(applyv1alpha1.AgentRunStatus().WithEpoch(1).WithPodName("report-1"))
		err = api.Status().Apply(ctx, outdated, client.FieldOwner(v1alpha1.FieldManagerAgentRun), client.ForceOwnership)
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
	})

	It("shows people where it stands", func(ctx SpecContext) {
		f.createLadder(ctx)
		f.createRun(ctx)
		f.started(ctx, 1, "node-a")
		f.report(ctx, applyv1alpha1.RunnerStatus().WithEpoch(1).WithTurn(4).WithLeg("b").WithFailoverFrom("a").WithLegDisplay("b (from a)").
			WithUsage(applyv1alpha1.Usage().WithTotalTokens(1234).WithCostMicroUSD(12500).WithCost("0.0125")))
		user, err := apiServer.AddUser(envtest.User{Name: "someone", Groups: []string{"system:masters"}}, nil)
		Expect(err).NotTo(HaveOccurred())
		kubectl, err := user.Kubectl()
		Expect(err).NotTo(HaveOccurred())
		stdout, _, err := kubectl.Run("get", "arun", "-n", f.namespace, "-o", "wide")
		Expect(err).NotTo(HaveOccurred())
		raw, err := io.ReadAll(stdout)
		Expect(err).NotTo(HaveOccurred())
		lines := strings.Split(string(raw), "\n")
		Expect(strings.Fields(lines[0])).To(Equal(strings.Fields("NAME SUCCEEDED REASON LEG TURN RESUMES COST AGE POD TOKENS LADDER EPOCH")))
		Expect(lines[1]).To(MatchRegexp(`^report +Unknown +Running +b \(from a\) +4 +0 +0\.0125 +\S+ +report-1 +1234 +demo +1$`))
	})

	It("lets its pod go when it is deleted", func(ctx SpecContext) {
		f.createLadder(ctx)
		f.createRun(ctx)
		pod := f.started(ctx, 1, "node-a")
		Expect(api.Delete(ctx, f.run(ctx))).To(Succeed())
		Expect(api.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed()) // the garbage collector's and the kubelet's doing
		Eventually(func() *corev1.Pod { return f.pod(ctx, "report-1") }).Should(BeNil())
	})
})
