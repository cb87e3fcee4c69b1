package toolbox_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"belay.dev/belay/internal/runtime/tools"
)

// tree makes files from paths and contents.
func (w *workspace) tree(files map[string]string) {
	w.t.Helper()
	for name, content := range files {
		if err := os.MkdirAll(filepath.Dir(w.path(name)), 0o755); err != nil {
			w.t.Fatal(err)
		}
		if err := os.WriteFile(w.path(name), []byte(content), 0o644); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *workspace) content(name string) string {
	w.t.Helper()
	raw, err := os.ReadFile(w.path(name))
	if err != nil {
		w.t.Fatal(err)
	}
	return string(raw)
}

func TestFileToolsStayInTheWorkspace(t *testing.T) {
	w := newWorkspace(t)
	outside := filepath.Join(t.TempDir(), "secret.txt")
	if err := os.WriteFile(outside, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	w.tree(map[string]string{"in.txt": "in"})
	for link, target := range map[string]string{
		"absolute": outside, "relative": "../" + filepath.Base(filepath.Dir(outside)) + "/secret.txt", "dir": filepath.Dir(outside), "up": "..",
	} {
		if err := os.Symlink(target, w.path(link)); err != nil {
			t.Fatal(err)
		}
	}
	w.start()
	client := w.dial()
	for _, name := range []string{outside, "../secret.txt", "a/../../secret.txt", "absolute", "dir/secret.txt", "up/x", "/etc/passwd", "in\x00.txt"} {
		for _, call := range []tools.Call{
			newCall("read", map[string]any{"path": name}),
			newCall("write", map[string]any{"path": name, "content": "pwned"}),
			newCall("edit", map[string]any{"path": name, "oldText": "secret", "newText": "pwned"}),
			newCall("grep", map[string]any{"path": name, "pattern": "secret"}),
			newCall("glob", map[string]any{"path": name, "pattern": "*"}),
		} {
			got := client.Call(t.Context(), call)
			if got.Status != tools.Error || got.ErrorKind != tools.KindInvalidArguments {
				t.Errorf("%s %q: got %s %s %q", call.Tool, name, got.Status, got.ErrorKind, got.Text)
			}
		}
	}
	if raw, err := os.ReadFile(outside); err != nil || string(raw) != "secret" {
		t.Errorf("the file outside is now %q, %v", raw, err)
	}
	got := client.Call(t.Context(), newCall("grep", map[string]any{"pattern": "secret"}))
	if got.Text != "[no line matches]" {
		t.Errorf("grep followed a link: %q", got.Text)
	}
	got = client.Call(t.Context(), newCall("read", map[string]any{"path": w.dir + "/in.txt"}))
	if got.Status != tools.OK {
		t.Errorf("an absolute path into the workspace: %+v", got)
	}
}

func TestTheToolboxsOwnFilesCannotBeWritten(t *testing.T) {
	w := newWorkspace(t)
	w.start()
	client := w.dial()
	if err := os.Symlink(".belay/spool/spool.json", w.path("link")); err != nil {
		t.Fatal(err)
	}
	before := w.content(".belay/spool/spool.json")
	for _, name := range []string{".belay/x", ".belay", "./a/../.belay/spool/spool.json", "link"} {
		got := client.Call(t.Context(), newCall("write", map[string]any{"path": name, "content": "{}"}))
		if got.Status != tools.Error || got.ErrorKind != tools.KindInvalidArguments {
			t.Errorf("%q: got %+v", name, got)
		}
	}
	if after := w.content(".belay/spool/spool.json"); after != before {
		t.Errorf("spool.json is now %q", after)
	}
}

func TestReadShowsTheLinesAskedFor(t *testing.T) {
	w := newWorkspace(t)
	w.tree(map[string]string{
		"five": "l1\nl2\nl3\nl4\nl5\n", "unended": "a\nb", "crlf": "a\r\nb\r\n", "empty": "", "invalid": "a\xffb\n",
		"long": strings.Repeat("é", 1500) + "\nnext\n", "binary": "\x89PNG\r\n\x1a\n\x00\x00",
		"big": strings.Repeat(strings.Repeat("x", 99)+"\n", 1000),
	})
	if err := syscall.Mkfifo(w.path("fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.start()
	client := w.dial()
	read := func(arguments map[string]any) tools.Outcome {
		return client.Call(t.Context(), newCall("read", arguments))
	}
	texts := map[string]struct {
		arguments map[string]any
		want      string
	}{
		"a range":     {map[string]any{"path": "five", "offset": 2, "limit": 2}, "     2\tl2\n     3\tl3\n[lines 2 to 3 of 5; read on with offset 4]"},
		"to the end":  {map[string]any{"path": "five", "offset": 4}, "     4\tl4\n     5\tl5\n[lines 4 to 5, the last]"},
		"beyond":      {map[string]any{"path": "five", "offset": 6}, `["five" has 5 lines; there is no line 6]`},
		"unended":     {map[string]any{"path": "unended"}, "     1\ta\n     2\tb\n"},
		"CRLF":        {map[string]any{"path": "crlf"}, "     1\ta\n     2\tb\n"},
		"empty":       {map[string]any{"path": "empty"}, `["empty" is empty]`},
		"invalid":     {map[string]any{"path": "invalid"}, "     1\ta\uFFFDb\n"},
		"a long line": {map[string]any{"path": "long"}, "     1\t" + strings.Repeat("é", 1000) + " [... 1000 more bytes]\n     2\tnext\n"},
	}
	for name, test := range texts {
		if got := read(test.arguments); got.Status != tools.OK || got.Text != test.want {
			t.Errorf("%s: got %s %q, want %q", name, got.Status, got.Text, test.want)
		}
	}
	for path, want := range map[string]string{"binary": "image/png", ".": "a directory", "fifo": "a FIFO"} {
		if got := read(map[string]any{"path": path}); got.ErrorKind != tools.KindExecutionFailed || !strings.Contains(got.Text, want) {
			t.Errorf("%s: got %+v", path, got)
		}
	}
	// A line takes 6 + 1 + 99 + 1 = 107 bytes and 32,768 - 512 are free for lines: 301 of them.
	if got := read(map[string]any{"path": "big"}); !strings.HasSuffix(got.Text, "[lines 1 to 301 of 1000; read on with offset 302]") || len(got.Text) > tools.MaxTextBytes {
		t.Errorf("big: %d bytes, ends with %q", len(got.Text), got.Text[len(got.Text)-100:])
	}
}

func TestWriteKeepsPermissionsAndFollowsLinksWithinTheWorkspace(t *testing.T) {
	w := newWorkspace(t)
	w.tree(map[string]string{"script.sh": "old", "target.txt": "old"})
	if err := os.Chmod(w.path("script.sh"), 0o751); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("target.txt", w.path("link")); err != nil {
		t.Fatal(err)
	}
	w.start()
	client := w.dial()
	for _, name := range []string{"script.sh", "link", "new/dir/file"} {
		if got := client.Call(t.Context(), newCall("write", map[string]any{"path": name, "content": "new"})); got.Status != tools.OK {
			t.Fatalf("%s: %+v", name, got)
		}
	}
	if info, err := os.Stat(w.path("script.sh")); err != nil || info.Mode().Perm() != 0o751 {
		t.Errorf("permissions: %v, %v", info.Mode(), err)
	}
	if info, err := os.Lstat(w.path("link")); err != nil || info.Mode().Type() != os.ModeSymlink || w.content("target.txt") != "new" {
		t.Errorf("the link: %v, %v; its target has %q", info.Mode(), err, w.content("target.txt"))
	}
	if w.content("new/dir/file") != "new" {
		t.Error("the file in new directories was not written")
	}
	entries, err := filepath.Glob(w.path("*/.belay-new-*"))
	if more, _ := filepath.Glob(w.path(".belay-new-*")); err != nil || len(entries)+len(more) > 0 {
		t.Errorf("temporary files are left: %v %v", entries, more)
	}
	if got := client.Call(t.Context(), newCall("write", map[string]any{"path": "new/dir", "content": "x"})); got.Status != tools.Error || !strings.Contains(got.Text, "a directory") {
		t.Errorf("writing to a directory: %+v", got)
	}
}

func TestEditReplacesExactlyWhatItIsTold(t *testing.T) {
	w := newWorkspace(t)
	w.start()
	client := w.dial()
	tests := map[string]struct {
		content, old, new string
		all               bool
		want              string // "" if it must be refused
		text              string
	}{
		"once":           {"a b c", "b", "x", false, "a x c", "replaced 1 occurrence in f"},
		"delete":         {"a b c", " b", "", false, "a c", "replaced 1 occurrence in f"},
		"all":            {"b b\nb", "b", "x", true, "x x\nx", "replaced 3 occurrences in f"},
		"ambiguous":      {"one\nb\ntwo\nb b\n", "b", "x", false, "", "3 times, on lines 2, 4, 4"},
		"absent":         {"a", "zebra", "x", false, "", "oldText is not in it. Nothing was changed"},
		"white space":    {"if x {\n\treturn\n}", "if x {\n    return\n}", "", false, "", "other white space"},
		"CRLF":           {"a\r\nb\r\n", "a\nb", "x", false, "", "Windows line ends"},
		"no change":      {"a", "a", "a", false, "", "the same"},
		"not valid text": {"\xff b", "b", "x", false, "\xff x", "replaced 1 occurrence in f"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w.tree(map[string]string{"f": test.content})
			got := client.Call(t.Context(), newCall("edit", map[string]any{
				"path": "f", "oldText": test.old, "newText": test.new, "replaceAll": test.all,
			}))
			want, status := test.want, tools.OK
			if want == "" {
				want, status = test.content, tools.Error
			}
			if got.Status != status || !strings.Contains(got.Text, test.text) || w.content("f") != want {
				t.Errorf("got %s %q, the file has %q", got.Status, got.Text, w.content("f"))
			}
		})
	}
	if got := client.Call(t.Context(), newCall("edit", map[string]any{"path": "none", "oldText": "a", "newText": "b"})); got.ErrorKind != tools.KindNotFound {
		t.Errorf("a file that is not there: %+v", got)
	}
}

func TestGrepAndGlobFindFiles(t *testing.T) {
	w := newWorkspace(t)
	w.tree(map[string]string{
		"main.go": "package main\nfunc main() {}\n", "cmd/tool/main.go": "package main\n", "cmd/tool/notes.md": "Package notes\n",
		".git/config": "package git\n", ".hidden/x.go": "package x\n", "data.bin": "package\x00main",
		"wide.txt": "package " + strings.Repeat("é", 300) + "\n",
	})
	w.start()
	client := w.dial()
	tests := []struct {
		tool      string
		arguments map[string]any
		want      string
	}{
		{"glob", map[string]any{"pattern": "*.go"}, ".hidden/x.go\ncmd/tool/main.go\nmain.go\n"},
		{"glob", map[string]any{"pattern": "cmd/**"}, "cmd/tool/main.go\ncmd/tool/notes.md\n"},
		{"glob", map[string]any{"pattern": "cmd/*"}, "[no file matches]"},
		{"glob", map[string]any{"pattern": "**/{main.go,*.md}"}, "cmd/tool/main.go\ncmd/tool/notes.md\nmain.go\n"},
		{"glob", map[string]any{"pattern": "tool/*.go", "path": "cmd"}, "cmd/tool/main.go\n"},
		{"grep", map[string]any{"pattern": "^package main$"}, "cmd/tool/main.go:1:package main\nmain.go:1:package main\n"},
		{"grep", map[string]any{"pattern": "PACKAGE N", "ignoreCase": true}, "cmd/tool/notes.md:1:Package notes\n"},
		{"grep", map[string]any{"pattern": "func", "path": "main.go"}, "main.go:2:func main() {}\n"},
		{"grep", map[string]any{"pattern": "package", "glob": "*.md"}, "[no line matches]"},
		{"grep", map[string]any{"pattern": "package é"}, "wide.txt:1:package " + strings.Repeat("é", 196) + "…\n"},
	}
	for _, test := range tests {
		if got := client.Call(t.Context(), newCall(test.tool, test.arguments)); got.Status != tools.OK || got.Text != test.want {
			t.Errorf("%s %v: got %s %q, want %q", test.tool, test.arguments, got.Status, got.Text, test.want)
		}
	}
	for _, test := range []struct {
		tool      string
		arguments map[string]any
		kind      tools.ErrorKind
	}{
		{"grep", map[string]any{"pattern": "("}, tools.KindInvalidArguments},
		{"glob", map[string]any{"pattern": "[a"}, tools.KindInvalidArguments},
		{"glob", map[string]any{"pattern": "{a,b"}, tools.KindInvalidArguments},
		{"grep", map[string]any{"pattern": "x", "path": "missing"}, tools.KindNotFound},
	} {
		if got := client.Call(t.Context(), newCall(test.tool, test.arguments)); got.Status != tools.Error || got.ErrorKind != test.kind {
			t.Errorf("%s %v: got %+v", test.tool, test.arguments, got)
		}
	}
}

func TestManyResultsAreCutWithAHint(t *testing.T) {
	w := newWorkspace(t)
	w.tree(map[string]string{"many": strings.Repeat("hit\n", 1000)})
	w.start()
	got := w.dial().Call(t.Context(), newCall("grep", map[string]any{"pattern": "hit"}))
	if !strings.HasSuffix(got.Text, "many:200:hit\n[the first 200; there are more: narrow the pattern, the path or the glob]") {
		t.Errorf("ends with %q", got.Text[max(0, len(got.Text)-120):])
	}
}
