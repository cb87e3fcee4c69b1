package runner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"belay.dev/belay/api/v1alpha1"
	"belay.dev/belay/internal/runtime/ladder"
	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/loop"
	"belay.dev/belay/internal/runtime/tools"
)

var podEnv = map[string]string{
	"BELAY_NAMESPACE": "ns", "BELAY_RUN": "r", "BELAY_RUN_UID": "u", "BELAY_EPOCH": "3", "POD_NAME": "r-3", "POD_UID": "p",
	"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443",
}

func TestAPodsEnvironmentIsItsConfiguration(t *testing.T) {
	got, err := FromEnvironment(func(name string) string { return podEnv[name] })
	want := Config{
		Namespace: "ns", Run: "r", RunUID: "u", Epoch: 3, PodName: "r-3", PodUID: "p",
		LedgerDir: "/belay/ledger", CredentialsDir: "/belay/credentials", TextsDir: "/belay/texts", Socket: "/belay/run/toolbox.sock",
		TerminationLog: "/dev/termination-log",
		API:            &rest.Config{Host: "https://[fd00::1]:443", BearerTokenFile: "/belay/token/token", TLSClientConfig: rest.TLSClientConfig{CAFile: "/belay/token/ca.crt"}},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(rest.Config{})); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestEveryMissingVariableIsNamed(t *testing.T) {
	_, err := FromEnvironment(func(string) string { return "" })
	for name := range podEnv {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v does not name %s", err, name)
		}
	}
	for _, epoch := range []string{"0", "-1", "one", "9223372036854775808"} {
		_, err := FromEnvironment(func(name string) string {
			if name == "BELAY_EPOCH" {
				return epoch
			}
			return podEnv[name]
		})
		if err == nil || !strings.Contains(err.Error(), "BELAY_EPOCH must be a number from 1") {
			t.Errorf("epoch %q: %v", epoch, err)
		}
	}
}

