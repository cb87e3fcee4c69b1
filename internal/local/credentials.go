package local

import (
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"belay.dev/belay/internal/runtime/ladder"
)

// secrets are the credentials of a run without a cluster: the Secret documents of its files, and what the command line
// took from the environment, which wins.
type secrets struct {
	namespace string
	files     []corev1.Secret
	env       map[string]string
}

// parseCredentials reads arguments of the form name/key=ENVVAR.
func parseCredentials(args []string) (map[string]string, error) {
	out := map[string]string{}
	for _, arg := range args {
		ref, variable, ok := strings.Cut(arg, "=")
		name, key, slash := strings.Cut(ref, "/")
		if !ok || !slash || name == "" || key == "" || variable == "" {
			return nil, fmt.Errorf("--credential %q: want name/key=ENVVAR, as in openai/api-key=OPENAI_API_KEY", arg)
		}
		value, set := os.LookupEnv(variable)
		if !set || value == "" {
			return nil, fmt.Errorf("--credential %q: the environment variable %s is not set", arg, variable)
		}
		out[ref] = value
	}
	return out, nil
}

// Credential returns the value of a key, or says that it is missing.
func (s secrets) Credential(secret, key string) (string, ladder.CredentialState) {
	if v, ok := s.env[secret+"/"+key]; ok {
		return v, ladder.CredentialReady
	}
	for _, f := range s.files {
		if f.Namespace != s.namespace || f.Name != secret {
			continue
		}
		if v := strings.TrimSpace(string(f.Data[key])); v != "" {
			return v, ladder.CredentialReady
		}
	}
	return "", ladder.CredentialMissing
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
		for _, v := range f.Data {
			out = append(out, strings.TrimSpace(string(v)))
		}
	}
	return out
}
