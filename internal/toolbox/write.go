package toolbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"belay.dev/belay/internal/runtime/tools"
)

type writeArguments struct {
	Path    string `json:"path"`
	Content string `json:"content"`
}

func writeTool(f *files) tool {
	description := "Write a text file of the workspace, replacing what it has. Missing directories are made; an existing file keeps its permissions. " +
		"The file is replaced as a whole or not at all. For small changes to a file that exists, edit is better."
	input := schema(map[string]any{
		"path":    map[string]any{"type": "string", "minLength": 1, "description": "File to write, relative to the workspace."},
		"content": map[string]any{"type": "string", "description": "The whole new content."},
	}, "path", "content")
	return tool{Tool: fileTool("write", description, tools.Supervised, input), run: func(ctx context.Context, call invocation) tools.Outcome {
		var arguments writeArguments
		if err := json.Unmarshal(call.arguments, &arguments); err != nil {
			return tools.Failure(tools.KindInvalidArguments, err.Error())
		}
		name, err := f.cleanWritable(arguments.Path)
		if err != nil {
			return fileFailure(ctx, err)
		}
		created, err := f.replace(name, []byte(arguments.Content))
		if err != nil {
			return fileFailure(ctx, err)
		}
		verb := "replaced"
		if created {
			verb = "created"
		}
		return tools.Outcome{Status: tools.OK, Text: tools.SafeText(fmt.Sprintf("%s %s (%d bytes)", verb, name, len(arguments.Content)))}
	}}
}

// replace gives a file new content so that it has either the old or the new
// one, also after a crash. It reports whether the file is new.
func (f *files) replace(name string, content []byte) (created bool, err error) {
	mode := fs.FileMode(0o666) // less the umask
	name, err = f.resolve(name)
	if name == "" {
		return false, err
	}
	info, err := f.root.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		created = true
		if err := f.root.MkdirAll(path.Dir(name), 0o777); err != nil {
			return false, err
		}
	case err != nil:
		return false, err
	case !info.Mode().IsRegular():
		return false, &pathError{path: name, reason: "it is " + kindOf(info.Mode()) + ", not a regular file"}
	default:
		mode = info.Mode().Perm()
	}
	temporary := path.Join(path.Dir(name), ".belay-new-"+randomID())
	if err := f.writeTemporary(temporary, content, mode, !created); err != nil {
		return false, err
	}
	if err := f.root.Rename(temporary, name); err != nil {
		return false, errors.Join(err, f.root.Remove(temporary))
	}
	return created, f.syncDir(path.Dir(name))
}

func (f *files) writeTemporary(name string, content []byte, mode fs.FileMode, exact bool) error {
	file, err := f.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err == nil && exact {
		err = file.Chmod(mode) // the umask must not take permissions away
	}
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, f.root.Remove(name))
	}
	return nil
}

func (f *files) syncDir(name string) error {
	dir, err := f.root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
