package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"belay.dev/belay/internal/contract"
	"belay.dev/belay/internal/runtime/ladder"
	"belay.dev/belay/internal/runtime/redact"
)

// credentials reads the mounted secrets. A key that does not exist is no error: it skips the legs that need it. Every
// value that it has ever read is known to it, so that it can be kept out of what a run writes down.
type credentials struct {
	dir string

	mu       sync.Mutex
	known    map[string]bool
	redactor *redact.Redactor
}

// newCredentials reads all secrets once.
func newCredentials(dir string) (*credentials, error) {
	c := &credentials{dir: dir, known: map[string]bool{}}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if filepath.Base(path) == contract.AllowedHostsKey {
			return nil // no secret
		}
		info, err := os.Stat(path) // follows the links by which the kubelet swaps versions
		if err != nil || info.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		c.learn(strings.TrimSpace(string(data)))
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the mounted credentials: %w", err)
	}
	return c, nil
}

// AllowedHosts returns the hosts that a Secret may be sent to, as its owner wrote them.
func (c *credentials) AllowedHosts(secret string) string {
	data, err := os.ReadFile(filepath.Join(c.dir, filepath.Base(secret), contract.AllowedHostsKey))
	if err != nil {
		return "" // the key is optional, and so is its mount
	}
	return string(data)
}

// Credential returns the value of a key as it is mounted now.
func (c *credentials) Credential(secret, key string) (string, ladder.CredentialState) {
	data, err := os.ReadFile(filepath.Join(c.dir, filepath.Base(secret), filepath.Base(key)))
	value := strings.TrimSpace(string(data))
	if err != nil || value == "" {
		return "", ladder.CredentialMissing
	}
	c.learn(value)
	return value, ladder.CredentialReady
}

func (c *credentials) learn(value string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known[value] {
		c.known[value] = true
		c.redactor = redact.New(slices.Sorted(maps.Keys(c.known))...)
	}
}

func (c *credentials) current() *redact.Redactor {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.redactor
}

// redact returns a text without the values.
func (c *credentials) redact(text string) string { return c.current().String(text) }

// redactBytes returns bytes without the values.
func (c *credentials) redactBytes(b []byte) []byte { return c.current().Bytes(b) }

// texts reads the task and the system prompt that came from ConfigMaps.
type texts struct {
	dir string
	// file is task or system, by which reference is asked for.
	file map[[2]string]string
}

// ConfigMapKey returns the mounted text behind a reference.
func (t texts) ConfigMapKey(name, key string) (string, error) {
	data, err := os.ReadFile(filepath.Join(t.dir, t.file[[2]string{name, key}]))
	if err != nil {
		return "", fmt.Errorf("read the mounted text: %w", err)
	}
	return string(data), nil
}
