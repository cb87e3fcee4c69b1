package providerhealth_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"belay.dev/belay/api/v1alpha1"
	applyv1alpha1 "belay.dev/belay/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"belay.dev/belay/internal/contract"
)

var _ = Describe("the health that runs share", func() {
	var (
		ctx    context.Context
		ns     string
		ladder *v1alpha1.RouteLadder
		routeA string
		routeB string
	)

	BeforeEach(func() {
		ctx = context.Background()
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "health-"}}
		Expect(api.Create(ctx, namespace)).To(Succeed())
		ns = namespace.Name
		ladder = newLadder(ns)
		Expect(api.Create(ctx, ladder)).To(Succeed())
		routeA = string(contract.RouteOf(ladder, ladder.Spec.Legs[0]).Name())
		routeB = string(contract.RouteOf(ladder, ladder.Spec.Legs[1]).Name())
		Eventually(stateOf(ns, routeA)).Should(Equal(v1alpha1.HealthClosed))
		Eventually(stateOf(ns, routeB)).Should(Equal(v1alpha1.HealthClosed))
	})

	It("accepts a ladder, names its routes, and then writes no more", func() {
		Eventually(func(g Gomega) {
			l := get(g, ns, "l", &v1alpha1.RouteLadder{})
			g.Expect(meta.IsStatusConditionTrue(l.Status.Conditions, v1alpha1.ConditionAccepted)).To(BeTrue())
			g.Expect(l.Status.ObservedGeneration).To(Equal(l.Generation))
			g.Expect(l.Status.Available).To(Equal("2/2"))
			g.Expect(l.Status.Active).To(Equal("a"))
			g.Expect(l.Status.Legs).To(HaveLen(2))
			g.Expect(l.Status.Legs[0].Route).To(Equal(routeA))
		}).Should(Succeed())
		health := get(Default, ns, routeA, &v1alpha1.ProviderHealth{})
		Expect(health.Spec.Route.Host).To(Equal("a.example"))
		Expect(health.OwnerReferences).To(BeEmpty())
		Expect(managersOfStatus(health)).To(ConsistOf("belay-providerhealth"))
		Expect(managersOfStatus(get(Default, ns, "l", &v1alpha1.RouteLadder{}))).To(ConsistOf("belay-routeladder"))

		// A nudge makes a pass of each controller that finds nothing to write.
		nudge(ns, routeA)
		version := get(Default, ns, routeA, &v1alpha1.ProviderHealth{}).ResourceVersion
		Consistently(func() string { return get(Default, ns, routeA, &v1alpha1.ProviderHealth{}).ResourceVersion }, "300ms").Should(Equal(version))
	})

	It("stamps an edit, and names the leg that it takes out", func() {
		Eventually(func() error {
			l := get(Default, ns, "l", &v1alpha1.RouteLadder{})
			l.Spec.Legs[0].State = v1alpha1.LegStateDrained
			return api.Update(ctx, l)
		}).Should(Succeed())
		Eventually(func(g Gomega) {
			l := get(g, ns, "l", &v1alpha1.RouteLadder{})
			g.Expect(l.Status.ObservedGeneration).To(Equal(int64(2)))
			for _, c := range l.Status.Conditions {
				g.Expect(c.ObservedGeneration).To(Equal(int64(2)), c.Type)
			}
			accepted := meta.FindStatusCondition(l.Status.Conditions, v1alpha1.ConditionAccepted)
			g.Expect(accepted.Reason).To(Equal(v1alpha1.ReasonLegsLeftOut))
			g.Expect(accepted.Message).To(ContainSubstring(`leg "a" is left out (Drained)`))
			g.Expect(l.Status.Active).To(Equal("b"))
			g.Expect(l.Status.Available).To(Equal("1/2"))
		}).Should(Succeed())
	})

	It("opens a route for all, gives one run the probe, and closes the route on its word, over restarts of the manager", func() {
		run := newRun(ns, "one")
		report(run, v1alpha1.RouteLevel{Route: routeA, Generation: ptr.To[int64](0), ConsecutiveBlind: ptr.To[int32](2), LastKind: "ServerError", LastFailureTime: micro(testClock.Now())})
		Eventually(func() int32 {
			return ptr.Deref(get(Default, ns, routeA, &v1alpha1.ProviderHealth{}).Status.Failures, 0)
		}).Should(Equal(int32(2)))
		Expect(stateOf(ns, routeA)()).To(Equal(v1alpha1.HealthClosed))

		By("opening at the third failure")
		report(run, v1alpha1.RouteLevel{Route: routeA, Generation: ptr.To[int64](0), ConsecutiveBlind: ptr.To[int32](3), LastKind: "ServerError", LastHTTPStatus: 503, LastFailureTime: micro(testClock.Now())})
		Eventually(stateOf(ns, routeA)).Should(Equal(v1alpha1.HealthOpen))
		health := get(Default, ns, routeA, &v1alpha1.ProviderHealth{})
		Expect(health.Status.OpenUntil.Time).To(BeTemporally("~", testClock.Now().Add(30*time.Second), time.Millisecond))
		Expect(*health.Status.Generation).To(Equal(int64(1)))
		Expect(*health.Status.Runs).To(Equal(int32(1)))
		Eventually(eventsOf(ns, routeA)).Should(ContainElement("BreakerOpened"))
		Eventually(func(g Gomega) {
			l := get(g, ns, "l", &v1alpha1.RouteLadder{})
			g.Expect(l.Status.Available).To(Equal("1/2"))
			g.Expect(l.Status.Active).To(Equal("b"))
			g.Expect(meta.IsStatusConditionTrue(l.Status.Conditions, v1alpha1.ConditionReady)).To(BeTrue())
		}).Should(Succeed())

		By("staying open through a restart")
		restartManager()
		nudge(ns, routeA)
		Consistently(stateOf(ns, routeA), "300ms").Should(Equal(v1alpha1.HealthOpen))

		By("giving the probe to the run when the cooldown is over")
		testClock.SetTime(testClock.Now().Add(30 * time.Second))
		nudge(ns, routeA)
		Eventually(stateOf(ns, routeA)).Should(Equal(v1alpha1.HealthHalfOpen))
		health = get(Default, ns, routeA, &v1alpha1.ProviderHealth{})
		Expect(health.Status.Probe).NotTo(BeNil())
		Expect(health.Status.Probe.RunUID).To(Equal(string(run.UID)))
		Expect(health.Status.Probe.Epoch).To(Equal(int64(1)))

		By("ignoring a success without the token")
		report(run, v1alpha1.RouteLevel{Route: routeA, Generation: health.Status.Generation, LastSuccessTime: micro(testClock.Now())})
		Consistently(stateOf(ns, routeA), "300ms").Should(Equal(v1alpha1.HealthHalfOpen))

		By("closing on the probe's success")
		report(run, v1alpha1.RouteLevel{Route: routeA, Generation: health.Status.Generation, ProbeToken: health.Status.Probe.Token,
			ProbeResult: v1alpha1.ProbeSucceeded, LastSuccessTime: micro(testClock.Now())})
		Eventually(stateOf(ns, routeA)).Should(Equal(v1alpha1.HealthClosed))
		health = get(Default, ns, routeA, &v1alpha1.ProviderHealth{})
		Expect(*health.Status.Trips).To(BeZero())
		Expect(health.Status.Probe).To(BeNil())
		Expect(health.Status.OpenUntil).To(BeNil())
		Eventually(eventsOf(ns, routeA)).Should(ContainElements("BreakerOpened", "BreakerHalfOpened", "BreakerClosed"))
		Eventually(func() string { return get(Default, ns, "l", &v1alpha1.RouteLadder{}).Status.Available }).Should(Equal("2/2"))
	})

	It("obeys an operator's override, and leaves it to its owner", func() {
		force := applyv1alpha1.ProviderHealth(routeB, ns).WithSpec(applyv1alpha1.ProviderHealthSpec().
			WithRoute(identityOf(ns, routeB)).
			WithOverride(applyv1alpha1.HealthOverride().WithState(v1alpha1.OverrideForcedOpen).WithReason("maintenance")))
		Expect(api.Apply(ctx, force, client.FieldOwner("operator"), client.ForceOwnership)).To(Succeed())
		Eventually(stateOf(ns, routeB)).Should(Equal(v1alpha1.HealthOpen))
		health := get(Default, ns, routeB, &v1alpha1.ProviderHealth{})
		available := meta.FindStatusCondition(health.Status.Conditions, v1alpha1.ConditionAvailable)
		Expect(available.Reason).To(Equal(v1alpha1.ReasonForcedOpen))
		Expect(available.Message).To(ContainSubstring("maintenance"))
		Expect(health.Status.ObservedGeneration).To(Equal(health.Generation))

		health.Spec.Override = nil
		Expect(api.Update(ctx, health)).To(Succeed())
		Eventually(stateOf(ns, routeB)).Should(Equal(v1alpha1.HealthHalfOpen))
	})

	It("shows a rejected credential on the ladder until it is accepted again", func() {
		run := newRun(ns, "one")
		level := v1alpha1.RouteLevel{Route: routeA, Generation: ptr.To[int64](0), LastKind: "AuthError", LastHTTPStatus: 401, LastFailureTime: micro(testClock.Now())}
		report(run, level)
		verified := func(g Gomega) *metav1.Condition {
			c := meta.FindStatusCondition(get(g, ns, "l", &v1alpha1.RouteLadder{}).Status.Conditions, v1alpha1.ConditionLegsVerified)
			g.Expect(c).NotTo(BeNil())
			return c
		}
		Eventually(func(g Gomega) {
			g.Expect(verified(g).Reason).To(Equal(v1alpha1.ReasonCredentialInvalid))
			g.Expect(verified(g).Message).To(ContainSubstring(`key "a" of Secret "keys"`))
		}).Should(Succeed())
		Eventually(eventsOf(ns, "l")).Should(ContainElement("CredentialInvalid"))
		Expect(stateOf(ns, routeA)()).To(Equal(v1alpha1.HealthClosed))
		level.LastSuccessTime = micro(testClock.Now().Add(time.Second))
		report(run, level)
		Eventually(func(g Gomega) { g.Expect(verified(g).Status).To(Equal(metav1.ConditionTrue)) }).Should(Succeed())
	})

	It("deletes the health of a route a day after its last ladder, unless it is overridden", func() {
		Expect(api.Delete(ctx, ladder)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(get(g, ns, routeA, &v1alpha1.ProviderHealth{}).Status.UnreferencedTime).NotTo(BeNil())
			g.Expect(get(g, ns, routeB, &v1alpha1.ProviderHealth{}).Status.UnreferencedTime).NotTo(BeNil())
		}).Should(Succeed())
		kept := get(Default, ns, routeB, &v1alpha1.ProviderHealth{})
		kept.Spec.Override = &v1alpha1.HealthOverride{State: v1alpha1.OverrideForcedOpen}
		Expect(api.Update(ctx, kept)).To(Succeed())
		Eventually(stateOf(ns, routeB)).Should(Equal(v1alpha1.HealthOpen))

		testClock.SetTime(testClock.Now().Add(24*time.Hour + time.Second))
		nudge(ns, routeA)
		nudge(ns, routeB)
		Eventually(func() bool {
			return apierrors.IsNotFound(api.Get(ctx, types.NamespacedName{Namespace: ns, Name: routeA}, &v1alpha1.ProviderHealth{}))
		}).Should(BeTrue())
		Consistently(stateOf(ns, routeB), "300ms").Should(Equal(v1alpha1.HealthOpen))
	})

	It("makes an object again that somebody deleted", func() {
		Expect(api.Delete(ctx, get(Default, ns, routeA, &v1alpha1.ProviderHealth{}))).To(Succeed())
		Eventually(stateOf(ns, routeA)).Should(Equal(v1alpha1.HealthClosed))
	})
})

