package contract

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"belay.dev/belay/api/v1alpha1"
	"belay.dev/belay/internal/runtime/breaker"
	"belay.dev/belay/internal/runtime/budget"
	"belay.dev/belay/internal/runtime/ladder"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/provider"
	"belay.dev/belay/internal/runtime/route"
)

// configMaps are texts by <name>/<key>.
type configMaps map[string]string

var errNoKey = errors.New("no such key")

func (c configMaps) ConfigMapKey(name, key string) (string, error) {
	if v, ok := c[name+"/"+key]; ok {
		return v, nil
	}
	return "", errNoKey
}

func from(name, key string) *v1alpha1.TextSource {
	return &v1alpha1.TextSource{ConfigMapKeyRef: v1alpha1.ConfigMapKeyReference{Name: name, Key: key}}
}

func TestABareRunHasTheDocumentedLimitsAndDemandsNothing(t *testing.T) {
	got, err := Of(&v1alpha1.AgentRun{Spec: v1alpha1.AgentRunSpec{Task: "t"}}, configMaps{})
	want := record.Contract{Task: "t", Limits: record.Limits{
		MaxTurns: 200, MaxModelRetries: new(100), ActiveDeadline: 24 * time.Hour, MaxParked: 7 * 24 * time.Hour,
	}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestNoRetriesAreNotAnUnsetLimit(t *testing.T) {
	got := LimitsOf(&v1alpha1.AgentRun{Spec: v1alpha1.AgentRunSpec{Limits: &v1alpha1.Limits{MaxModelRetries: ptr.To[int32](0)}}})
	if got.MaxModelRetries == nil || *got.MaxModelRetries != 0 {
		t.Errorf("limits %+v, want no retries", got)
	}
}

func TestEveryFieldOfARunReachesItsContract(t *testing.T) {
	run := &v1alpha1.AgentRun{Spec: v1alpha1.AgentRunSpec{
		TaskFrom: from("texts", "task"), SystemFrom: from("texts", "system"),
		Routing: &v1alpha1.Routing{SecurityClass: "Confidential", Metered: "Allow", Legs: []string{"b", "a"}},
		Tools: &v1alpha1.Tools{Workspace: []v1alpha1.WorkspaceTool{
			{Name: v1alpha1.WorkspaceToolShell, TimeoutSeconds: 300}, {Name: v1alpha1.WorkspaceToolRead},
		}},
		Limits: &v1alpha1.Limits{
			MaxTurns: 1, MaxModelRetries: ptr.To[int32](2), MaxTokens: 3, MaxCostMicroUSD: 4, ActiveDeadlineSeconds: 5, MaxParkedSeconds: 6,
		},
	}}
	got, err := Of(run, configMaps{"texts/task": "from a map", "texts/system": "be brief"})
	want := record.Contract{
		Task: "from a map", System: "be brief",
		Tools:   []record.ToolGrant{{Name: "shell", Timeout: 300 * time.Second}, {Name: "read"}},
		Routing: record.Routing{SecurityClass: "Confidential", Metered: "Allow", Legs: []string{"b", "a"}},
		Limits: record.Limits{
			MaxTurns: 1, MaxModelRetries: new(2), MaxTokens: 3, MaxCostMicroUSD: 4, ActiveDeadline: 5 * time.Second, MaxParked: 6 * time.Second,
		},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestTextsThatAreMissingNameFieldConfigMapAndKey(t *testing.T) {
	for name, test := range map[string]struct {
		spec v1alpha1.AgentRunSpec
		says []string
	}{
		"a task that does not exist":   {v1alpha1.AgentRunSpec{TaskFrom: from("m", "k")}, []string{"spec.taskFrom.configMapKeyRef", `"m"`, `"k"`}},
		"a prompt that does not exist": {v1alpha1.AgentRunSpec{Task: "t", SystemFrom: from("m", "k")}, []string{"spec.systemFrom.configMapKeyRef", `"m"`, `"k"`}},
		"an empty task":                {v1alpha1.AgentRunSpec{TaskFrom: from("m", "empty")}, []string{"spec.taskFrom", "empty"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Of(&v1alpha1.AgentRun{Spec: test.spec}, configMaps{"m/empty": " \n"})
			if err == nil {
				t.Fatal("was accepted")
			}
			for _, s := range test.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q does not name %s", err, s)
				}
			}
		})
	}
}

// someSecrets are credentials by <secret>/<key>.
type someSecrets map[string]string

func (s someSecrets) Credential(secret, key string) (string, ladder.CredentialState) {
	if v, ok := s[secret+"/"+key]; ok {
		return v, ladder.CredentialReady
	}
	return "", ladder.CredentialMissing
}

func (s someSecrets) AllowedHosts(secret string) string { return s[secret+"/allowed-hosts"] }

func TestASecretIsSentOnlyToTheHostsThatItAllows(t *testing.T) {
	l := &v1alpha1.RouteLadder{Spec: v1alpha1.RouteLadderSpec{
		Providers: []v1alpha1.Provider{{
			Name: "p", Dialect: v1alpha1.DialectOpenAIChat, BaseURL: "https://api.example.com:8443/v1",
			Credential: &v1alpha1.Credential{SecretRef: v1alpha1.SecretKeyReference{Name: "keys", Key: "k"}},
		}},
		Legs: []v1alpha1.Leg{{Name: "a", Provider: "p", Model: "m", ContextWindow: 8192}},
	}}
	for hosts, want := range map[string]ladder.CredentialState{
		"":                                   ladder.CredentialReady,
		" \n":                                ladder.CredentialReady,
		"api.example.com":                    ladder.CredentialReady,
		"other.example.com, API.example.com": ladder.CredentialReady,
		"other.example.com\napi.example.com": ladder.CredentialReady,
		"example.com":                        ladder.CredentialNotForHost,
		"api.example.com.evil.test":          ladder.CredentialNotForHost,
		"other.example.com":                  ladder.CredentialNotForHost,
	} {
		chain, targets := LadderOf(l, someSecrets{"keys/k": "the-secret", "keys/allowed-hosts": hosts})
		if got := chain.Legs[0].Credential; got != want {
			t.Errorf("allowed-hosts %q: credential is %s, want %s", hosts, got, want)
		}
		if sent := targets["a"].Secret; want != ladder.CredentialReady && sent != "" {
			t.Errorf("allowed-hosts %q: the secret is handed on although its host is not allowed", hosts)
		}
	}
}

func TestABareLadderHasTheDocumentedDefaults(t *testing.T) {
	l := &v1alpha1.RouteLadder{Spec: v1alpha1.RouteLadderSpec{
		Providers: []v1alpha1.Provider{{Name: "p", Dialect: "OpenAIChat", BaseURL: "https://h/v1"}},
		Legs:      []v1alpha1.Leg{{Name: "a", Provider: "p", Model: "m", ContextWindow: 100_000}},
	}}
	chain, targets := LadderOf(l, someSecrets{})
	routeA := route.Route{BaseURL: "https://h/v1", Dialect: "OpenAIChat", Model: "m"}
	wantChain := ladder.Ladder{
		Legs: []ladder.Leg{{
			Name: "a", Provider: "p", Route: routeA, ContextWindow: 100_000,
			Billing: "Metered", SecurityClass: "Public", State: "Active", Credential: ladder.CredentialReady,
		}},
		Retry:     ladder.Retry{MaxRetries: 5, BaseDelay: 500 * time.Millisecond, BackoffFactor: 2, MaxDelay: 30 * time.Second, MaxAttemptsPerTurn: 20},
		Endurance: ladder.Endurance{MaxRewalks: 6},
		Waits:     ladder.Waits{MaxWait: 10 * time.Second, ParkAfter: 300 * time.Second, OnAllTripped: "Park"},
		Breaker:   breaker.Config{FailureThreshold: 3, BaseCooldown: 30 * time.Second, MaxCooldown: 900 * time.Second, ProbeLease: 21 * time.Minute},
		Policy:    ladder.FailurePolicy{OnCredentialFailure: "Advance", OnContentFiltered: "Fail"},
	}
	if diff := cmp.Diff(wantChain, chain); diff != "" {
		t.Errorf("chain (-want +got):\n%s", diff)
	}
	wantTargets := map[string]provider.Target{"a": {
		Leg: "a", Route: routeA, Insecure: "Forbid", CABundle: []byte{}, MaxOutputTokens: 25_000, // a quarter of the window
		Timeouts:  provider.Timeouts{Connect: 10 * time.Second, FirstByte: 120 * time.Second, Idle: 120 * time.Second, Progress: 300 * time.Second, Attempt: 1200 * time.Second},
		Reasoning: "Drop", MissingFinishReason: "Reject",
	}}
	if diff := cmp.Diff(wantTargets, targets); diff != "" {
		t.Errorf("targets (-want +got):\n%s", diff)
	}
	// Sections that are there and empty mean the same as sections that are not.
	l.Spec.Retry, l.Spec.Endurance, l.Spec.Waits = &v1alpha1.RetryPolicy{}, &v1alpha1.EndurancePolicy{}, &v1alpha1.WaitPolicy{}
	l.Spec.Breaker, l.Spec.Policy = &v1alpha1.BreakerPolicy{}, &v1alpha1.FailurePolicy{}
	l.Spec.Legs[0].Timeouts = &v1alpha1.Timeouts{}
	chain, targets = LadderOf(l, someSecrets{})
	if diff := cmp.Diff(wantChain, chain) + cmp.Diff(wantTargets, targets); diff != "" {
		t.Errorf("with empty sections (-want +got):\n%s", diff)
	}
}

func TestEveryFieldOfALadderReachesItsChainAndTargets(t *testing.T) {
	l := &v1alpha1.RouteLadder{
		ObjectMeta: metav1.ObjectMeta{Name: "demo", UID: types.UID("u"), Generation: 7},
		Spec: v1alpha1.RouteLadderSpec{
			Providers: []v1alpha1.Provider{{
				Name: "p", Dialect: "AnthropicMessages", BaseURL: "http://h", Insecure: "Cluster", CABundle: "PEM",
				Credential: &v1alpha1.Credential{SecretRef: v1alpha1.SecretKeyReference{Name: "s", Key: "k"}},
				Headers:    []v1alpha1.Header{{Name: "X-A", Value: "1"}, {Name: "X-B", Value: "2"}},
			}},
			Legs: []v1alpha1.Leg{{
				Name: "a", Provider: "p", Model: "m", ContextWindow: 1000, MaxOutputTokens: 10, Billing: "Included", SecurityClass: "Restricted",
				State: "Drained", Capabilities: []v1alpha1.Capability{"Tools", "Images"}, Reasoning: "Replay", MissingFinishReason: "Accept",
				Price: &v1alpha1.Price{
					InputMicroUSDPerMTok: ptr.To[int64](1), OutputMicroUSDPerMTok: ptr.To[int64](2),
					CachedInputMicroUSDPerMTok: ptr.To[int64](3), CacheWriteMicroUSDPerMTok: ptr.To[int64](4),
				},
				Timeouts: &v1alpha1.Timeouts{
					ConnectSeconds: ptr.To[int32](1), FirstByteSeconds: ptr.To[int32](2), IdleSeconds: ptr.To[int32](0),
					ProgressSeconds: ptr.To[int32](4), AttemptSeconds: ptr.To[int32](5),
				},
				Parameters: &runtime.RawExtension{Raw: []byte(`{"temperature":0}`)},
			}},
			Retry:     &v1alpha1.RetryPolicy{MaxRetries: ptr.To[int32](0), BaseDelayMilliseconds: 20, BackoffFactor: 3, MaxDelaySeconds: 4, MaxAttemptsPerTurn: 5},
			Endurance: &v1alpha1.EndurancePolicy{MaxRewalks: ptr.To[int32](0)},
			Waits:     &v1alpha1.WaitPolicy{MaxWaitSeconds: ptr.To[int32](0), ParkAfterSeconds: ptr.To[int32](0), OnAllTripped: "Fail"},
			Breaker:   &v1alpha1.BreakerPolicy{FailureThreshold: 9, BaseCooldownSeconds: ptr.To[int32](0), Informed: "Trip"},
			Policy:    &v1alpha1.FailurePolicy{OnCredentialFailure: "Park", OnContentFiltered: "Advance"},
		},
	}
	chain, targets := LadderOf(l, someSecrets{"s/k": "value"})
	routeA := route.Route{BaseURL: "http://h", Dialect: "AnthropicMessages", Model: "m", SecretName: "s", SecretKey: "k"}
	wantChain := ladder.Ladder{
		Name: "demo", UID: "u", Generation: 7,
		Legs: []ladder.Leg{{
			Name: "a", Provider: "p", Route: routeA, ContextWindow: 1000, MaxOutputTokens: 10, Billing: "Included", SecurityClass: "Restricted",
			State: "Drained", Capabilities: []ladder.Capability{"Tools", "Images"}, Credential: ladder.CredentialReady,
			Price: &budget.Price{InputMicroUSDPerMTok: 1, OutputMicroUSDPerMTok: 2, CachedInputMicroUSDPerMTok: 3, CacheWriteMicroUSDPerMTok: 4},
		}},
		Retry:     ladder.Retry{MaxRetries: 0, BaseDelay: 20 * time.Millisecond, BackoffFactor: 3, MaxDelay: 4 * time.Second, MaxAttemptsPerTurn: 5},
		Endurance: ladder.Endurance{MaxRewalks: 0},
		Waits:     ladder.Waits{MaxWait: 0, ParkAfter: 0, OnAllTripped: "Fail"},
		Breaker:   breaker.Config{FailureThreshold: 9, BaseCooldown: 0, MaxCooldown: 900 * time.Second, ProbeLease: 21 * time.Minute, InformedTrips: true},
		Policy:    ladder.FailurePolicy{OnCredentialFailure: "Park", OnContentFiltered: "Advance"},
	}
	if diff := cmp.Diff(wantChain, chain); diff != "" {
		t.Errorf("chain (-want +got):\n%s", diff)
	}
	wantTargets := map[string]provider.Target{"a": {
		Leg: "a", Route: routeA, Secret: "value", Insecure: "Cluster", CABundle: []byte("PEM"), MaxOutputTokens: 10,
		Headers:    []provider.Header{{Name: "X-A", Value: "1"}, {Name: "X-B", Value: "2"}},
		Timeouts:   provider.Timeouts{Connect: time.Second, FirstByte: 2 * time.Second, Idle: 0, Progress: 4 * time.Second, Attempt: 5 * time.Second},
		Parameters: []byte(`{"temperature":0}`), Reasoning: "Replay", MissingFinishReason: "Accept", Images: true,
	}}
	if diff := cmp.Diff(wantTargets, targets); diff != "" {
		t.Errorf("targets (-want +got):\n%s", diff)
	}
}

func TestCachedTokensCostWhatInputDoesUnlessTheyHaveAPrice(t *testing.T) {
	l := ladderWithLegs(v1alpha1.Leg{Name: "a", Provider: "p", Model: "m", ContextWindow: 1024,
		Price: &v1alpha1.Price{InputMicroUSDPerMTok: ptr.To[int64](5), OutputMicroUSDPerMTok: ptr.To[int64](7)}})
	chain, _ := LadderOf(l, someSecrets{})
	want := &budget.Price{InputMicroUSDPerMTok: 5, CachedInputMicroUSDPerMTok: 5, CacheWriteMicroUSDPerMTok: 5, OutputMicroUSDPerMTok: 7}
	if diff := cmp.Diff(want, chain.Legs[0].Price); diff != "" {
		t.Errorf("price (-want +got):\n%s", diff)
	}
}

func TestAnOutputCapIsAQuarterOfTheWindowAndAtMost32768(t *testing.T) {
	for window, want := range map[int64]int64{1024: 256, 131_072: 32_768, 1_000_000: 32_768} {
		_, targets := LadderOf(ladderWithLegs(v1alpha1.Leg{Name: "a", Provider: "p", Model: "m", ContextWindow: window}), someSecrets{})
		if got := targets["a"].MaxOutputTokens; got != want {
			t.Errorf("a window of %d gives a cap of %d, want %d", window, got, want)
		}
	}
}

func TestAMissingCredentialMarksItsLegAndAForeignProviderIsLeftOut(t *testing.T) {
	l := ladderWithLegs(
		v1alpha1.Leg{Name: "a", Provider: "secured", Model: "m", ContextWindow: 1024},
		v1alpha1.Leg{Name: "b", Provider: "nowhere", Model: "m", ContextWindow: 1024},
		v1alpha1.Leg{Name: "c", Provider: "p", Model: "m", ContextWindow: 1024})
	l.Spec.Providers = append(l.Spec.Providers, v1alpha1.Provider{Name: "secured", Dialect: "OpenAIChat", BaseURL: "https://i/v1",
		Credential: &v1alpha1.Credential{SecretRef: v1alpha1.SecretKeyReference{Name: "s", Key: "k"}}})
	chain, targets := LadderOf(l, someSecrets{})
	got := map[string]ladder.CredentialState{}
	for _, leg := range chain.Legs {
		got[leg.Name] = leg.Credential
	}
	if diff := cmp.Diff(map[string]ladder.CredentialState{"a": ladder.CredentialMissing, "c": ladder.CredentialReady}, got); diff != "" {
		t.Errorf("legs (-want +got):\n%s", diff)
	}
	if len(targets) != 2 || targets["a"].Secret != "" {
		t.Errorf("targets are %+v", targets)
	}
	if (RouteOf(l, l.Spec.Legs[1]) != route.Route{}) {
		t.Error("a leg without a provider has a route")
	}
}

func ladderWithLegs(legs ...v1alpha1.Leg) *v1alpha1.RouteLadder {
	return &v1alpha1.RouteLadder{Spec: v1alpha1.RouteLadderSpec{
		Providers: []v1alpha1.Provider{{Name: "p", Dialect: "OpenAIChat", BaseURL: "https://h/v1"}}, Legs: legs,
	}}
}
