package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"belay.dev/belay/api/v1alpha1"
	"belay.dev/belay/test/cluster"
)

const (
	poll = 100 * time.Millisecond
	// soon bounds what takes a moment on an idle machine, long what includes pods, backoffs and cooldowns.
	soon = time.Minute
	long = 3 * time.Minute

	cleanWithin = 20 * time.Second

	ladderName = "chain"
	secretName = "keys"
)

var scenes atomic.Int64

// scene is one test's part of the cluster.
type scene struct {
	t   *testing.T
	ctx context.Context
	ns  string
}

// newScene makes a namespace, which goes when the test ends. After a failure the test's log has what a person would look at.
func newScene(t *testing.T) *scene {
	t.Helper()
	if shared.err != nil {
		t.Fatalf("there is no cluster: %v", shared.err)
	}
	name := strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(strings.TrimPrefix(t.Name(), "Test")), "-"), "-")
	s := &scene{t: t, ctx: t.Context(), ns: fmt.Sprintf("%.40s-%d", name, scenes.Add(1))}
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.ns, Labels: map[string]string{
		"pod-security.kubernetes.io/enforce": "restricted", // pods of runs must be fit for it
	}}})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), cleanWithin)
		defer cancel()
		if t.Failed() {
			s.evidence(ctx)
		}
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.ns}}
		if err := client.IgnoreNotFound(shared.api.Delete(ctx, namespace)); err != nil {
			t.Errorf("delete the namespace: %v", err)
		}
	})
	return s
}

// evidence logs what a person would look at.
func (s *scene) evidence(ctx context.Context) {
	for _, args := range [][]string{
		{"get", "arun,ladder,providerhealth,pod,pvc", "-n", s.ns, "-o", "wide"},
		{"get", "arun", "-n", s.ns, "-o", "yaml"},
		{"get", "events", "-n", s.ns, "--sort-by=.lastTimestamp"},
	} {
		out, err := shared.Kubectl(ctx, args...)
		s.t.Logf("kubectl %s\n%s", strings.Join(args, " "), out)
		if err != nil {
			s.t.Log(err)
		}
	}
}

// eventually polls until holds, and fails the test with what was seen last if that takes too long.
func (s *scene) eventually(within time.Duration, what string, holds func() (ok bool, seen string)) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, within)
	defer cancel()
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		ok, seen := holds()
		if ok {
			return
		}
		select {
		case <-ctx.Done():
			s.t.Fatalf("after %s it is still not true that %s; last seen: %s", within, what, seen)
		case <-ticker.C:
		}
	}
}

func (s *scene) create(objects ...client.Object) {
	s.t.Helper()
	for _, o := range objects {
		if err := shared.api.Create(s.ctx, o); err != nil {
			s.t.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
	}
}

// get reads an object of the namespace.
func get[T any, P interface {
	*T
	client.Object
}](s *scene, name string) P {
	s.t.Helper()
	object := P(new(T))
	if err := shared.api.Get(s.ctx, client.ObjectKey{Namespace: s.ns, Name: name}, object); err != nil {
		s.t.Fatalf("get %T %s: %v", object, name, err)
	}
	return object
}

// edit changes an object of the namespace as kubectl edit would.
func edit[T any, P interface {
	*T
	client.Object
}](s *scene, name string, change func(P)) {
	s.t.Helper()
	before := get[T, P](s, name)
	after, ok := before.DeepCopyObject().(P)
	if !ok {
		s.t.Fatalf("a copy of %T is a %T", before, after)
	}
	change(after)
	if err := shared.api.Patch(s.ctx, after, client.MergeFrom(before)); err != nil {
		s.t.Fatalf("change %T %s: %v", before, name, err)
	}
}

func (s *scene) kubectl(args ...string) string {
	s.t.Helper()
	out, err := shared.Kubectl(s.ctx, append(args, "-n", s.ns)...)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// ladder is a ladder with a leg for each name, on the provider of that name. Tests change it before they create it.
func (s *scene) ladder(legs ...string) *v1alpha1.RouteLadder {
	ladder := &v1alpha1.RouteLadder{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: ladderName}}
	for _, leg := range legs {
		ladder.Spec.Providers = append(ladder.Spec.Providers, v1alpha1.Provider{
			Name: leg, Dialect: v1alpha1.DialectOpenAIChat, Insecure: v1alpha1.InsecureLoopback,
			BaseURL:    fmt.Sprintf("http://%s/%s/v1", shared.Providers.Addr(), s.endpoint(leg)),
			Credential: &v1alpha1.Credential{SecretRef: v1alpha1.SecretKeyReference{Name: secretName, Key: leg}},
		})
		ladder.Spec.Legs = append(ladder.Spec.Legs, v1alpha1.Leg{
			Name: leg, Provider: leg, Model: modelOf(leg), ContextWindow: 128_000,
			// 0.15 and 0.60 USD for a million tokens.
			Price: &v1alpha1.Price{InputMicroUSDPerMTok: ptr.To[int64](150_000), OutputMicroUSDPerMTok: ptr.To[int64](600_000)},
		})
	}
	return ladder
}

// secret has the keys of the providers of that name.
func (s *scene) secret(legs ...string) *corev1.Secret {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: secretName}, StringData: map[string]string{}}
	for _, leg := range legs {
		secret.StringData[leg] = s.apiKey(leg)
	}
	return secret
}

