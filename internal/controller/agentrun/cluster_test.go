package agentrun

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"belay.dev/belay/api/v1alpha1"
	"belay.dev/belay/api/v1alpha1/applyconfiguration"
)

var errKilled = errors.New("the manager was killed")

// start is when the tests begin.
var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// cluster is an API server in memory with a manager, a cache that lags behind, and a kubelet that the test plays.
type cluster struct {
	t      *testing.T
	scheme *runtime.Scheme
	api    client.WithWatch // the truth
	clock  *clocktesting.FakePassiveClock
	// writes is how many more writes the manager may do before it is killed; negative for no end.
	writes int
	// lost makes a write that happens look as if it did not: the answer is lost.
	lost bool
	// forbid is a kind that a quota forbids to create.
	forbid string
	// cachedRun and cachedPods are what the manager's cache shows.
	cachedRun  *v1alpha1.AgentRun
	cachedPods []corev1.Pod
	pastRuns   []*v1alpha1.AgentRun
	pastPods   [][]corev1.Pod
	uids       int
	// alive are the pods whose containers run, by UID, whatever the API says.
	alive map[types.UID]bool
	log   []string
}

func newCluster(t *testing.T, objects ...client.Object) *cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), rbacv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	builder := fake.NewClientBuilder().WithScheme(scheme).
		WithTypeConverters(applyconfiguration.NewTypeConverter(scheme), managedfields.NewDeducedTypeConverter()).
		WithStatusSubresource(&v1alpha1.AgentRun{}, &v1alpha1.RouteLadder{}, &v1alpha1.ProviderHealth{}, &corev1.Pod{}).
		WithObjects(objects...)
	for _, index := range indexes() {
		builder = builder.WithIndex(index.object, index.name, index.extract)
	}
	c := &cluster{
		t: t, scheme: scheme, api: builder.Build(), writes: -1, alive: map[types.UID]bool{},
		clock: clocktesting.NewFakePassiveClock(start),
	}
	c.refresh()
	return c
}

const (
	testNamespace = "team"
	testRun       = "report"
)

var runKey = types.NamespacedName{Namespace: testNamespace, Name: testRun}

func testObjects() []client.Object {
	return []client.Object{
		&v1alpha1.AgentRun{
			ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: testRun, UID: "run-uid", Generation: 1, CreationTimestamp: metav1.NewTime(start)},
			Spec: v1alpha1.AgentRunSpec{
				LadderRef: v1alpha1.LadderReference{Name: "demo"}, Task: "Write the report.",
				Routing: &v1alpha1.Routing{Metered: v1alpha1.MeteredAllow},
			},
		},
		testLadder(),
		&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "node-1"},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		},
	}
}

func testLadder() *v1alpha1.RouteLadder {
	return &v1alpha1.RouteLadder{
		ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: "demo", UID: "ladder-uid", Generation: 1},
		Spec: v1alpha1.RouteLadderSpec{
			Providers: []v1alpha1.Provider{
				{
					Name: "primary", Dialect: v1alpha1.DialectOpenAIChat, BaseURL: "https://primary.example.com/v1",
					Credential: &v1alpha1.Credential{SecretRef: v1alpha1.SecretKeyReference{Name: "keys", Key: "primary"}},
				},
				{
					Name: "backup", Dialect: v1alpha1.DialectAnthropicMessages, BaseURL: "https://backup.example.com",
					Credential: &v1alpha1.Credential{SecretRef: v1alpha1.SecretKeyReference{Name: "keys", Key: "backup"}},
				},
			},
			Legs: []v1alpha1.Leg{
				{Name: "a", Provider: "primary", Model: "large-1", ContextWindow: 128000},
				{Name: "b", Provider: "backup", Model: "small-1", ContextWindow: 200000},
			},
		},
	}
}

// refresh lets the manager's cache catch up.
func (c *cluster) refresh() {
	c.cachedRun, c.cachedPods = c.maybeRun(), c.pods()
	c.pastRuns, c.pastPods = append(c.pastRuns, c.cachedRun), append(c.pastPods, c.cachedPods)
}

