package container

import (
	"io/fs"
	"os"
)

// hostTree is this machine's file system.
type hostTree struct{}

func (hostTree) Lstat(p string) (fs.FileInfo, error)     { return os.Lstat(p) }
func (hostTree) ReadDir(p string) ([]fs.DirEntry, error) { return os.ReadDir(p) }
func (hostTree) Readlink(p string) (string, error)       { return os.Readlink(p) }

// hostSystem are the parts of a host that make a usable root: programs,
// libraries and the configuration that programs read. Home directories, /run,
// /var and the rest of /etc stay hidden.
var (
	hostTop = []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "opt"}
	hostEtc = []string{
		"alternatives", "ca-certificates", "ca-certificates.conf", "ssl", "pki", "crypto-policies",
		"group", "passwd", "nsswitch.conf", "host.conf", "gai.conf", "protocols", "services", "mime.types",
		"ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "timezone", "os-release", "debian_version",
		"profile", "bash.bashrc", "gitconfig",
	}
)

// HostFiles are the files of an image that is this machine itself: its
// programs, libraries and the harmless part of its /etc, read-only, and every
// path of expose.
func HostFiles(expose ...string) []Bind {
	var files []Bind
	add := func(p string) {
		if _, err := os.Stat(p); err == nil {
			files = append(files, Bind{Source: p, Target: p})
		}
	}
	for _, name := range hostTop {
		add("/" + name)
	}
	for _, name := range hostEtc {
		add("/etc/" + name)
	}
	for _, p := range expose {
		add(p)
	}
	return files
}

// DirectoryFiles are the files of an image whose root is a directory of this
// machine.
func DirectoryFiles(root string) []Bind {
	return []Bind{{Source: root, Target: "/"}}
}
