// Package docs_test keeps the documentation true: its manifests are valid, and its tables say what the code does.
package docs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"belay.dev/belay/internal/contract"
	"belay.dev/belay/internal/manifest"
	"belay.dev/belay/internal/runtime/breaker"
	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/ladder"
	"belay.dev/belay/internal/runtime/message"
	"belay.dev/belay/internal/runtime/provider"
	"belay.dev/belay/internal/runtime/provider/anthropic"
	"belay.dev/belay/internal/runtime/provider/openaichat"
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// examples are the YAML blocks of a page.
func examples(t *testing.T, name string) []string {
	t.Helper()
	var out []string
	for _, match := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(read(t, name), -1) {
		out = append(out, match[1])
	}
	return out
}

// keys are the Secrets of a page.
type keys []corev1.Secret

func (k keys) value(secret, key string) string {
	for _, s := range k {
		if s.Name == secret {
			return string(s.Data[key])
		}
	}
	return ""
}

func (k keys) Credential(secret, key string) (string, ladder.CredentialState) {
	if v := k.value(secret, key); v != "" {
		return v, ladder.CredentialReady
	}
	return "", ladder.CredentialMissing
}

// AllowedHosts are the hosts that a Secret may be sent to.
func (k keys) AllowedHosts(secret string) string { return k.value(secret, "allowed-hosts") }

// TestTheLaddersOfTheProvidersPageWork validates each manifest as the API server does, and renders a request for each leg.
func TestTheLaddersOfTheProvidersPageWork(t *testing.T) {
	client := provider.NewClient(provider.Options{}, openaichat.Dialect{}, anthropic.Dialect{})
	defer client.Close()
	request := provider.Request{System: "s", Messages: []message.Message{{Role: message.RoleUser, Blocks: []message.Block{{Kind: message.BlockText, Text: "hello"}}}}}
	var paths []string
	dir := t.TempDir()
	for i, example := range examples(t, "providers.md") {
		paths = append(paths, filepath.Join(dir, fmt.Sprintf("block-%d.yaml", i+1)))
		if err := os.WriteFile(paths[i], []byte(example), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set, err := manifest.Load(paths, nil)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for i := range set.Ladders {
		chain, targets := contract.LadderOf(&set.Ladders[i], keys(set.Secrets))
		names[chain.Name] = true
		if len(chain.Legs) != len(set.Ladders[i].Spec.Legs) {
			t.Errorf("ladder %s: %d legs of %d can be used", chain.Name, len(chain.Legs), len(set.Ladders[i].Spec.Legs))
		}
		for _, leg := range chain.Legs {
			if leg.Credential != ladder.CredentialReady {
				t.Errorf("ladder %s, leg %s: its credential is %s", chain.Name, leg.Name, leg.Credential)
			}
			if _, err := client.Prepare(targets[leg.Name], request); err != nil {
				t.Errorf("ladder %s, leg %s: %v", chain.Name, leg.Name, err)
			}
		}
	}
	for _, name := range []string{"openai", "anthropic", "azure", "openrouter", "vllm", "ollama", "chain"} {
		if !names[name] {
			t.Errorf("the page has no ladder %s", name)
		}
	}
}

// table returns the rows of the table after a marker, without its head.
func table(t *testing.T, name, marker string) [][]string {
	t.Helper()
	_, rest, found := strings.Cut(read(t, name), "<!-- table: "+marker+" -->\n")
	if !found {
		t.Fatalf("%s has no table %s", name, marker)
	}
	var rows [][]string
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		var cells []string
		for cell := range strings.SplitSeq(strings.Trim(strings.TrimSpace(line), "|"), "|") {
			cells = append(cells, strings.Trim(strings.TrimSpace(cell), "`"))
		}
		rows = append(rows, cells)
	}
	return rows[2:]
}

func TestTheTableOfKindsIsWhatTheCodeDoes(t *testing.T) {
	listed := map[failure.Kind]bool{}
	legend := read(t, "failover.md")
	for _, row := range table(t, "failover.md", "kinds") {
		for name := range strings.SplitSeq(row[0], ", ") {
			kind := failure.Kind(name)
			listed[kind] = true
			d := kind.Disposition()
			if got := []string{string(d.SameLeg), string(d.NextLeg), string(d.Health)}; strings.Join(got, " ") != strings.Join(row[1:], " ") {
				t.Errorf("%s: the page says %v, the code %v", kind, row[1:], got)
			}
		}
		for _, word := range row[1:] {
			if !strings.Contains(legend, "| `"+word+"` |") {
				t.Errorf("the page does not explain %s", word)
			}
		}
	}
	for _, kind := range failure.Kinds() {
		if !listed[kind] {
			t.Errorf("the page does not list %s", kind)
		}
	}
	if len(listed) != len(failure.Kinds()) {
		t.Errorf("the page lists %d kinds, there are %d", len(listed), len(failure.Kinds()))
	}
}

func TestTheTableOfCooldownsIsWhatTheCodeDoes(t *testing.T) {
	for i, row := range table(t, "failover.md", "cooldowns") {
		want := fmt.Sprintf("%d %d", i+1, int(breaker.DefaultConfig().Cooldown(i+1)/time.Second))
		if got := strings.Join(row, " "); got != want {
			t.Errorf("the page says %q, the code %q", got, want)
		}
	}
}

func TestTheTableOfDefaultsIsWhatTheCodeDoes(t *testing.T) {
	seconds := func(d time.Duration) string { return fmt.Sprint(int(d / time.Second)) }
	l, timers := ladder.New("l"), provider.DefaultTimeouts()
	want := map[string]string{
		"retry.maxRetries":            fmt.Sprint(l.Retry.MaxRetries),
		"retry.baseDelayMilliseconds": fmt.Sprint(l.Retry.BaseDelay.Milliseconds()),
		"retry.backoffFactor":         fmt.Sprint(l.Retry.BackoffFactor),
		"retry.maxDelaySeconds":       seconds(l.Retry.MaxDelay),
		"retry.maxAttemptsPerTurn":    fmt.Sprint(l.Retry.MaxAttemptsPerTurn),
		"endurance.maxRewalks":        fmt.Sprint(l.Endurance.MaxRewalks),
		"waits.maxWaitSeconds":        seconds(l.Waits.MaxWait),
		"waits.parkAfterSeconds":      seconds(l.Waits.ParkAfter),
		"waits.onAllTripped":          string(l.Waits.OnAllTripped),
		"breaker.failureThreshold":    fmt.Sprint(l.Breaker.FailureThreshold),
		"breaker.baseCooldownSeconds": seconds(l.Breaker.BaseCooldown),
		"policy.onCredentialFailure":  string(l.Policy.OnCredentialFailure),
		"policy.onContentFiltered":    string(l.Policy.OnContentFiltered),
		"timeouts.connectSeconds":     seconds(timers.Connect),
		"timeouts.firstByteSeconds":   seconds(timers.FirstByte),
		"timeouts.idleSeconds":        seconds(timers.Idle),
		"timeouts.progressSeconds":    seconds(timers.Progress),
		"timeouts.attemptSeconds":     seconds(timers.Attempt),
	}
	rows := table(t, "failover.md", "defaults")
	for _, row := range rows {
		if want[row[0]] != row[1] {
			t.Errorf("%s: the page says %s, the code %q", row[0], row[1], want[row[0]])
		}
	}
	if len(rows) != len(want) {
		t.Errorf("%d rows, want %d", len(rows), len(want))
	}
}
