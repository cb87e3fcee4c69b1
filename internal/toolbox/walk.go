package toolbox

import (
	"context"
	"errors"
	"io/fs"
	"path"
)

// errEnough ends a walk that has found all it may return.
var errEnough = errors.New("enough found")

// skipped reports whether a directory is not searched: the toolbox's own, and
// version control data, which is of no use as text.
func skipped(dir string) bool {
	switch path.Base(dir) {
	case ".git", ".hg", ".svn":
		return true
	}
	return dir == stateDir || dir == homeDir
}

// walk visits the regular files at and below a path, in lexical order, and
// does not follow symbolic links. Directories that cannot be read are left out.
func (f *files) walk(ctx context.Context, start string, visit func(name string, entry fs.DirEntry) error) error {
	if _, err := f.root.Stat(start); err != nil {
		return err
	}
	err := fs.WalkDir(f.root.FS(), start, func(name string, entry fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			if entry != nil && entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if entry.IsDir() {
			if name != start && skipped(name) {
				return fs.SkipDir
			}
			return nil
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		return visit(name, entry)
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}
