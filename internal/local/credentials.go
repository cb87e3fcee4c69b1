package local

import (
	"errors"
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"belay.dev/belay/internal/contract"
	"belay.dev/belay/internal/runtime/ladder"
)

// secrets are the secrets of a run without a cluster: the Secret documents of its files, and what the command line took
// from the environment, which wins.
type secrets struct {
	namespace string
	files     []corev1.Secret
	// env is by <secret>/<key>.
	env map[string]string
}

// parseCredentials reads arguments of the form name/key=ENVVAR.
func parseCredentials(args []string) (map[string]string, error) {
	out := map[string]string{}
	for _, arg := range args {
		ref, variable, ok := strings.Cut(arg, "=")
		name, key, slash := strings.Cut(ref, "/")
		if !ok || !slash || name == "" || key == "" || variable == "" {
			// The argument is not quoted: who mistakes the form may have put a secret there.
			return nil, errors.New("--credential: want name/key=ENVVAR, as in openai/api-key=OPENAI_API_KEY; the value itself is never an argument")
		}
		value := strings.TrimSpace(os.Getenv(variable))
		if value == "" {
			return nil, fmt.Errorf("--credential %s: the environment variable that it names is not set or empty", ref)
		}
		out[ref] = value
	}
	return out, nil
}

// Credential returns the value of a key as it is sent to a provider, or says that it is missing.
func (s secrets) Credential(secret, key string) (string, ladder.CredentialState) {
	if v := strings.TrimSpace(s.value(secret, key)); v != "" {
		return v, ladder.CredentialReady
	}
	return "", ladder.CredentialMissing
}

// AllowedHosts returns the hosts that a Secret document may be sent to, as its owner wrote them.
func (s secrets) AllowedHosts(secret string) string { return s.value(secret, contract.AllowedHostsKey) }

// value is a key of a Secret as it stands, empty if there is none.
func (s secrets) value(secret, key string) string {
	if v, ok := s.env[secret+"/"+key]; ok {
		return v
	}
	return s.all(secret)[key]
}

// all are the keys of a Secret; nil if nobody knows it.
func (s secrets) all(secret string) map[string]string {
	var out map[string]string
	set := func(key, value string) {
		if out == nil {
			out = map[string]string{}
		}
		out[key] = value
	}
	for _, f := range s.files {
		if f.Namespace != s.namespace || f.Name != secret {
			continue
		}
		for k, v := range f.Data {
			set(k, string(v))
		}
	}
	for ref, v := range s.env {
		if name, key, _ := strings.Cut(ref, "/"); name == secret {
			set(key, v)
		}
	}
	return out
}

// values are all that must not appear in a ledger.
func (s secrets) values() []string {
	var out []string
	for _, v := range s.env {
		out = append(out, v)
	}
	for _, f := range s.files {
		if f.Namespace != s.namespace {
			continue
		}
		for k, v := range f.Data {
			if k != contract.AllowedHostsKey {
				out = append(out, strings.TrimSpace(string(v)))
			}
		}
	}
	return out
}

// configMaps are the ConfigMap documents of the run's files.
type configMaps struct {
	namespace string
	files     []corev1.ConfigMap
}

// ConfigMapKey returns a key of a ConfigMap.
func (c configMaps) ConfigMapKey(name, key string) (string, error) {
	data, err := c.all(name)
	if err != nil {
		return "", err
	}
	v, ok := data[key]
	if !ok {
		return "", errors.New("the ConfigMap has no such key")
	}
	return v, nil
}

// all are the keys of a ConfigMap.
func (c configMaps) all(name string) (map[string]string, error) {
	for _, m := range c.files {
		if m.Namespace == c.namespace && m.Name == name {
			return m.Data, nil
		}
	}
	return nil, errors.New("the files have no such ConfigMap; add it with -f")
}
