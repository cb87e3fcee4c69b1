package toolbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"belay.dev/belay/internal/runtime/tools"
)

const maxGlobResults = 500

type globArguments struct {
	Pattern string `json:"pattern"`
	Path    string `json:"path"`
}

func globTool(f *files) tool {
	description := fmt.Sprintf("List the files of the workspace whose path matches a glob such as **/*.go or cmd/{a,b}/*.yaml. ** is any number of "+
		"directories, * and ? stay within one. A glob without a slash matches file names in every directory. Paths come sorted, at most %d. "+
		".git and the toolbox's own directories are left out, links are not followed.", maxGlobResults)
	input := schema(map[string]any{
		"pattern": map[string]any{"type": "string", "minLength": 1, "description": "The glob, relative to path."},
		"path":    map[string]any{"type": "string", "description": "Directory to look in, relative to the workspace. Default: all of it."},
	}, "pattern")
	return tool{Tool: fileTool("glob", description, tools.ReadOnly, input), run: func(ctx context.Context, call invocation) tools.Outcome {
		var arguments globArguments
		if err := json.Unmarshal(call.arguments, &arguments); err != nil {
			return tools.Failure(tools.KindInvalidArguments, err.Error())
		}
		text, err := f.glob(ctx, arguments)
		if errors.Is(err, errPattern) {
			return tools.Failure(tools.KindInvalidArguments, err.Error())
		}
		if err != nil {
			return fileFailure(ctx, err)
		}
		return tools.Outcome{Status: tools.OK, Text: text}
	}}
}

// filter compiles a glob so that it matches paths below start. Nothing
// matches everything.
func filter(start, glob string) (func(name string) bool, error) {
	if glob == "" {
		return func(string) bool { return true }, nil
	}
	if !strings.Contains(glob, "/") {
		glob = "**/" + glob
	}
	p, err := parsePattern(glob)
	if err != nil {
		return nil, err
	}
	prefix := ""
	if start != "." {
		prefix = start + "/"
	}
	return func(name string) bool { return p.match(strings.TrimPrefix(name, prefix)) }, nil
}

func (f *files) glob(ctx context.Context, arguments globArguments) (string, error) {
	start, err := f.clean(arguments.Path)
	if err != nil {
		return "", err
	}
	matches, err := filter(start, arguments.Pattern)
	if err != nil {
		return "", err
	}
	list := listing{most: maxGlobResults}
	err = f.walk(ctx, start, func(name string, _ fs.DirEntry) error {
		if !matches(name) {
			return nil
		}
		return list.add(name)
	})
	if err != nil {
		return "", err
	}
	return list.text("no file matches", "narrow the pattern or the path"), nil
}

// listing is a result of lines that is kept within what a model is shown.
type listing struct {
	most  int
	lines strings.Builder
	count int
	full  bool
}

// listingRoom is what the last line needs.
const listingRoom = 256

func (l *listing) add(line string) error {
	line = tools.SafeText(line) + "\n"
	if l.count == l.most || l.lines.Len()+len(line) > tools.MaxTextBytes-listingRoom {
		l.full = true
		return errEnough
	}
	l.lines.WriteString(line)
	l.count++
	return nil
}

func (l *listing) text(none, hint string) string {
	switch {
	case l.count == 0:
		return "[" + none + "]"
	case l.full:
		return fmt.Sprintf("%s[the first %d; there are more: %s]", l.lines.String(), l.count, hint)
	default:
		return l.lines.String()
	}
}
