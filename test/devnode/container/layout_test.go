package container

import (
	"io/fs"
	"path"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// mapTree is a host in memory. A file whose data begins with "->" is a link.
type mapTree struct{ fstest.MapFS }

func (m mapTree) name(p string) string {
	if p = strings.TrimPrefix(path.Clean(p), "/"); p == "" {
		return "."
	}
	return p
}

func (m mapTree) Lstat(p string) (fs.FileInfo, error)     { return fs.Lstat(m.MapFS, m.name(p)) }
func (m mapTree) ReadDir(p string) ([]fs.DirEntry, error) { return fs.ReadDir(m.MapFS, m.name(p)) }
func (m mapTree) Readlink(p string) (string, error)       { return fs.ReadLink(m.MapFS, m.name(p)) }

func host() mapTree {
	file := &fstest.MapFile{Mode: 0o644}
	return mapTree{fstest.MapFS{
		"usr/bin/sh":          file,
		"usr/lib/x":           file,
		"bin":                 {Data: []byte("usr/bin"), Mode: fs.ModeSymlink | 0o777},
		"image/app/bin/tool":  file,
		"image/app/conf":      file,
		"image/dev/null":      file,
		"image/run":           {Data: []byte("/var/run"), Mode: fs.ModeSymlink | 0o777},
		"image/belay":         file,
		"vol/data/here/inner": file,
		"vol/file":            file,
	}}
}

// text writes actions one a line.
func text(actions []action) string {
	var b strings.Builder
	for _, a := range actions {
		b.WriteString(a.Kind + " " + a.Path)
		if a.Source != "" {
			b.WriteString(" " + a.Source)
		}
		if a.ReadOnly {
			b.WriteString(" ro")
		}
		b.WriteString("\n")
	}
	return b.String()
}

func TestLayout(t *testing.T) {
	image := []Bind{{Source: "/image", Target: "/"}}
	for name, c := range map[string]struct {
		files  []Bind
		mounts []Mount
		want   string
	}{
		"the host's files, links kept": {
			files: []Bind{{Source: "/bin", Target: "/bin"}, {Source: "/usr", Target: "/usr"}, {Source: "/usr/lib", Target: "/usr/lib"}},
			want:  "link /bin usr/bin\ndir /usr\nbind /usr /usr ro\n",
		},
		"an image's entries without /dev": {
			files: image,
			want:  "dir /app\nbind /app /image/app ro\nfile /belay\nbind /belay /image/belay ro\nlink /run /var/run\n",
		},
		"a mount point of its own, deep": {
			mounts: []Mount{{Source: "/vol/data", Target: "/a/b/c/"}},
			want:   "dir /a\ndir /a/b\ndir /a/b/c\nbind /a/b/c /vol/data\n",
		},
		"a mount point that the image has": {
			files: image, mounts: []Mount{{Source: "/vol/data", Target: "/app/bin", ReadOnly: true}},
			want: "dir /app\nbind /app /image/app ro\nfile /belay\nbind /belay /image/belay ro\nlink /run /var/run\nbind /app/bin /vol/data ro\n",
		},
		"a mount point that the image lacks opens the directory": {
			files: image, mounts: []Mount{{Source: "/vol/data", Target: "/app/new"}},
			want: "dir /app\ndir /app/bin\nbind /app/bin /image/app/bin ro\nfile /app/conf\nbind /app/conf /image/app/conf ro\ndir /app/new\n" +
				"file /belay\nbind /belay /image/belay ro\nlink /run /var/run\nbind /app/new /vol/data\n",
		},
		"a file over a file": {
			files: image, mounts: []Mount{{Source: "/vol/file", Target: "/app/conf"}},
			want: "dir /app\nbind /app /image/app ro\nfile /belay\nbind /belay /image/belay ro\nlink /run /var/run\nbind /app/conf /vol/file\n",
		},
		"mounts in mounts, outer first": {
			mounts: []Mount{{Source: "/vol/file", Target: "/w/new"}, {Source: "/vol/data", Target: "/w/here"}, {Source: "/vol/data", Target: "/w"}},
			want:   "dir /w\nbind /w /vol/data\nbind /w/here /vol/data\nfile /w/new\nbind /w/new /vol/file\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := layout(host(), c.files, c.mounts)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, text(got)); diff != "" {
				t.Errorf("otherwise (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLayoutRefusesWhatCannotBe(t *testing.T) {
	image := []Bind{{Source: "/image", Target: "/"}}
	for want, mounts := range map[string][]Mount{
		"/belay is a file in the image":                                 {{Source: "/vol/data", Target: "/belay/ledger"}},
		"mount path /app: /app is a directory in the image":             {{Source: "/vol/file", Target: "/app"}},
		"/run is a symbolic link in the image":                          {{Source: "/vol/data", Target: "/run/x"}},
		"two mounts at /x":                                              {{Source: "/vol/data", Target: "/x"}, {Source: "/vol/data", Target: "/x/"}},
		"must be absolute and not the root":                             {{Source: "/vol/data", Target: "/"}},
		"does not exist in the read-only mount at /ro":                  {{Source: "/vol/data", Target: "/ro", ReadOnly: true}, {Source: "/vol/data", Target: "/ro/new"}},
		"mount path /w/here: one side is a directory, the other is not": {{Source: "/vol/data", Target: "/w"}, {Source: "/vol/file", Target: "/w/here"}},
		"mount at /none: lstat nothing: file does not exist":            {{Source: "/nothing", Target: "/none"}},
	} {
		if _, err := layout(host(), image, mounts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want it to say %q", mounts, err, want)
		}
	}
}
