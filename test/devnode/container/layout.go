package container

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// An action is one step of building a root file system.
type action struct {
	// Kind is "dir", "file", "link" or "bind".
	Kind string
	// Path is where, inside the container.
	Path string
	// Source is what to bind, on the host, or the text of a link.
	Source string `json:",omitempty"`
	// ReadOnly applies to "bind".
	ReadOnly bool `json:",omitempty"`
}

// A tree answers questions about the host's files while a layout is planned.
type tree interface {
	// Lstat does not follow symbolic links.
	Lstat(path string) (fs.FileInfo, error)
	ReadDir(path string) ([]fs.DirEntry, error)
	Readlink(path string) (string, error)
}

// layout plans a root file system: the image's files, read-only, then the
// mounts. A mount point that the image lacks cannot be made in the image's own
// directory, which belongs to the host; such a directory is laid down entry by
// entry in a new one instead.
func layout(host tree, files []Bind, mounts []Mount) ([]action, error) {
	l := &planner{host: host, binds: map[string]Bind{}, dirs: map[string]bool{"/": true}}
	for _, b := range files {
		if err := l.add(b); err != nil {
			return nil, err
		}
	}
	ordered := slices.Clone(mounts)
	slices.SortStableFunc(ordered, func(a, b Mount) int {
		return strings.Compare(path.Clean(a.Target), path.Clean(b.Target))
	})
	var over []action
	made := map[string]Mount{}
	for _, m := range ordered {
		target := path.Clean(m.Target)
		if target == "/" || !path.IsAbs(target) {
			return nil, fmt.Errorf("mount path %q must be absolute and not the root", m.Target)
		}
		if _, twice := made[target]; twice {
			return nil, fmt.Errorf("two mounts at %s", target)
		}
		info, err := host.Lstat(m.Source)
		if err != nil {
			return nil, fmt.Errorf("mount at %s: %w", target, err)
		}
		if parent, ok := enclosing(made, target); ok {
			// The mount point has to exist inside the other mount.
			rel := strings.TrimPrefix(target, parent.Target)
			if err := inMount(host, parent, rel, info.IsDir()); err != nil {
				return nil, err
			}
			if !exists(host, parent.Source+rel) {
				over = append(over, action{Kind: kindOf(info.IsDir()), Path: target})
			}
		} else if err := l.mountPoint(target, info.IsDir()); err != nil {
			return nil, err
		}
		m.Target = target
		made[target] = m
		over = append(over, action{Kind: "bind", Path: target, Source: m.Source, ReadOnly: m.ReadOnly})
	}
	return append(l.actions(), over...), nil
}

func kindOf(dir bool) string {
	if dir {
		return "dir"
	}
	return "file"
}

func exists(host tree, p string) bool {
	_, err := host.Lstat(p)
	return err == nil
}

// enclosing finds the innermost mount that holds target.
func enclosing(made map[string]Mount, target string) (Mount, bool) {
	for dir := path.Dir(target); dir != "/"; dir = path.Dir(dir) {
		if m, ok := made[dir]; ok {
			return m, true
		}
	}
	return Mount{}, false
}

// inMount refuses a mount point that would have to be made in a read-only mount.
func inMount(host tree, parent Mount, rel string, dir bool) error {
	info, err := host.Lstat(parent.Source + rel)
	switch {
	case err != nil && parent.ReadOnly:
		return fmt.Errorf("mount path %s%s does not exist in the read-only mount at %s", parent.Target, rel, parent.Target)
	case err == nil && info.IsDir() != dir:
		return fmt.Errorf("mount path %s%s: one side is a directory, the other is not", parent.Target, rel)
	}
	return nil
}

// ownDirs are made for each container, whatever its image has there.
var ownDirs = []string{"dev", "proc", "sys", "tmp"}

type planner struct {
	host  tree
	binds map[string]Bind
	dirs  map[string]bool
	files []string
}

