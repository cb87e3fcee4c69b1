package toolbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Install copies the running program into a directory, as an init container
// does for the workspace that has none. It replaces a copy that is there
// already, and returns the path of the new one.
func Install(dir string) (_ string, err error) {
	source, err := os.Open("/proc/self/exe")
	if err != nil {
		return "", fmt.Errorf("install: own program: %w", err)
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("install: %w", err)
	}
	target, err := os.CreateTemp(dir, ".toolbox-*")
	if err != nil {
		return "", fmt.Errorf("install: %w", err)
	}
	_, err = io.Copy(target, source)
	if err == nil {
		err = target.Chmod(0o755)
	}
	if err == nil {
		err = target.Sync()
	}
	err = errors.Join(err, target.Close())
	path := filepath.Join(dir, "toolbox")
	if err == nil {
		err = os.Rename(target.Name(), path)
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("install: %w", err), os.Remove(target.Name()))
	}
	return path, nil
}
