package toolbox

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"

	"belay.dev/belay/internal/runtime/tools"
)

const (
	maxGrepResults = 200
	// grepSearchBytes is how much of a line is searched, grepLineBytes how much is shown.
	grepSearchBytes = 64 << 10
	grepLineBytes   = 400
)

type grepArguments struct {
	Pattern    string `json:"pattern"`
	Path       string `json:"path"`
	Glob       string `json:"glob"`
	IgnoreCase bool   `json:"ignoreCase"`
}

func grepTool(f *files) tool {
	description := fmt.Sprintf("Search the text files of the workspace for lines that match a regular expression (RE2: no look-around, no "+
		"back-references). Each result is path:line:text; at most %d come. Binary files, .git and the toolbox's own directories are left out, "+
		"links are not followed.", maxGrepResults)
	input := schema(map[string]any{
		"pattern":    map[string]any{"type": "string", "minLength": 1, "description": "The regular expression."},
		"path":       map[string]any{"type": "string", "description": "File or directory to search, relative to the workspace. Default: all of it."},
		"glob":       map[string]any{"type": "string", "description": "Search only files whose path below path matches this glob, such as *.go or src/**/*.ts."},
		"ignoreCase": map[string]any{"type": "boolean", "description": "Do not tell upper from lower case. Default: false."},
	}, "pattern")
	return tool{Tool: fileTool("grep", description, tools.ReadOnly, input), run: func(ctx context.Context, call invocation) tools.Outcome {
		var arguments grepArguments
		if err := json.Unmarshal(call.arguments, &arguments); err != nil {
			return tools.Failure(tools.KindInvalidArguments, err.Error())
		}
		text, err := f.grep(ctx, arguments)
		if errors.Is(err, errPattern) {
			return tools.Failure(tools.KindInvalidArguments, err.Error())
		}
		if err != nil {
			return fileFailure(ctx, err)
		}
		return tools.Outcome{Status: tools.OK, Text: text}
	}}
}

func (f *files) grep(ctx context.Context, arguments grepArguments) (string, error) {
	expression := arguments.Pattern
	if arguments.IgnoreCase {
		expression = "(?i)" + expression
	}
	wanted, err := regexp.Compile(expression)
	if err != nil {
		return "", fmt.Errorf("%w: pattern: %w", errPattern, err)
	}
	start, err := f.clean(arguments.Path)
	if err != nil {
		return "", err
	}
	matches, err := filter(start, arguments.Glob)
	if err != nil {
		return "", err
	}
	list := listing{most: maxGrepResults}
	err = f.walk(ctx, start, func(name string, _ fs.DirEntry) error {
		if !matches(name) && name != start {
			return nil
		}
		return f.grepFile(ctx, name, wanted, &list)
	})
	if err != nil {
		return "", err
	}
	return list.text("no line matches", "narrow the pattern, the path or the glob"), nil
}

// grepFile searches one file. One that cannot be read is left out.
func (f *files) grepFile(ctx context.Context, name string, wanted *regexp.Regexp, list *listing) error {
	file, _, err := f.openRegular(name)
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }()
	reader := bufio.NewReaderSize(file, 64<<10)
	if start, err := reader.Peek(sniffBytes); err != nil && !errors.Is(err, io.EOF) || bytes.IndexByte(start, 0) >= 0 {
		return nil
	}
	for number := 1; ; number++ {
		line, _, err := readLine(reader, grepSearchBytes)
		if err != nil {
			return nil
		}
		if number%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if !wanted.Match(line) {
			continue
		}
		shown := tools.HeadText(line, grepLineBytes)
		if len(line) > grepLineBytes {
			shown += "…"
		}
		if err := list.add(fmt.Sprintf("%s:%d:%s", name, number, shown)); err != nil {
			return err
		}
	}
}
