package manifest

import (
	"strings"
	"testing"
)

const goodLadder = `
apiVersion: agents.belay.dev/v1alpha1
kind: RouteLadder
metadata: {name: demo}
spec:
  providers:
  - {name: primary, dialect: OpenAIChat, baseURL: "https://api.example.com/v1"}
  legs:
  - {name: a, provider: primary, model: m1, contextWindow: 128000}
`

const goodRun = `
apiVersion: agents.belay.dev/v1alpha1
kind: AgentRun
metadata: {name: r}
spec:
  ladderRef: {name: demo}
  task: say hello
`

func load(t *testing.T, text string) (Set, error) {
	t.Helper()
	return Load([]string{"-"}, strings.NewReader(text))
}

func TestGoodFilesAreReadIntoTheirTypes(t *testing.T) {
	set, err := load(t, "# a comment only\n---"+goodLadder+"---"+goodRun+`---
apiVersion: v1
kind: Secret
metadata: {name: keys, namespace: other}
stringData: {k: v}
data: {l: dw==}
`)
	if err != nil {
		t.Fatal(err)
	}
	if len(set.Runs) != 1 || set.Runs[0].Spec.Task != "say hello" || set.Runs[0].Namespace != "default" {
		t.Errorf("runs = %+v", set.Runs)
	}
	if len(set.Ladders) != 1 || set.Ladders[0].Spec.Legs[0].Model != "m1" {
		t.Errorf("ladders = %+v", set.Ladders)
	}
	if len(set.Secrets) != 1 || string(set.Secrets[0].Data["k"]) != "v" || string(set.Secrets[0].Data["l"]) != "w" || set.Secrets[0].Namespace != "other" {
		t.Errorf("secrets = %+v", set.Secrets)
	}
}

func TestBadFilesAreRefusedWithObjectAndField(t *testing.T) {
	replace := func(s, old, new string) string { return strings.Replace(s, old, new, 1) }
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"a leg with an unknown provider": {
			replace(goodLadder, "provider: primary, model", "provider: nowhere, model"),
			[]string{"document 1", "RouteLadder default/demo", "spec.legs", "spec.providers"}},
		"a duplicate leg": {
			goodLadder + "  - {name: a, provider: primary, model: m2, contextWindow: 128000}\n",
			[]string{"RouteLadder default/demo", "spec.legs", "names of legs must be unique"}},
		"a bad URL": {
			replace(goodLadder, "https://api.example.com/v1", "api.example.com"),
			[]string{"RouteLadder default/demo", "baseURL"}},
		"plain http": {
			replace(goodLadder, "https://api.example.com/v1", "http://api.example.com/v1"),
			[]string{"RouteLadder default/demo", "baseURL", "insecure"}},
		"an empty task": {
			replace(goodRun, "task: say hello", `task: ""`),
			[]string{"AgentRun default/r", "task"}},
		"no task": {
			replace(goodRun, "  task: say hello\n", ""),
			[]string{"AgentRun default/r", "task"}},
		"an unknown field": {
			replace(goodRun, "task:", "tasc: x\n  task:"),
			[]string{"AgentRun default/r", "spec.tasc", "unknown field"}},
		"a name of 60 characters": {
			replace(goodRun, "name: r", "name: "+strings.Repeat("n", 60)),
			[]string{"AgentRun default/nnn", "52"}},
		"two objects of one name": {
			goodRun + "---" + goodRun,
			[]string{"document 2", "AgentRun default/r", "document 1 already"}},
		"a kind of nobody": {
			"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n",
			[]string{"Pod default/p", "Secrets and ConfigMaps"}},
		"a duplicate key": {
			"apiVersion: v1\napiVersion: v1\nkind: Secret\n",
			[]string{"document 1", "apiVersion"}},
		"no name": {
			"apiVersion: v1\nkind: Secret\n",
			[]string{"document 1", "metadata.name is required"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, test.text)
			if err == nil {
				t.Fatal("was accepted")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not name %q", err, want)
				}
			}
		})
	}
}

func TestTheErrorOfASecretDoesNotQuoteIt(t *testing.T) {
	_, err := load(t, "apiVersion: v1\nkind: Secret\nmetadata: {name: keys}\ndata: {k: canary-value-not-base64}\n")
	if err == nil {
		t.Fatal("was accepted")
	}
	if strings.Contains(err.Error(), "canary") {
		t.Errorf("error quotes the secret: %v", err)
	}
}

func TestWholeNumbersAreIntegersToTheRules(t *testing.T) {
	for limit, says := range map[string]string{"8192": "", "128000": "", "128001": "maxOutputTokens must not exceed contextWindow"} {
		_, err := load(t, strings.Replace(goodLadder, "contextWindow: 128000", "contextWindow: 128000, maxOutputTokens: "+limit, 1))
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("a cap of %s: %v, want %q", limit, err, says)
		}
	}
}