func newLadder(ns string) *v1alpha1.RouteLadder {
	l := &v1alpha1.RouteLadder{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "l"}}
	for _, leg := range []string{"a", "b"} {
		l.Spec.Providers = append(l.Spec.Providers, v1alpha1.Provider{
			Name: leg, Dialect: v1alpha1.DialectOpenAIChat, BaseURL: fmt.Sprintf("https://%s.example/v1", leg),
			Credential: &v1alpha1.Credential{SecretRef: v1alpha1.SecretKeyReference{Name: "keys", Key: leg}},
		})
		l.Spec.Legs = append(l.Spec.Legs, v1alpha1.Leg{Name: leg, Provider: leg, Model: "m", ContextWindow: 128_000, Billing: v1alpha1.BillingIncluded})
	}
	return l
}

// newRun makes a run whose pod works.
func newRun(ns, name string) *v1alpha1.AgentRun {
	GinkgoHelper()
	run := &v1alpha1.AgentRun{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	run.Spec.LadderRef.Name, run.Spec.Task = "l", "do nothing"
	Expect(api.Create(context.Background(), run)).To(Succeed())
	run.Status.Epoch, run.Status.PodName, run.Status.PodUID = 1, name+"-1", "pod-uid"
	meta.SetStatusCondition(&run.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionPodReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonPodReady, Message: "played by the test"})
	Expect(api.Status().Update(context.Background(), run)).To(Succeed())
	return run
}