// run is a run on the scene's ladder that may spend money and has a shell.
func (s *scene) run(name string) *v1alpha1.AgentRun {
	return &v1alpha1.AgentRun{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name},
		Spec: v1alpha1.AgentRunSpec{
			LadderRef: v1alpha1.LadderReference{Name: ladderName},
			Task:      "Do what the script says.",
			Routing:   &v1alpha1.Routing{Metered: v1alpha1.MeteredAllow},
			Workspace: &v1alpha1.Workspace{Image: cluster.WorkspaceImage},
		},
	}
}

// await waits until the run is as it should be. A run that ended before that fails the test at once.
func (s *scene) await(name string, within time.Duration, what string, holds func(*v1alpha1.AgentRun) bool) *v1alpha1.AgentRun {
	s.t.Helper()
	var run *v1alpha1.AgentRun
	s.eventually(within, "run "+name+" "+what, func() (bool, string) {
		run = get[v1alpha1.AgentRun](s, name)
		if holds(run) {
			return true, ""
		}
		if isTrue(run, v1alpha1.ConditionFinished) {
			s.t.Fatalf("run %s ended (%s) and never %s", name, condition(run, v1alpha1.ConditionSucceeded), what)
		}
		return false, fmt.Sprintf("Succeeded %s; PodReady %s", condition(run, v1alpha1.ConditionSucceeded), condition(run, v1alpha1.ConditionPodReady))
	})
	return run
}

// completes waits for the end of the run and fails the test if that is no success.
func (s *scene) completes(name string) *v1alpha1.AgentRun {
	s.t.Helper()
	run := s.await(name, long, "is finished", func(r *v1alpha1.AgentRun) bool { return isTrue(r, v1alpha1.ConditionFinished) })
	if !isTrue(run, v1alpha1.ConditionSucceeded) || reason(run, v1alpha1.ConditionSucceeded) != v1alpha1.ReasonCompleted {
		s.t.Fatalf("run %s ended as %s, want True/Completed", name, condition(run, v1alpha1.ConditionSucceeded))
	}
	return run
}

// fails waits for the end of the run and fails the test if that is not Succeeded=False for the reason.
func (s *scene) fails(name, why string) *v1alpha1.AgentRun {
	s.t.Helper()
	run := s.await(name, long, "is finished", func(r *v1alpha1.AgentRun) bool { return isTrue(r, v1alpha1.ConditionFinished) })
	c := meta.FindStatusCondition(run.Status.Conditions, v1alpha1.ConditionSucceeded)
	if c.Status != metav1.ConditionFalse || c.Reason != why {
		s.t.Fatalf("run %s ended as %s, want False/%s", name, condition(run, v1alpha1.ConditionSucceeded), why)
	}
	return run
}

// pods are the pods of a run that the API server has.
func (s *scene) pods(run string) []corev1.Pod {
	s.t.Helper()
	var list corev1.PodList
	if err := shared.api.List(s.ctx, &list, client.InNamespace(s.ns), client.MatchingLabels{v1alpha1.LabelRun: run}); err != nil {
		s.t.Fatalf("list the pods of run %s: %v", run, err)
	}
	return list.Items
}

// volume is the directory behind the run's claim, once that is bound.
func (s *scene) volume(run *v1alpha1.AgentRun) string {
	s.t.Helper()
	dir := ""
	s.eventually(soon, "the run's claim is bound", func() (bool, string) {
		var err error
		dir, err = shared.ClaimDir(s.ctx, s.ns, "belay-"+string(run.UID))
		return err == nil, fmt.Sprint(err)
	})
	return dir
}

// lines are the lines of a file in the run's workspace, none while it does not exist.
func (s *scene) lines(run *v1alpha1.AgentRun, file string) []string {
	s.t.Helper()
	data, err := os.ReadFile(filepath.Join(s.volume(run), "workspace", file))
	if err != nil && !os.IsNotExist(err) {
		s.t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")[:strings.Count(string(data), "\n")]
}

func isTrue(run *v1alpha1.AgentRun, kind string) bool {
	return meta.IsStatusConditionTrue(run.Status.Conditions, kind)
}

// condition is a condition as a person would say it.
func condition(run *v1alpha1.AgentRun, kind string) string {
	c := meta.FindStatusCondition(run.Status.Conditions, kind)
	if c == nil {
		return "absent"
	}
	return fmt.Sprintf("%s/%s: %s", c.Status, c.Reason, c.Message)
}

func reason(run *v1alpha1.AgentRun, kind string) string {
	if c := meta.FindStatusCondition(run.Status.Conditions, kind); c != nil {
		return c.Reason
	}
	return ""
}

func message(run *v1alpha1.AgentRun, kind string) string {
	if c := meta.FindStatusCondition(run.Status.Conditions, kind); c != nil {
		return c.Message
	}
	return ""
}