func TestAnErrorOfTheLedgerIsTheEndThatItMeans(t *testing.T) {
	wrapped := func(err error) error { return fmt.Errorf("record 3: %w", err) }
	for name, test := range map[string]struct {
		err  error
		want v1alpha1.Final
	}{
		"damage":               {wrapped(&ledger.CorruptError{What: "x"}), v1alpha1.Final{Outcome: "Failed", Reason: "LedgerCorrupt"}},
		"an unknown type":      {wrapped(&ledger.UnknownCriticalError{}), v1alpha1.Final{Outcome: "Failed", Reason: "LedgerCorrupt"}},
		"a lost blob":          {wrapped(&ledger.BlobError{Err: os.ErrNotExist}), v1alpha1.Final{Outcome: "Failed", Reason: "LedgerCorrupt"}},
		"a payload of no type": {wrapped(&record.DecodeError{Type: "run.end", Err: errors.New("x")}), v1alpha1.Final{Outcome: "Failed", Reason: "LedgerCorrupt"}},
		"another run":          {wrapped(ledger.ErrForeignRun), v1alpha1.Final{Outcome: "Failed", Reason: "LedgerCorrupt"}},
		"another contract":     {wrapped(&loop.ContractError{Have: "a", Want: "b"}), v1alpha1.Final{Outcome: "Failed", Reason: "LedgerCorrupt"}},
		"a newer version":      {wrapped(ledger.ErrNewerVersion), v1alpha1.Final{Outcome: "Failed", Reason: "LedgerCorrupt"}},
		"a rolled-back volume": {wrapped(&ledger.RegressedError{}), v1alpha1.Final{Outcome: "Failed", Reason: "LedgerRegressed"}},
		"a full disk":          {wrapped(&ledger.UnwritableError{Err: os.ErrPermission}), v1alpha1.Final{Outcome: "Failed", Reason: "LedgerUnwritable"}},
		"a newer epoch":        {wrapped(&ledger.FencedError{Epoch: 7}), v1alpha1.Final{Outcome: "Fenced", Reason: "Running", LedgerEpoch: 7}},
		"another writer":       {wrapped(ledger.ErrFenced), v1alpha1.Final{Outcome: "Fenced", Reason: "Running"}},
		"a newer workspace":    {wrapped(tools.ErrFenced), v1alpha1.Final{Outcome: "Fenced", Reason: "Running"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ledgerFailure(test.err)
			test.want.Message = test.err.Error()
			if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
	other := errors.New("the network is down")
	if got, err := ledgerFailure(other); !errors.Is(err, other) || got.Outcome != "" {
		t.Errorf("what another pod may do better is %+v, %v", got, err)
	}
}

// mount lays secrets out as the kubelet does: a folder of data behind two links.
func mount(t *testing.T, dir, version string, files map[string]string) {
	t.Helper()
	for name, value := range files {
		path := filepath.Join(dir, "..v"+version, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
		secret, _, _ := strings.Cut(name, "/")
		if err := os.Symlink(filepath.Join("..data", secret), filepath.Join(dir, secret)); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "..data")); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if err := os.Symlink("..v"+version, filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
}

func TestCredentialsAreReadAsMountedAndRedactedForEver(t *testing.T) {
	dir := t.TempDir()
	mount(t, dir, "1", map[string]string{"openai/key": "first-canary\n", "openai/unused": "unused-canary", "empty/key": " \n"})
	c, err := newCredentials(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, state := c.Credential("openai", "key"); got != "first-canary" || state != ladder.CredentialReady {
		t.Errorf("the key is %q, %s", got, state)
	}
	for _, missing := range [][2]string{{"empty", "key"}, {"openai", "other"}, {"other", "key"}, {"../openai", "../../key"}} {
		if got, state := c.Credential(missing[0], missing[1]); got != "" || state != ladder.CredentialMissing {
			if missing[0] != "../openai" { // cut to its last element
				t.Errorf("%v is %q, %s", missing, got, state)
			}
		}
	}
	mount(t, dir, "2", map[string]string{"openai/key": "second-canary"})
	if got, _ := c.Credential("openai", "key"); got != "second-canary" {
		t.Errorf("the rotated key is %q", got)
	}
	want := "[redacted], [redacted] and [redacted]"
	text := "first-canary, second-canary and unused-canary"
	if got := c.redact(text); got != want {
		t.Errorf("redacted to %q", got)
	}
	if got := string(c.redactBytes([]byte(text))); got != want {
		t.Errorf("bytes redacted to %q", got)
	}
}

func TestAPodWithoutCredentialsHasNoneMissing(t *testing.T) {
	c, err := newCredentials(filepath.Join(t.TempDir(), "nowhere"))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.redact("text"); got != "text" {
		t.Errorf("redacted to %q", got)
	}
}

func TestTaskAndSystemPromptComeFromTheirFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"task": "do it", "system": "be brief"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ref := func(key string) *v1alpha1.TextSource {
		return &v1alpha1.TextSource{ConfigMapKeyRef: v1alpha1.ConfigMapKeyReference{Name: "m", Key: key}}
	}
	texts := textsOf(dir, &v1alpha1.AgentRunSpec{TaskFrom: ref("t"), SystemFrom: ref("s")})
	for key, want := range map[string]string{"t": "do it", "s": "be brief"} {
		if got, err := texts.ConfigMapKey("m", key); got != want || err != nil {
			t.Errorf("%s is %q, %v", key, got, err)
		}
	}
	if _, err := texts.ConfigMapKey("m", "other"); err == nil {
		t.Error("a text that nobody mounted was read")
	}
}

func TestTheWholeAnswerIsWrittenAgainByLaterEpochs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "result.txt")
	for _, text := range []string{"a long answer", "answer"} {
		if err := writeResult(path, text); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); string(got) != text || err != nil {
			t.Errorf("the file holds %q, %v", got, err)
		}
	}
	var unwritable *ledger.UnwritableError
	if err := writeResult(filepath.Join(path, "below-a-file"), "x"); !errors.As(err, &unwritable) {
		t.Errorf("the error is %v", err)
	}
}

func aLadder(generation, observed int64, status metav1.ConditionStatus) *v1alpha1.RouteLadder {
	return &v1alpha1.RouteLadder{
		ObjectMeta: metav1.ObjectMeta{Generation: generation},
		Spec:       v1alpha1.RouteLadderSpec{Legs: []v1alpha1.Leg{{Name: "a"}, {Name: "b"}}},
		Status: v1alpha1.RouteLadderStatus{
			Conditions: []metav1.Condition{{Type: "Accepted", Status: status, ObservedGeneration: observed, Message: "no leg is left"}},
			Legs:       []v1alpha1.LegStatus{{Name: "a", State: "LeftOut"}, {Name: "b", State: "Accepted"}},
		},
	}
}

func TestALadderIsUsableOnceItsGenerationIsAccepted(t *testing.T) {
	if !isAccepted(aLadder(2, 2, "True")) {
		t.Error("an accepted generation is not usable")
	}
	for name, test := range map[string]struct {
		ladder *v1alpha1.RouteLadder
		says   string
	}{
		"not looked at":          {&v1alpha1.RouteLadder{ObjectMeta: metav1.ObjectMeta{Generation: 1}}, "generation 1 has not been looked at"},
		"an older one looked at": {aLadder(3, 2, "True"), "generation 3 has not been looked at"},
		"looked at and refused":  {aLadder(2, 2, "False"), "generation 2 is not accepted: no leg is left"},
	} {
		if isAccepted(test.ladder) {
			t.Errorf("%s: is usable", name)
		}
		if got := whyUnusable(test.ladder, nil).Error(); !strings.Contains(got, test.says) {
			t.Errorf("%s: %q does not say %q", name, got, test.says)
		}
	}
}

func TestALegThatWasLeftOutIsDrained(t *testing.T) {
	got := withoutLeftOut(aLadder(2, 2, "True")).Spec.Legs
	if diff := cmp.Diff([]v1alpha1.Leg{{Name: "a", State: "Drained"}, {Name: "b"}}, got); diff != "" {
		t.Errorf("legs (-want +got):\n%s", diff)
	}
}
