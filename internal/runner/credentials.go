package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"belay.dev/belay/internal/runtime/ladder"
)

// credentials reads the mounted secrets. A key that does not exist is no error: it skips the legs that need it.
type credentials struct{ dir string }

// Credential returns the value of a key as it is mounted now.
func (c credentials) Credential(secret, key string) (string, ladder.CredentialState) {
	data, err := os.ReadFile(filepath.Join(c.dir, filepath.Base(secret), filepath.Base(key)))
	value := strings.TrimSpace(string(data))
	if err != nil || value == "" {
		return "", ladder.CredentialMissing
	}
	return value, ladder.CredentialReady
}

// values are all mounted secrets, for redaction.
func (c credentials) values() ([]string, error) {
	var out []string
	err := filepath.WalkDir(c.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return nil
		}
		info, err := os.Stat(path) // follows the links by which the kubelet swaps versions
		if err != nil || info.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		out = append(out, strings.TrimSpace(string(data)))
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the mounted credentials: %w", err)
	}
	return out, nil
}

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