// report applies the runner's block, as the pod of the first epoch does.
func report(run *v1alpha1.AgentRun, levels ...v1alpha1.RouteLevel) {
	GinkgoHelper()
	runner := applyv1alpha1.RunnerStatus().WithEpoch(1)
	for _, l := range levels {
		level := applyv1alpha1.RouteLevel().WithRoute(l.Route).WithGeneration(ptr.Deref(l.Generation, 0)).WithConsecutiveBlind(ptr.Deref(l.ConsecutiveBlind, 0))
		level.LastFailureTime, level.LastSuccessTime, level.CoolUntil = l.LastFailureTime, l.LastSuccessTime, l.CoolUntil
		if l.LastKind != "" {
			level.WithLastKind(l.LastKind)
		}
		if l.LastHTTPStatus != 0 {
			level.WithLastHTTPStatus(l.LastHTTPStatus)
		}
		if l.ProbeToken != "" {
			level.WithProbeToken(l.ProbeToken)
		}
		if l.ProbeResult != "" {
			level.WithProbeResult(l.ProbeResult)
		}
		runner.WithRoutes(level)
	}
	apply := applyv1alpha1.AgentRun(run.Name, run.Namespace).WithStatus(applyv1alpha1.AgentRunStatus().WithRunner(runner))
	Expect(api.Status().Apply(context.Background(), apply, client.FieldOwner(v1alpha1.FieldManagerRunner), client.ForceOwnership)).To(Succeed())
}

