package toolbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"belay.dev/belay/internal/runtime/tools"
)

// files gives the file tools their view of the workspace: nothing outside of
// it can be reached, whatever links say.
type files struct {
	root *os.Root
	base string // the absolute path of root
}

// clean turns a path as a model writes it into one relative to the workspace.
// Absolute paths into the workspace are accepted.
func (f *files) clean(name string) (string, error) {
	if strings.Contains(name, "\x00") {
		return "", invalidPath(name, "a path cannot contain a NUL character")
	}
	if filepath.IsAbs(name) {
		relative, err := filepath.Rel(f.base, filepath.Clean(name))
		if err != nil {
			return "", invalidPath(name, "it is outside of the workspace "+f.base)
		}
		name = relative
	}
	cleaned := filepath.Clean(name)
	if !filepath.IsLocal(cleaned) {
		return "", invalidPath(name, "it is outside of the workspace "+f.base)
	}
	return cleaned, nil
}

// cleanWritable is clean for paths that are to be changed.
func (f *files) cleanWritable(name string) (string, error) {
	cleaned, err := f.clean(name)
	if err != nil {
		return "", err
	}
	if cleaned == stateDir || strings.HasPrefix(cleaned, stateDir+"/") {
		return "", invalidPath(name, stateDir+" belongs to the toolbox and can only be read")
	}
	return cleaned, nil
}

// maxLinks is how many symbolic links a path may go through (MAXSYMLINKS).
const maxLinks = 40

// resolve follows the symbolic links at the end of a path, so that writing
// replaces the file that a link names and not the link.
func (f *files) resolve(name string) (string, error) {
	for range maxLinks {
		info, err := f.root.Lstat(name)
		if err != nil || info.Mode().Type() != fs.ModeSymlink {
			return name, err
		}
		target, err := f.root.Readlink(name)
		if err != nil {
			return name, err
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(f.base, path.Dir(name), target)
		}
		if name, err = f.cleanWritable(target); err != nil {
			return "", err
		}
	}
	return "", &fs.PathError{Op: "open", Path: name, Err: syscall.ELOOP}
}

// openRegular opens a file for reading and refuses everything but regular
// files. It does not block on a FIFO.
func (f *files) openRegular(name string) (*os.File, fs.FileInfo, error) {
	file, err := f.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &pathError{path: name, reason: "it is " + kindOf(info.Mode()) + ", not a regular file"}
	}
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return file, info, nil
}

func kindOf(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeNamedPipe != 0:
		return "a FIFO"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	default:
		return "a special file"
	}
}

// pathError is a path that a tool does not work on.
type pathError struct {
	path, reason string
	invalid      bool
}

func (e *pathError) Error() string { return fmt.Sprintf("%q: %s", e.path, e.reason) }

func invalidPath(name, reason string) error {
	return &pathError{path: name, reason: reason, invalid: true}
}

// escapes is the text of the error with which os.Root refuses a path that
// leads out of it; the package exports no value for it.
const escapes = "path escapes from parent"

// fileFailure is the outcome of a file tool that failed with err.
func fileFailure(ctx context.Context, err error) tools.Outcome {
	var invalid *pathError
	switch {
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), errTimeLimit):
		return tools.Outcome{Status: tools.Timeout, ErrorKind: tools.KindTimeout, Text: "The call was stopped at its time limit."}
	case ctx.Err() != nil:
		return tools.Outcome{Status: tools.Cancelled, ErrorKind: tools.KindCancelled,
			Text: tools.SafeText(fmt.Sprintf("The call was stopped: %v.", context.Cause(ctx)))}
	case errors.As(err, &invalid) && invalid.invalid:
		return tools.Failure(tools.KindInvalidArguments, err.Error())
	case errors.Is(err, fs.ErrNotExist):
		return tools.Failure(tools.KindNotFound, err.Error())
	case strings.Contains(err.Error(), escapes):
		return tools.Failure(tools.KindInvalidArguments, err.Error()+": it leads out of the workspace")
	default:
		return tools.Failure(tools.KindExecutionFailed, err.Error())
	}
}
