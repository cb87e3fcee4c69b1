package v1alpha1_test

import (
	"strings"
	"testing"
)

const ladderManifest = `
apiVersion: agents.belay.dev/v1alpha1
kind: RouteLadder
metadata: {name: demo}
spec:
  providers:
  - {name: primary, dialect: OpenAIChat, baseURL: "https://primary.example.com/v1", credential: {secretRef: {name: keys, key: primary}}}
  - {name: backup, dialect: AnthropicMessages, baseURL: "https://backup.example.com"}
  legs:
  - {name: a, provider: primary, model: large-1, contextWindow: 128000}
  - {name: b, provider: backup, model: small-1, contextWindow: 200000, parameters: {temperature: 0.5, nested: {x: [1]}}}
`

func TestALadderIsValidated(t *testing.T) {
	ladders := loadCRD(t, "routeladders")
	tests := []struct {
		name  string
		path  string
		value any
		want  string
	}{
		{"the base manifest is accepted", "spec.retry", nil, ""},
		{"a name with dots is accepted", "metadata.name", "eu.demo", ""},
		{"empty policies are accepted", "spec.retry", fields(), ""},
		{"a leg of an unknown provider", "spec.legs.1.provider", "other", "legs: every leg must name one of spec.providers as its provider"},
		{"two legs of one name", "spec.legs.1.name", "a", "legs: the names of legs must be unique"},
		{"two providers of one name", "spec.providers.1.name", "primary", "spec.providers[1]: Duplicate value"},
		{"no leg", "spec.legs", list(), "spec.legs"},
		{"no provider", "spec.providers", list(), "spec.providers"},
		{"an unknown dialect", "spec.providers.0.dialect", "Gemini", "spec.providers[0].dialect: Unsupported value"},
		{"a base URL without scheme", "spec.providers.0.baseURL", "primary.example.com/v1", "baseURL must be an http or https URL with a host"},
		{"a base URL of another scheme", "spec.providers.0.baseURL", "ftp://primary.example.com/v1", "baseURL must be an http or https URL"},
		{"a base URL with a user", "spec.providers.0.baseURL", "https://me:pw@primary.example.com/v1", "baseURL must be an http or https URL"},
		{"a base URL with a query", "spec.providers.0.baseURL", "https://primary.example.com/v1?x=1", "baseURL must be an http or https URL"},
		{"a base URL that ends in a slash", "spec.providers.0.baseURL", "https://primary.example.com/v1/", "a slash at its end"},
		{"a base URL with a port", "spec.providers.0.baseURL", "https://primary.example.com:8443/v1", ""},
		{"plain http without leave", "spec.providers.0.baseURL", "http://primary.example.com/v1", "spec.providers[0].baseURL: Invalid value: baseURL: plain http needs insecure"},
		{"a doubled /v1 for Anthropic", "spec.providers.1.baseURL", "https://backup.example.com/v1", "remove the /v1 at its end"},
		{"base64 as CA bundle", "spec.providers.0.caBundle", "LS0tLS1CRUdJTg==", "caBundle must be PEM text"},
		{"PEM as CA bundle", "spec.providers.0.caBundle", "-----BEGIN CERTIFICATE-----\nMII=\n-----END CERTIFICATE-----\n", ""},
		{"a header", "spec.providers.0.headers", list(fields("name", "X-Team", "value", "core")), ""},
		{"Authorization as a header", "spec.providers.0.headers", list(fields("name", "authorization", "value", "x")), "Authorization, Proxy-Authorization, Host"},
		{"a Content header", "spec.providers.0.headers", list(fields("name", "Content-Type", "value", "x")), "cannot be set"},
		{"a header with a line break", "spec.providers.0.headers", list(fields("name", "X-A", "value", "x\r\nHost: y")), "spec.providers[0].headers[0].value"},
		{"a secret without key", "spec.providers.0.credential.secretRef.key", nil, "spec.providers[0].credential.secretRef.key: Required value"},
		{"no context window", "spec.legs.0.contextWindow", nil, "spec.legs[0].contextWindow: Required value"},
		{"an output cap over the window", "spec.legs.0.maxOutputTokens", int64(128001), "spec.legs[0].maxOutputTokens: Invalid value: maxOutputTokens must not exceed contextWindow"},
		{"a price without output", "spec.legs.0.price", fields("inputMicroUSDPerMTok", int64(1)), "spec.legs[0].price.outputMicroUSDPerMTok: Required value"},
		{"a free leg", "spec.legs.0.price", fields("inputMicroUSDPerMTok", int64(0), "outputMicroUSDPerMTok", int64(0)), ""},
		{"a negative price", "spec.legs.0.price", fields("inputMicroUSDPerMTok", int64(-1), "outputMicroUSDPerMTok", int64(0)), "inputMicroUSDPerMTok"},
		{"an unknown class", "spec.legs.0.securityClass", "Secret", "spec.legs[0].securityClass: Unsupported value"},
		{"a disabled timer", "spec.legs.0.timeouts", fields("progressSeconds", int64(0)), ""},
		{"no retries", "spec.retry", fields("maxRetries", int64(0)), ""},
		{"a misspelt field", "spec.legs.0.contextwindow", int64(128000), "unknown field"},
		{"a backoff factor of 0", "spec.retry", fields("backoffFactor", int64(0)), "spec.retry.backoffFactor"},
		{"breaker that never opens", "spec.breaker", fields("baseCooldownSeconds", int64(0), "informed", "Trip"), ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			wantErrors(t, ladders.validate(t.Context(), t, set(t, ladderManifest, test.path, test.value), nil), test.want)
		})
	}
}