// regress gives the manager what its cache showed some refreshes ago, runs and pods each for themselves: two informers lag
// independently, and that of a new manager may start behind that of the last.
func (c *cluster) regress(runs, pods int) {
	c.cachedRun = c.pastRuns[max(len(c.pastRuns)-1-runs, 0)]
	c.cachedPods = c.pastPods[max(len(c.pastPods)-1-pods, 0)]
}

func (c *cluster) note(format string, args ...any) {
	c.log = append(c.log, fmt.Sprintf(format, args...))
}

func (c *cluster) fatalf(format string, args ...any) {
	c.t.Helper()
	c.t.Fatalf("%s\nafter:\n%s", fmt.Sprintf(format, args...), strings.Join(c.log, "\n"))
}

func (c *cluster) maybeRun() *v1alpha1.AgentRun {
	run := &v1alpha1.AgentRun{}
	if err := c.api.Get(c.t.Context(), runKey, run); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		c.fatalf("reading the run: %v", err)
	}
	return run
}

func (c *cluster) run() *v1alpha1.AgentRun {
	run := c.maybeRun()
	if run == nil {
		c.fatalf("the run is lost")
	}
	return run
}

func (c *cluster) pods() []corev1.Pod {
	var pods corev1.PodList
	if err := c.api.List(c.t.Context(), &pods, client.InNamespace(testNamespace)); err != nil {
		c.fatalf("listing pods: %v", err)
	}
	return pods.Items
}

// pod returns the pod of a name, nil if there is none.
func (c *cluster) pod(name string) *corev1.Pod {
	pod := &corev1.Pod{}
	if err := c.api.Get(c.t.Context(), types.NamespacedName{Namespace: testNamespace, Name: name}, pod); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		c.fatalf("reading pod %s: %v", name, err)
	}
	return pod
}

// pass is one reconciliation by a manager that was just started: nothing is remembered from pass to pass.
func (c *cluster) pass() (ctrl.Result, error) {
	manager := &manager{Client: c.api, cluster: c}
	r, err := New(manager, c.api, c.clock, events.NewFakeRecorder(100), Options{Image: "belay:test"})
	if err != nil {
		c.fatalf("making the reconciler: %v", err)
	}
	return r.Reconcile(logr.NewContext(c.t.Context(), logr.Discard()), ctrl.Request{NamespacedName: runKey})
}

// settle reconciles with a fresh cache until nothing changes.
func (c *cluster) settle() ctrl.Result {
	c.t.Helper()
	for range 20 {
		c.refresh()
		before := c.fingerprint()
		result, err := c.pass()
		if err != nil {
			c.fatalf("reconciling: %v", err)
		}
		if c.fingerprint() == before {
			return result
		}
	}
	c.fatalf("the controller does not come to rest")
	return ctrl.Result{}
}

func (c *cluster) fingerprint() string {
	var b strings.Builder
	if run := c.maybeRun(); run != nil {
		b.WriteString(run.ResourceVersion)
	}
	for _, pod := range c.pods() {
		fmt.Fprintf(&b, " %s@%s", pod.Name, pod.ResourceVersion)
	}
	return b.String()
}

// bind gives a pod to a node, whose kubelet starts it.
func (c *cluster) bind(name string) {
	pod := c.pod(name)
	pod.Spec.NodeName = "node-1"
	c.must(c.api.Update(c.t.Context(), pod))
	c.alive[pod.UID] = true
	c.podStatus(name, func(s *corev1.PodStatus) {
		s.Phase = corev1.PodRunning
		s.ContainerStatuses = []corev1.ContainerStatus{{Name: containerRunner, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	})
}

// exit ends a pod's containers, and the kubelet says so.
func (c *cluster) exit(name string, code int32) {
	pod := c.pod(name)
	delete(c.alive, pod.UID)
	c.podStatus(name, func(s *corev1.PodStatus) {
		s.Phase = corev1.PodSucceeded
		if code != 0 {
			s.Phase = corev1.PodFailed
		}
		s.ContainerStatuses = []corev1.ContainerStatus{{Name: containerRunner, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}}}
	})
}

// evict asks for a pod's deletion, as a drain or a person would.
func (c *cluster) evict(name string) {
	if pod := c.pod(name); pod != nil {
		c.must(client.IgnoreNotFound(c.api.Delete(c.t.Context(), pod)))
	}
}

func (c *cluster) podStatus(name string, change func(*corev1.PodStatus)) {
	pod := c.pod(name)
	change(&pod.Status)
	c.must(c.api.Status().Update(c.t.Context(), pod))
}

// report is the runner's report; it reaches only the run that the pod is the current one of, as the admission policy has it.
func (c *cluster) report(change func(*v1alpha1.RunnerStatus)) {
	run := c.run()
	runner := ptr.Deref(run.Status.Runner, v1alpha1.RunnerStatus{})
	if runner.Epoch != run.Status.Epoch {
		runner.Final, runner.Wake = nil, nil
	}
	runner.Epoch = run.Status.Epoch
	change(&runner)
	run.Status.Runner = &runner
	c.must(c.api.Status().Update(c.t.Context(), run))
}

func (c *cluster) desire(state v1alpha1.DesiredState) {
	run := c.run()
	run.Spec.DesiredState = state
	run.Generation++
	c.must(c.api.Update(c.t.Context(), run))
}

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.fatalf("%v", err)
	}
}

