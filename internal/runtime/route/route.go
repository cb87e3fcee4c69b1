// Package route names what health is kept for: one endpoint, spoken to in one dialect, asked for one model, with one
// credential. Two legs of different ladders that agree in these share a route, and so share what is known about it.
//
// The package is a pure leaf: it imports the standard library only.
package route

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"strings"
)

// Dialect is the wire format of a provider's API.
type Dialect string

const (
	// OpenAIChat is the OpenAI Chat Completions API and its many compatible servers.
	OpenAIChat Dialect = "OpenAIChat"
	// AnthropicMessages is the Anthropic Messages API.
	AnthropicMessages Dialect = "AnthropicMessages"
)

// Name is the name of a route: a readable slug and a hash. It is a DNS label, and the name of the ProviderHealth object.
type Name string

// Route is the identity of a leg for health.
type Route struct {
	// BaseURL is the endpoint, as the ladder declares it.
	BaseURL string
	Dialect Dialect
	Model   string
	// SecretName and SecretKey name the credential; its value is no part of the identity, so a rotated key keeps the route.
	SecretName string
	SecretKey  string
}

// maxSlug keeps the readable part short enough that every derived object name is valid.
const maxSlug = 40

// Name returns `<host>-<model>` as a slug of at most 40 characters, a dash, and ten hex digits of the SHA-256 over base
// URL, dialect, model, secret name and key. The parts are separated by NUL in the hash, which none of them can contain.
func (r Route) Name() Name {
	sum := sha256.Sum256([]byte(strings.Join([]string{r.BaseURL, string(r.Dialect), r.Model, r.SecretName, r.SecretKey}, "\x00")))
	return Name(slug(r.Host()+"-"+r.Model) + "-" + hex.EncodeToString(sum[:5]))
}

// Credential names the secret behind the route; quota and billing failures are shared by all routes with the same one.
func (r Route) Credential() string { return r.SecretName + "/" + r.SecretKey }

// Host returns the endpoint's host name without its port, or "unknown" when the base URL does not parse.
func (r Route) Host() string {
	u, err := url.Parse(r.BaseURL)
	if err != nil || u.Hostname() == "" {
		return "unknown"
	}
	return u.Hostname()
}

func slug(s string) string {
	var b strings.Builder
	dash := false
	for _, c := range strings.ToLower(s) {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
			if dash && b.Len() > 0 {
				b.WriteByte('-')
			}
			dash = false
			b.WriteRune(c)
		default:
			dash = true
		}
	}
	out := b.String()
	if len(out) > maxSlug {
		out = out[:maxSlug]
	}
	out = strings.TrimRight(out, "-")
	if out == "" {
		out = "route"
	}
	return out
}
