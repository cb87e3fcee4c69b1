package toolbox

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"belay.dev/belay/internal/runtime/tools"
)

const (
	defaultReadLines = 2000
	maxReadLines     = 10000
	maxLineBytes     = 2000
	// readRoom is what the lines about the range need.
	readRoom = 512
	// sniffBytes is how much of a file decides whether it is text.
	sniffBytes = 8 << 10
)

type readArguments struct {
	Path   string `json:"path"`
	Offset int    `json:"offset"`
	Limit  int    `json:"limit"`
}

func readTool(f *files) tool {
	description := fmt.Sprintf("Read a text file of the workspace. Each line comes with its number and a tab, which are not part of the file. "+
		"At most %d lines and 32 KiB come at once; use offset and limit to read on. Lines of more than %d bytes are cut.", defaultReadLines, maxLineBytes)
	input := schema(map[string]any{
		"path":   map[string]any{"type": "string", "minLength": 1, "description": "File to read, relative to the workspace."},
		"offset": map[string]any{"type": "integer", "minimum": 1, "description": "Number of the first line, from 1. Default: 1."},
		"limit":  map[string]any{"type": "integer", "minimum": 1, "maximum": maxReadLines, "description": "Number of lines."},
	}, "path")
	return tool{Tool: fileTool("read", description, tools.ReadOnly, input), run: func(ctx context.Context, call invocation) tools.Outcome {
		arguments := readArguments{Offset: 1, Limit: defaultReadLines}
		if err := json.Unmarshal(call.arguments, &arguments); err != nil {
			return tools.Failure(tools.KindInvalidArguments, err.Error())
		}
		text, err := f.read(ctx, arguments)
		if err != nil {
			return fileFailure(ctx, err)
		}
		return tools.Outcome{Status: tools.OK, Text: text}
	}}
}

func (f *files) read(ctx context.Context, arguments readArguments) (_ string, err error) {
	name, err := f.clean(arguments.Path)
	if err != nil {
		return "", err
	}
	file, info, err := f.openRegular(name)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	reader := bufio.NewReaderSize(file, 64<<10)
	start, err := reader.Peek(sniffBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	if bytes.IndexByte(start, 0) >= 0 {
		return "", &pathError{path: name, reason: fmt.Sprintf("it is binary (%s, %d bytes) and cannot be read as text", http.DetectContentType(start), info.Size())}
	}
	page := page{first: arguments.Offset, limit: arguments.Limit}
	if err := page.fill(ctx, reader); err != nil {
		return "", err
	}
	return page.text(name), nil
}

// page is a range of a file's lines.
type page struct {
	first, limit int
	lines        strings.Builder
	shown        int // lines
	total        int // lines of the file
	full         bool
}

// fill reads the whole file, in bounded memory, because the model is told how
// many lines there are.
func (p *page) fill(ctx context.Context, reader *bufio.Reader) error {
	for {
		line, size, err := readLine(reader, maxLineBytes)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		p.total++
		if p.total%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if p.total < p.first || p.full {
			continue
		}
		text := tools.SafeText(string(line))
		if size > len(line) {
			text = tools.HeadText(line, maxLineBytes) + fmt.Sprintf(" [... %d more bytes]", size-len(line))
		}
		entry := fmt.Sprintf("%6d\t%s\n", p.total, text)
		if p.shown == p.limit || p.lines.Len()+len(entry) > tools.MaxTextBytes-readRoom {
			p.full = true
			continue
		}
		p.lines.WriteString(entry)
		p.shown++
	}
}

// readLine reads a line without its end, keeps at most limit bytes of it and
// tells its whole size.
func readLine(reader *bufio.Reader, limit int) (line []byte, size int, err error) {
	for {
		part, err := reader.ReadSlice('\n')
		size += len(part)
		line = append(line, part[:min(len(part), max(0, limit-len(line)))]...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err == nil:
			size-- // the line feed
			line = line[:min(len(line), size)]
			if len(line) == size && bytes.HasSuffix(line, []byte{'\r'}) {
				size--
				line = line[:size]
			}
			return line, size, nil
		case errors.Is(err, io.EOF) && size > 0:
			return line, size, nil
		default:
			return nil, 0, err
		}
	}
}

func (p *page) text(name string) string {
	last := p.first + p.shown - 1
	switch {
	case p.total == 0:
		return fmt.Sprintf("[%q is empty]", name)
	case p.shown == 0:
		return fmt.Sprintf("[%q has %d lines; there is no line %d]", name, p.total, p.first)
	case p.first == 1 && last == p.total:
		return p.lines.String()
	case last == p.total:
		return fmt.Sprintf("%s[lines %d to %d, the last]", p.lines.String(), p.first, last)
	default:
		return fmt.Sprintf("%s[lines %d to %d of %d; read on with offset %d]", p.lines.String(), p.first, last, p.total, last+1)
	}
}
