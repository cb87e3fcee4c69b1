package volume

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

func (p payload) digest() [32]byte {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(p)) {
		f := p[name]
		fmt.Fprintf(h, "%q %o %d %d ", name, f.mode, f.uid, len(f.data))
		h.Write(f.data)
	}
	return [32]byte(h.Sum(nil))
}

const (
	dataLink = "..data"
	staging  = "..data_tmp"
)

// writeAtomically replaces all files of dir at once, as the kubelet does: the
// files are in a new hidden directory, the visible names are links through
// ..data, and one rename switches ..data over. prepare sees the new directory
// before that.
func writeAtomically(dir string, files payload, prepare func(string) error) error {
	if err := makeDir(dir, 0o755); err != nil {
		return err
	}
	staged, err := os.MkdirTemp(dir, "..stage-")
	if err != nil {
		return fmt.Errorf("make a directory for new contents: %w", err)
	}
	if err := fillDir(dir, staged, files, prepare); err != nil {
		return errors.Join(err, os.RemoveAll(staged))
	}
	old, _ := os.Readlink(filepath.Join(dir, dataLink))
	if err := os.Symlink(filepath.Base(staged), filepath.Join(dir, staging)); err != nil {
		return fmt.Errorf("link the new contents: %w", err)
	}
	if err := os.Rename(filepath.Join(dir, staging), filepath.Join(dir, dataLink)); err != nil {
		return fmt.Errorf("switch to the new contents: %w", err)
	}
	if err := linkNames(dir, files); err != nil {
		return err
	}
	if old != "" && old != filepath.Base(staged) {
		if err := os.RemoveAll(filepath.Join(dir, filepath.Base(old))); err != nil {
			return fmt.Errorf("remove the old contents: %w", err)
		}
	}
	return nil
}

func fillDir(dir, staged string, files payload, prepare func(string) error) error {
	if err := os.Chmod(staged, 0o755); err != nil {
		return err
	}
	for name, f := range files {
		if !filepath.IsLocal(name) || strings.HasPrefix(name, "..") {
			return fmt.Errorf("file name %q leaves the volume", name)
		}
		at := filepath.Join(staged, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return fmt.Errorf("make the directory of %s: %w", name, err)
		}
		if err := os.WriteFile(at, f.data, 0o600); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		if err := os.Chmod(at, f.mode); err != nil {
			return fmt.Errorf("set the mode of %s: %w", name, err)
		}
		if f.uid >= 0 && os.Geteuid() == 0 {
			if err := os.Chown(at, f.uid, -1); err != nil {
				return fmt.Errorf("set the owner of %s: %w", name, err)
			}
		}
	}
	return prepare(staged)
}

// linkNames makes the visible names and removes those without a file.
func linkNames(dir string, files payload) error {
	want := map[string]bool{}
	for name := range files {
		first, _, _ := strings.Cut(name, "/")
		want[first] = true
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read the volume: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..") {
			continue
		}
		if !want[e.Name()] {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return fmt.Errorf("remove a name: %w", err)
			}
		}
		delete(want, e.Name())
	}
	for name := range want {
		if err := os.Symlink(filepath.Join(dataLink, name), filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("link a name: %w", err)
		}
	}
	return nil
}

// makeDir makes dir with exactly mode if it is missing.
func makeDir(dir string, mode os.FileMode) error {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("make the volume's parent: %w", err)
	}
	if err := os.Mkdir(dir, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make the volume: %w", err)
	}
	if err := os.Chmod(dir, mode); err != nil {
		return fmt.Errorf("set the volume's mode: %w", err)
	}
	return nil
}

// SubPath returns the directory or file below a volume that a container mounts,
// and makes a missing directory with the volume's own mode. Links are refused: a
// container could have planted them.
func SubPath(volume, sub string) (string, error) {
	if !filepath.IsLocal(sub) {
		return "", fmt.Errorf("subPath %q leaves the volume", sub)
	}
	top, err := os.Stat(volume)
	if err != nil {
		return "", fmt.Errorf("subPath %q: %w", sub, err)
	}
	at := volume
	for _, part := range strings.Split(filepath.Clean(sub), string(filepath.Separator)) {
		at = filepath.Join(at, part)
		info, err := os.Lstat(at)
		switch {
		case err == nil && info.Mode()&fs.ModeSymlink != 0:
			// The links of secrets and config maps are the node's own.
			if to, err := os.Readlink(at); err != nil || filepath.Dir(to) != dataLink {
				return "", fmt.Errorf("subPath %q passes a symbolic link", sub)
			}
			if at, err = filepath.EvalSymlinks(at); err != nil {
				return "", fmt.Errorf("subPath %q: %w", sub, err)
			}
		case err == nil:
		case errors.Is(err, fs.ErrNotExist):
			if err := os.Mkdir(at, top.Mode().Perm()); err != nil && !errors.Is(err, fs.ErrExist) {
				return "", fmt.Errorf("make subPath %q: %w", sub, err)
			}
			// The umask and the set-group-id bit.
			if err := os.Chmod(at, top.Mode()&(fs.ModePerm|fs.ModeSetgid)); err != nil {
				return "", fmt.Errorf("set the mode of subPath %q: %w", sub, err)
			}
		default:
			return "", fmt.Errorf("subPath %q: %w", sub, err)
		}
	}
	return at, nil
}

func fsGroup(sc *corev1.PodSecurityContext) int {
	if sc == nil || sc.FSGroup == nil {
		return -1
	}
	return int(*sc.FSGroup)
}

// The bits that fsGroup adds.
const (
	groupWrites = 0o660
	groupReads  = 0o440
	dirBits     = fs.ModeSetgid | 0o110
)

// own gives a volume to the pod's fsGroup: the group owns every file and may
// read it, and write it unless readOnly. With OnRootMismatch nothing is done
// where the top directory is right already. Without root there is one user, who
// owns everything.
func own(dir string, sc *corev1.PodSecurityContext, readOnly bool) error {
	group := fsGroup(sc)
	if group < 0 || os.Geteuid() != 0 {
		return nil
	}
	bits := fs.FileMode(groupWrites)
	if readOnly {
		bits = groupReads
	}
	if sc.FSGroupChangePolicy != nil && *sc.FSGroupChangePolicy == corev1.FSGroupChangeOnRootMismatch && !readOnly {
		if owned(dir, group, bits|dirBits) {
			return nil
		}
	}
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err == nil {
			err = ownFile(p, e, group, bits)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // another pod that uses the volume removed it
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("give the volume to group %d: %w", group, err)
	}
	return nil
}

func ownFile(p string, e fs.DirEntry, group int, bits fs.FileMode) error {
	info, err := e.Info()
	if err != nil {
		return err
	}
	if err := os.Lchown(p, -1, group); err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return nil
	}
	mode := info.Mode() | bits
	if e.IsDir() {
		mode |= dirBits
	}
	return os.Chmod(p, mode)
}
