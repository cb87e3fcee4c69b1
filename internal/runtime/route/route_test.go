package route

import (
	"regexp"
	"strings"
	"testing"
)

// The names are those of objects that users see and override. The hashes were computed by
// printf '%s' "$baseURL|$dialect|$model|$secret|$key" | tr '|' '\0' | openssl dgst -sha256.
func TestNamesOfRoutesNeverChange(t *testing.T) {
	for _, test := range []struct {
		route Route
		want  Name
	}{
		{Route{"https://api.openai.com/v1", OpenAIChat, "gpt-5", "openai", "api-key"}, "api-openai-com-gpt-5-f45b65407a"},
		{Route{"http://127.0.0.1:18080/primary/v1", OpenAIChat, "large-1", "demo-keys", "primary"}, "127-0-0-1-large-1-ed56c73ce2"},
		{Route{"https://api.anthropic.com", AnthropicMessages, "claude-sonnet-4", "anthropic", "key"}, "api-anthropic-com-claude-sonnet-4-adfc90c27f"},
		{Route{"https://very-long-host-name.with-many-labels.example.com/v1", OpenAIChat, "model", "s", "k"},
			"very-long-host-name-with-many-labels-exa-2daef816ea"},
		{Route{"http://ollama/v1", OpenAIChat, "Qwen/Qwen3:30b-A3B", "", ""}, "ollama-qwen-qwen3-30b-a3b-f6771145eb"},
	} {
		if got := test.route.Name(); got != test.want {
			t.Errorf("%+v has the name %s, want %s", test.route, got, test.want)
		}
	}
}

func TestEveryPartOfARouteIsPartOfItsName(t *testing.T) {
	base := Route{"https://h/v1", OpenAIChat, "m", "s", "k"}
	seen := map[Name]string{base.Name(): "the route itself"}
	for what, other := range map[string]Route{
		"base URL": {"https://h/v2", OpenAIChat, "m", "s", "k"},
		"dialect":  {"https://h/v1", AnthropicMessages, "m", "s", "k"},
		"model":    {"https://h/v1", OpenAIChat, "n", "s", "k"},
		"secret":   {"https://h/v1", OpenAIChat, "m", "t", "k"},
		"key":      {"https://h/v1", OpenAIChat, "m", "s", "l"},
		// The parts are kept apart: s+k is neither sk nor ks.
		"secret and key run together": {"https://h/v1", OpenAIChat, "m", "sk", ""},
		"model and secret":            {"https://h/v1", OpenAIChat, "ms", "", "k"},
	} {
		if first, taken := seen[other.Name()]; taken {
			t.Errorf("another %s gives the same name as %s", what, first)
		}
		seen[other.Name()] = what
	}
}

var label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

func FuzzNamesAreDNSLabels(f *testing.F) {
	f.Add("https://api.openai.com/v1", "gpt-5")
	f.Add("", "")
	f.Add("::", "---")
	f.Add("https://"+strings.Repeat("a", 300), strings.Repeat("-", 300))
	f.Add("https://xn--bcher-kva.example", "模型/Ünïcode\x00")
	f.Add("https://"+strings.Repeat("a", 38)+".b", "m")
	f.Fuzz(func(t *testing.T, baseURL, model string) {
		name := string(Route{BaseURL: baseURL, Dialect: OpenAIChat, Model: model}.Name())
		if !label.MatchString(name) || len(name) > 51 || strings.Contains(name, "--") {
			t.Errorf("%q is no name for %q, %q", name, baseURL, model)
		}
	})
}

func TestHostLeavesOutThePortAndUserAndSaysWhenThereIsNone(t *testing.T) {
	for baseURL, want := range map[string]string{
		"https://api.example.com:8443/v1": "api.example.com",
		"http://[::1]:8080":               "::1",
		"https://u:p@h/v1":                "h",
		"":                                "unknown",
		"not a url":                       "unknown",
		"http://\x7f":                     "unknown",
	} {
		if got := (Route{BaseURL: baseURL}).Host(); got != want {
			t.Errorf("the host of %q is %q, want %q", baseURL, got, want)
		}
	}
}

func TestRoutesWithOneSecretKeyShareACredential(t *testing.T) {
	a := Route{BaseURL: "https://a", Model: "m", SecretName: "s", SecretKey: "k"}
	b := Route{BaseURL: "https://b", Model: "n", SecretName: "s", SecretKey: "k"}
	if a.Credential() != b.Credential() || a.Credential() != "s/k" {
		t.Errorf("credentials %q and %q, want s/k for both", a.Credential(), b.Credential())
	}
}