func TestPlainHTTPGoesOnlyWhereInsecureAllows(t *testing.T) {
	ladders := loadCRD(t, "routeladders")
	const refused = "Loopback allows plain http to localhost"
	tests := []struct {
		insecure, url, want string
	}{
		{"Loopback", "http://127.0.0.1:18080/primary/v1", ""},
		{"Loopback", "http://localhost:11434/v1", ""},
		{"Loopback", "http://[::1]:8080/v1", ""},
		{"Loopback", "http://vllm.models.svc/v1", refused},
		{"Loopback", "http://127.0.0.1.nip.io/v1", refused},
		{"Loopback", "http://127.evil.example.com/v1", refused},
		{"Loopback", "http://example.com/v1", refused},
		{"Loopback", "https://example.com/v1", ""},
		{"Cluster", "http://vllm/v1", ""},
		{"Cluster", "http://vllm.models.svc/v1", ""},
		{"Cluster", "http://vllm.models.svc.cluster.local:8000/v1", ""},
		{"Cluster", "http://127.0.0.1/v1", ""},
		{"Cluster", "http://example.com/v1", refused},
		{"Cluster", "http://10.0.0.7/v1", refused},
		{"Forbid", "http://127.0.0.1/v1", "plain http needs insecure"},
		{"Forbid", "https://example.com/v1", ""},
	}
	for _, test := range tests {
		t.Run(test.insecure+" "+test.url, func(t *testing.T) {
			manifest := strings.Replace(ladderManifest, `baseURL: "https://primary.example.com/v1"`, `insecure: `+test.insecure, 1)
			wantErrors(t, ladders.validate(t.Context(), t, set(t, manifest, "spec.providers.0.baseURL", test.url), nil), test.want)
		})
	}
}

func TestALadderMayBeChangedAtAnyTime(t *testing.T) {
	ladders := loadCRD(t, "routeladders")
	old := object(t, ladderManifest)
	wantErrors(t, ladders.validate(t.Context(), t, set(t, ladderManifest, "spec.legs.0.model", "large-2"), old), "")
}

const healthManifest = `
apiVersion: agents.belay.dev/v1alpha1
kind: ProviderHealth
metadata: {name: primary-example-com-large-1-0123456789}
spec:
  route: {host: primary.example.com, baseURL: "https://primary.example.com/v1", dialect: OpenAIChat, model: large-1,
    secretRef: {name: keys, key: primary}}
`

func TestAHealthObjectKeepsItsRouteAndTakesOverrides(t *testing.T) {
	healths := loadCRD(t, "providerhealths")
	old := object(t, healthManifest)
	wantErrors(t, healths.validate(t.Context(), t, old, nil), "")
	wantErrors(t, healths.validate(t.Context(), t, set(t, healthManifest, "spec.route.model", "large-2"), old), "spec.route: Invalid value: route is immutable")
	wantErrors(t, healths.validate(t.Context(), t, set(t, healthManifest, "spec.override", fields("state", "ForcedOpen", "reason", "maintenance")), old), "")
	wantErrors(t, healths.validate(t.Context(), t, set(t, healthManifest, "spec.override", fields("state", "Off")), old), "spec.override.state: Unsupported value")
	wantErrors(t, healths.validate(t.Context(), t, set(t, healthManifest, "spec.override", fields("reason", "x")), old), "spec.override.state: Required value")
}
