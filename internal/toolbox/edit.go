package toolbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"belay.dev/belay/internal/runtime/tools"
)

// maxEditBytes is the largest file that edit works on, since it holds it twice.
const maxEditBytes = 16 << 20

type editArguments struct {
	Path       string `json:"path"`
	OldText    string `json:"oldText"`
	NewText    string `json:"newText"`
	ReplaceAll bool   `json:"replaceAll"`
}

func editTool(f *files) tool {
	description := "Replace a piece of text in a file of the workspace. oldText must be in the file exactly, with its white space and line ends, " +
		"and without the line numbers that read adds. It must be there once: take in surrounding lines until it is unique, or set replaceAll. " +
		"Nothing is changed if that does not hold."
	input := schema(map[string]any{
		"path":       map[string]any{"type": "string", "minLength": 1, "description": "File to change, relative to the workspace."},
		"oldText":    map[string]any{"type": "string", "minLength": 1, "description": "The text to replace."},
		"newText":    map[string]any{"type": "string", "description": "The text to put there; empty deletes."},
		"replaceAll": map[string]any{"type": "boolean", "description": "Replace every occurrence. Default: false."},
	}, "path", "oldText", "newText")
	return tool{Tool: fileTool("edit", description, tools.Supervised, input), run: func(ctx context.Context, call invocation) tools.Outcome {
		var arguments editArguments
		if err := json.Unmarshal(call.arguments, &arguments); err != nil {
			return tools.Failure(tools.KindInvalidArguments, err.Error())
		}
		name, err := f.cleanWritable(arguments.Path)
		if err != nil {
			return fileFailure(ctx, err)
		}
		count, err := f.edit(name, arguments)
		if err != nil {
			return fileFailure(ctx, err)
		}
		text := fmt.Sprintf("replaced 1 occurrence in %s", name)
		if count > 1 {
			text = fmt.Sprintf("replaced %d occurrences in %s", count, name)
		}
		return tools.Outcome{Status: tools.OK, Text: tools.SafeText(text)}
	}}
}

func (f *files) edit(name string, arguments editArguments) (int, error) {
	if arguments.OldText == arguments.NewText {
		return 0, &pathError{path: name, reason: "oldText and newText are the same", invalid: true}
	}
	content, err := f.readWhole(name, maxEditBytes)
	if err != nil {
		return 0, err
	}
	changed, count, err := substitute(content, arguments)
	if err != nil {
		return 0, &pathError{path: name, reason: err.Error()}
	}
	_, err = f.replace(name, changed)
	return count, err
}

func (f *files) readWhole(name string, limit int64) (_ []byte, err error) {
	file, info, err := f.openRegular(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if info.Size() > limit {
		return nil, &pathError{path: name, reason: fmt.Sprintf("it has %d bytes, at most %d are possible", info.Size(), limit)}
	}
	return io.ReadAll(io.LimitReader(file, limit))
}

// substitute is edit without the file.
func substitute(content []byte, arguments editArguments) ([]byte, int, error) {
	old, replacement := []byte(arguments.OldText), []byte(arguments.NewText)
	count := bytes.Count(content, old)
	switch {
	case count == 0:
		return nil, 0, errors.New("oldText is not in it" + nearMiss(content, arguments.OldText) + ". Nothing was changed")
	case count > 1 && !arguments.ReplaceAll:
		return nil, 0, fmt.Errorf("oldText is in it %d times, on lines %s. Nothing was changed: take in more surrounding text, or set replaceAll",
			count, lineNumbers(content, old))
	}
	return bytes.ReplaceAll(content, old, replacement), count, nil
}

// lineNumbers lists the first lines on which a text begins.
func lineNumbers(content, text []byte) string {
	const most = 10
	var lines []string
	line, from := 1, 0
	for {
		at := bytes.Index(content[from:], text)
		if at < 0 {
			return strings.Join(lines, ", ")
		}
		if len(lines) == most {
			return strings.Join(lines, ", ") + " and more"
		}
		line += bytes.Count(content[from:from+at], []byte{'\n'})
		lines = append(lines, strconv.Itoa(line))
		line += bytes.Count(text, []byte{'\n'})
		from += at + len(text)
	}
}

// nearMiss says what distinguishes the text from one that is in the file.
func nearMiss(content []byte, text string) string {
	if bytes.Contains(content, []byte("\r\n")) && !strings.Contains(text, "\r") &&
		bytes.Contains(content, []byte(strings.ReplaceAll(text, "\n", "\r\n"))) {
		return `; it would be with Windows line ends (\r\n), which the file has`
	}
	want := squeeze(text)
	if want == "" {
		return ""
	}
	if strings.Contains(squeeze(string(content)), want) {
		return "; the same words are there with other white space or line breaks: read the file again and copy them exactly"
	}
	return ""
}

// squeeze makes every run of white space one space.
func squeeze(s string) string { return strings.Join(strings.Fields(s), " ") }