// manager is the client of the manager: it reads runs and pods from the lagging cache, and can be killed before any write.
type manager struct {
	client.Client
	cluster *cluster
}

func (m *manager) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if run, ok := obj.(*v1alpha1.AgentRun); ok {
		if m.cluster.cachedRun == nil {
			return apierrors.NewNotFound(v1alpha1.Resource("agentruns"), key.Name)
		}
		m.cluster.cachedRun.DeepCopyInto(run)
		return nil
	}
	return m.Client.Get(ctx, key, obj, opts...)
}

func (m *manager) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if pods, ok := list.(*corev1.PodList); ok {
		for i := range m.cluster.cachedPods {
			pods.Items = append(pods.Items, *m.cluster.cachedPods[i].DeepCopy())
		}
		return nil
	}
	return m.Client.List(ctx, list, opts...)
}

// write does a write unless the manager was killed before.
func (m *manager) write(what string, do func() error) error {
	c := m.cluster
	if c.writes == 0 {
		return errKilled
	}
	c.writes--
	err := do()
	c.note("  manager: %s: %v", what, err)
	if c.lost && c.writes == 0 {
		return errKilled // the write may have happened; nobody will know
	}
	return err
}

func (m *manager) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	return m.write(fmt.Sprintf("create %T %s", obj, obj.GetName()), func() error {
		if _, pod := obj.(*corev1.Pod); pod && m.cluster.forbid == "Pod" {
			return errQuota
		}
		m.cluster.uids++
		obj.SetUID(types.UID(fmt.Sprintf("uid-%d", m.cluster.uids)))
		obj.SetCreationTimestamp(metav1.NewTime(m.cluster.clock.Now()))
		return m.Client.Create(ctx, obj, opts...)
	})
}

func (m *manager) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	return m.write(fmt.Sprintf("delete %T %s", obj, obj.GetName()), func() error {
		var o client.DeleteOptions
		o.ApplyOptions(opts)
		if pod, ok := obj.(*corev1.Pod); ok && o.Preconditions != nil && o.Preconditions.UID != nil {
			if there := m.cluster.pod(pod.Name); there != nil && there.UID != *o.Preconditions.UID {
				return apierrors.NewConflict(corev1.Resource("pods"), pod.Name, errors.New("uid"))
			}
		}
		return m.Client.Delete(ctx, obj, opts...)
	})
}

func (m *manager) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return m.write(fmt.Sprintf("patch %T %s", obj, obj.GetName()), func() error { return m.Client.Patch(ctx, obj, patch, opts...) })
}

func (m *manager) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	return m.write(fmt.Sprintf("update %T %s", obj, obj.GetName()), func() error { return m.Client.Update(ctx, obj, opts...) })
}

func (m *manager) Status() client.SubResourceWriter {
	return &statusWriter{SubResourceWriter: m.Client.Status(), manager: m}
}

type statusWriter struct {
	client.SubResourceWriter
	manager *manager
}

func (w *statusWriter) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
	return w.manager.write("apply the run's status", func() error { return w.SubResourceWriter.Apply(ctx, obj, opts...) })
}

var _ client.Client = (*manager)(nil)

func clientKey(obj client.Object) client.ObjectKey { return client.ObjectKeyFromObject(obj) }