func (l *planner) add(b Bind) error {
	b.Target = path.Clean(b.Target)
	if b.Target == "/" {
		return l.split(b)
	}
	for dir := path.Dir(b.Target); dir != "/"; dir = path.Dir(dir) {
		if outer, ok := l.binds[dir]; ok {
			if b.Link == "" && path.Join(outer.Source, strings.TrimPrefix(b.Target, dir)) == b.Source {
				return nil // the outer directory shows it already
			}
			return fmt.Errorf("image file %s lies in %s, which is another part of the image", b.Target, dir)
		}
	}
	l.parents(b.Target)
	if b.Link == "" {
		info, err := l.host.Lstat(b.Source)
		if err != nil {
			return fmt.Errorf("image file %s: %w", b.Target, err)
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			if b.Link, err = l.host.Readlink(b.Source); err != nil {
				return fmt.Errorf("image file %s: %w", b.Target, err)
			}
		} else if !info.IsDir() && !info.Mode().IsRegular() {
			return nil // sockets, pipes and devices are no part of an image
		}
	}
	l.binds[b.Target] = b
	return nil
}

// split replaces the bind of a directory by a new directory with binds of its
// entries.
func (l *planner) split(b Bind) error {
	entries, err := l.host.ReadDir(b.Source)
	if err != nil {
		return fmt.Errorf("image directory %s: %w", b.Target, err)
	}
	delete(l.binds, b.Target)
	l.dirs[b.Target] = true
	for _, e := range entries {
		if b.Target == "/" && slices.Contains(ownDirs, e.Name()) {
			continue
		}
		child := Bind{Source: path.Join(b.Source, e.Name()), Target: path.Join(b.Target, e.Name())}
		if err := l.add(child); err != nil {
			return err
		}
	}
	return nil
}

func (l *planner) parents(target string) {
	for dir := path.Dir(target); !l.dirs[dir]; dir = path.Dir(dir) {
		l.dirs[dir] = true
	}
}

// mountPoint makes sure that something can be mounted at target.
func (l *planner) mountPoint(target string, dir bool) error {
	parts := strings.Split(strings.TrimPrefix(target, "/"), "/")
	at := "/"
	for i, part := range parts {
		at = path.Join(at, part)
		b, bound := l.binds[at]
		if !bound {
			continue
		}
		if b.Link != "" {
			return fmt.Errorf("mount path %s: %s is a symbolic link in the image", target, at)
		}
		info, err := l.host.Lstat(b.Source)
		if err != nil {
			return fmt.Errorf("mount path %s: %w", target, err)
		}
		last := i == len(parts)-1
		switch {
		case last && info.IsDir() == dir:
			return nil
		case last || !info.IsDir():
			return fmt.Errorf("mount path %s: %s is %s in the image", target, at, describe(info))
		}
		rest := path.Join(parts[i+1:]...)
		if found, err := l.host.Lstat(path.Join(b.Source, rest)); err == nil && found.IsDir() == dir && l.plain(b.Source, parts[i+1:]) {
			return nil
		}
		if err := l.split(b); err != nil {
			return err
		}
	}
	if l.dirs[target] {
		if !dir {
			return fmt.Errorf("mount path %s: the image has a directory there, the volume has a file", target)
		}
		return nil
	}
	l.parents(target)
	if dir {
		l.dirs[target] = true
	} else {
		l.files = append(l.files, target)
	}
	return nil
}

// plain says that no part of the way below root is a symbolic link.
func (l *planner) plain(root string, parts []string) bool {
	at := root
	for _, part := range parts {
		at = path.Join(at, part)
		info, err := l.host.Lstat(at)
		if err != nil || info.Mode()&fs.ModeSymlink != 0 {
			return false
		}
	}
	return true
}

func describe(info fs.FileInfo) string {
	if info.IsDir() {
		return "a directory"
	}
	return "a file"
}

func (l *planner) actions() []action {
	var out []action
	for dir := range l.dirs {
		if dir != "/" {
			out = append(out, action{Kind: "dir", Path: dir})
		}
	}
	for _, file := range l.files {
		out = append(out, action{Kind: "file", Path: file})
	}
	for target, b := range l.binds {
		if b.Link != "" {
			out = append(out, action{Kind: "link", Path: target, Source: b.Link})
			continue
		}
		// The mount point first, then the mount.
		info, err := l.host.Lstat(b.Source)
		out = append(out,
			action{Kind: kindOf(err != nil || info.IsDir()), Path: target},
			action{Kind: "bind", Path: target, Source: b.Source, ReadOnly: true})
	}
	slices.SortStableFunc(out, func(a, b action) int { return strings.Compare(a.Path, b.Path) })
	return out
}
