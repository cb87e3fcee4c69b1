// Package container runs one container as real processes of this machine,
// without a container runtime: the program re-executes itself as the
// container's process 1, in new mount, pid, IPC and UTS namespaces (and a user
// namespace when it is not root), builds a root file system of bind mounts,
// pivots into it and starts the container's command as another user.
//
// The network is the host's. Resource limits, seccomp and AppArmor profiles are
// not applied.
//
// Any program that imports this package can be a container's process 1: an init
// function takes over when the program was started under the name that Start
// gives it, before main or a test runs.
//
// It imports the standard library, golang.org/x/sys and package spawn only.
package container

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// Spec says how to run one container. It is what the parent sends to the
// process that becomes the container.
type Spec struct {
	// Hostname is the container's host name.
	Hostname string
	// Root is an empty directory of the host. The container's root is built in
	// it and what the container writes outside its volumes stays in it.
	Root string
	// Files are the image's files, in the order they are laid down.
	Files []Bind
	// Mounts are the volumes and generated files, laid over the image.
	Mounts []Mount
	// ReadOnlyRoot makes everything but the mounts read-only.
	ReadOnlyRoot bool

	// Args is the command; Args[0] is looked up in the PATH of Env.
	Args []string
	// Env holds name=value pairs.
	Env []string
	// Dir is the working directory, made if it does not exist. Empty is "/".
	Dir string

	// UID, GID and Groups are the command's identity. Without root they are
	// what the container sees; on the host all of it is the one user that runs
	// the program, and Groups are not set.
	UID, GID int
	Groups   []int
	// NoNewPrivileges keeps the command from gaining any through exec.
	NoNewPrivileges bool
	// Capabilities is the bounding set, by name without CAP_.
	Capabilities []string
}

// Bind lays a directory or file of the host into the container, read-only. With
// Link set it makes a symbolic link to that text instead.
type Bind struct {
	Source string `json:",omitempty"`
	Target string
	Link   string `json:",omitempty"`
}

// Mount lays a directory or file of the host over the container's files.
type Mount struct {
	Source   string
	Target   string
	ReadOnly bool
}

// Exit is how a container ended.
type Exit struct {
	// Code is the exit code, or 128 plus the number of the signal.
	Code int
	// StartError is set when the command never ran: the file system could not
	// be built or the command not be executed. Code is then 128.
	StartError error
	// StartedAt and FinishedAt bound the command's life.
	StartedAt, FinishedAt time.Time
}

func (s *Spec) validate() error {
	switch {
	case s.Root == "":
		return errors.New("container has no root directory")
	case len(s.Args) == 0 || s.Args[0] == "":
		return errors.New("container has no command: neither the pod nor the image names one")
	case s.UID < 0 || s.GID < 0:
		return fmt.Errorf("container has the user %d:%d; neither may be negative", s.UID, s.GID)
	}
	for _, m := range s.Mounts {
		if _, err := os.Stat(m.Source); err != nil {
			return fmt.Errorf("mount at %s: %w", m.Target, err)
		}
	}
	return nil
}
