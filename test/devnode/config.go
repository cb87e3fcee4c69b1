// Package devnode is a Kubernetes node whose pods are processes of this machine.
// It registers a Node and really runs the pods bound to it: init containers,
// sidecars and main containers with their volumes, users, probes, restarts and
// status, as a kubelet with a container runtime would, on a machine that has
// neither and without root.
//
// What it isolates: each container has its own mount, pid, IPC and UTS
// namespaces, sees only its image and its volumes, and (as root) runs under its
// own user ids. What it does not: the network is the host's, so two pods cannot
// serve the same port, a pod's IP is 127.0.0.1 and services have no address;
// resource limits and seccomp profiles have no effect. What a pod asks for and
// cannot get is refused with a reason, see package admit.
//
// It imports client-go, virtual-kubelet's node package and the packages below
// it.
package devnode

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"belay.dev/belay/test/devnode/container"
)

// Config says how to run a node.
type Config struct {
	// Name is the node's name. Default "devnode".
	Name string
	// API reaches the API server as a user that may do what a kubelet and a
	// storage provisioner do.
	API *rest.Config
	// Dir holds the node's files. Pods' own are removed with them, logs and
	// claims' data stay.
	Dir string
	// ClaimsDir holds the data of claims. Default Dir/claims; nodes that share
	// it share their storage.
	ClaimsDir string
	// Images by the name that pods use. More can be added later.
	Images map[string]Image
	// LogServer makes "kubectl logs" work: the node serves its logs with it.
	// Nil serves none.
	LogServer *tls.Config
	// Refresh is how often mounted secrets and config maps are brought up to
	// date. Default 5 s; a kubelet takes about a minute.
	Refresh time.Duration
	// Log takes what the node has to say. Default: nothing.
	Log *slog.Logger
	// Clock is for tests. Default: the machine's.
	Clock clock.WithTicker
}

// Image is what stands in for a container image: files of this machine, never
// written to.
type Image struct {
	// Root is a directory with the image's files.
	Root string
	// Host stands for this machine's own programs and libraries, instead of
	// Root, and every path of Expose. Home directories and the secrets in /etc
	// stay hidden.
	Host   bool
	Expose []string

	// Entrypoint, Cmd, Env (NAME=value), WorkingDir, User and Group are the
	// image's configuration.
	Entrypoint, Cmd []string
	Env             []string
	WorkingDir      string
	User, Group     int64
}

const defaultPath = "/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func (i Image) validate(name string) error {
	switch {
	case name == "":
		return errors.New("an image has no name")
	case i.Host == (i.Root != ""):
		return fmt.Errorf("image %s: exactly one of Root and Host has to be set", name)
	case i.Host:
		return nil
	}
	if info, err := os.Stat(i.Root); err != nil || !info.IsDir() {
		return fmt.Errorf("image %s: %s is not a directory", name, i.Root)
	}
	return nil
}

func (i Image) files() ([]container.Bind, error) {
	if i.Host {
		return container.HostFiles(i.Expose...), nil
	}
	root, err := filepath.Abs(i.Root)
	if err != nil {
		return nil, fmt.Errorf("image directory %s: %w", i.Root, err)
	}
	return container.DirectoryFiles(root), nil
}

func (c *Config) complete() error {
	if c.API == nil || c.Dir == "" {
		return errors.New("devnode: Config.API and Config.Dir have to be set")
	}
	if c.Name == "" {
		c.Name = "devnode"
	}
	var err error
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return fmt.Errorf("devnode: directory %s: %w", c.Dir, err)
	}
	if c.ClaimsDir == "" {
		c.ClaimsDir = filepath.Join(c.Dir, "claims")
	}
	if c.Refresh == 0 {
		c.Refresh = 5 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	for name, image := range c.Images {
		if err := image.validate(name); err != nil {
			return fmt.Errorf("devnode: %w", err)
		}
	}
	return nil
}