func identityOf(ns, name string) *applyv1alpha1.RouteIdentityApplyConfiguration {
	GinkgoHelper()
	r := get(Default, ns, name, &v1alpha1.ProviderHealth{}).Spec.Route
	return applyv1alpha1.RouteIdentity().WithHost(r.Host).WithBaseURL(r.BaseURL).WithDialect(r.Dialect).WithModel(r.Model).
		WithSecretRef(applyv1alpha1.SecretKeyReference().WithName(r.SecretRef.Name).WithKey(r.SecretRef.Key))
}

func get[T client.Object](g Gomega, ns, name string, obj T) T {
	GinkgoHelper()
	g.Expect(api.Get(context.Background(), types.NamespacedName{Namespace: ns, Name: name}, obj)).To(Succeed())
	return obj
}

func stateOf(ns, name string) func() v1alpha1.HealthState {
	return func() v1alpha1.HealthState {
		h := &v1alpha1.ProviderHealth{}
		if err := api.Get(context.Background(), types.NamespacedName{Namespace: ns, Name: name}, h); err != nil {
			return ""
		}
		return h.Status.State
	}
}

// nudge makes the controller look at a route now: its own timers run by the clock on the wall, not by the suite's.
func nudge(ns, name string) {
	GinkgoHelper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"test":"%d"}}}`, time.Now().UnixNano()))
	h := &v1alpha1.ProviderHealth{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	Expect(api.Patch(context.Background(), h, patch)).To(Succeed())
}

func eventsOf(ns, name string) func() []string {
	return func() []string {
		var list eventsv1.EventList
		if err := api.List(context.Background(), &list, client.InNamespace(ns)); err != nil {
			return nil
		}
		var reasons []string
		for _, e := range list.Items {
			if e.Regarding.Name == name {
				reasons = append(reasons, e.Reason)
			}
		}
		return reasons
	}
}

// managersOfStatus are the field managers that own anything of an object's status.
func managersOfStatus(obj client.Object) []string {
	var names []string
	for _, m := range obj.GetManagedFields() {
		if m.Subresource == "status" {
			names = append(names, m.Manager)
		}
	}
	return names
}

func micro(t time.Time) *metav1.MicroTime { return &metav1.MicroTime{Time: t} }
