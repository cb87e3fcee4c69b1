// Package cluster is the embedded default of the operator: a control plane, a node whose pods are processes of this
// machine, the manager, and scripted providers, all started by and ending with one process. Demo and integration tests
// run on it; the product's own pods run on it unchanged.
//
// It may import the packages of the test module and internal/chaos.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"belay.dev/belay/internal/chaos"
	"belay.dev/belay/test/devnode"
	"belay.dev/belay/test/rig"
)

const (
	// Image is the name of Belay's own image on the node.
	Image = "belay.dev/belay:dev"
	// WorkspaceImage is this machine's own programs, Go among them, under the name of the image that a cluster would pull.
	WorkspaceImage = "golang:1.26"

	readyWithin = 60 * time.Second
	stopWithin  = 20 * time.Second
)

// Options say what to start.
type Options struct {
	// Dir holds everything that is written, logs among it.
	Dir string
	// Root is the root of Belay's source tree, with bin/ built.
	Root string
	// Script is what the scripted providers do; nil starts none.
	Script *chaos.Script
	// Providers is where they listen; empty means the address of the samples.
	Providers string
	// ManagerArgs are further flags of the manager.
	ManagerArgs []string
	// Bare leaves out Belay's definitions, roles, policies and manager, for whoever installs them.
	Bare bool
	// Progress is told each step, for people; nil for nobody.
	Progress func(format string, args ...any)
}

// Cluster is a running cluster.
type Cluster struct {
	options   Options
	Rig       *rig.Rig
	Node      *devnode.Node
	Providers *chaos.Server
	manager   *process
}

// Start starts everything and waits until it works. Stop it in any case, also after an error.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if o.Progress == nil {
		o.Progress = func(string, ...any) {}
	}
	if o.Providers == "" {
		o.Providers = chaos.DefaultAddr
	}
	c := &Cluster{options: o}
	for _, step := range []struct {
		what  string
		run   func(context.Context) error
		belay bool
	}{
		{"scripted providers", c.startProviders, false},
		{"etcd, kube-apiserver, kube-controller-manager and kube-scheduler", c.startControlPlane, false},
		{"Belay's definitions, roles and admission policies", c.install, true},
		{"a node that runs pods as processes of this machine", c.startNode, false},
		{"Belay's manager", c.StartManager, true},
	} {
		if step.belay && o.Bare {
			continue
		}
		began := time.Now()
		if err := step.run(ctx); err != nil {
			return c, fmt.Errorf("%s: %w (logs are in %s)", step.what, err, o.Dir)
		}
		o.Progress("ready: %s (%.1f s)", step.what, time.Since(began).Seconds())
	}
	return c, nil
}

// Stop ends everything that Start began, the newest first.
func (c *Cluster) Stop() error {
	err := c.StopManager()
	if c.Node != nil {
		c.Node.Stop()
	}
	if c.Rig != nil {
		c.Rig.Stop()
	}
	if c.Providers != nil {
		ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
		defer cancel()
		err = errors.Join(err, c.Providers.Shutdown(ctx))
	}
	return err
}

func (c *Cluster) startProviders(context.Context) error {
	if c.options.Script == nil {
		return nil
	}
	server := chaos.NewServer(c.options.Script, chaos.Options{Addr: c.options.Providers})
	if err := server.Start(); err != nil {
		return err
	}
	c.Providers = server
	return nil
}

func (c *Cluster) startControlPlane(ctx context.Context) error {
	started, err := rig.Start(ctx, rig.Config{Dir: filepath.Join(c.options.Dir, "control-plane")})
	c.Rig = started
	return err
}

func (c *Cluster) startNode(ctx context.Context) error {
	// Laid out as the Dockerfile does it.
	image := filepath.Join(c.options.Dir, "image")
	programs := filepath.Join(image, "usr", "local", "bin")
	if err := os.MkdirAll(programs, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"manager", "runner", "toolbox", "belay"} {
		if err := copyProgram(filepath.Join(c.options.Root, "bin", name), filepath.Join(programs, name)); err != nil {
			return fmt.Errorf("lay out the image (did \"make build\" run?): %w", err)
		}
	}
	goRoot, err := goRoot()
	if err != nil {
		return err
	}
	logs, err := c.Rig.KubeletTLS("devnode")
	if err != nil {
		return err
	}
	out, err := os.Create(filepath.Join(c.options.Dir, "devnode.log"))
	if err != nil {
		return err
	}
	c.Node, err = devnode.Start(ctx, devnode.Config{
		API: c.Rig.Config(), Dir: filepath.Join(c.options.Dir, "node"), LogServer: logs,
		Images: map[string]devnode.Image{
			Image: {Root: image, Entrypoint: []string{"/usr/local/bin/manager"}, User: 65532, Group: 65532},
			WorkspaceImage: {Host: true, User: 65533, Group: 65533, Expose: []string{goRoot}, Env: []string{
				"PATH=" + filepath.Join(goRoot, "bin") + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
			}},
		},
		Log: slog.New(slog.NewTextHandler(out, nil)),
	})
	return err
}

// goRoot is the Go installation of this machine: workspaces find it first in their PATH.
func goRoot() (string, error) {
	program, err := exec.LookPath("go")
	if err == nil {
		program, err = filepath.EvalSymlinks(program)
	}
	if err != nil {
		return "", fmt.Errorf("find the Go toolchain for workspaces: %w", err)
	}
	return filepath.Dir(filepath.Dir(program)), nil
}

func copyProgram(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o755)
}

// RestartNode cuts the node's power and starts it again: its pods' processes die at once, and the API server hears of it
// from the new node.
func (c *Cluster) RestartNode(ctx context.Context) error {
	c.Node.Stop()
	return c.startNode(ctx)
}

// StartManager starts the manager and waits until it is ready.
func (c *Cluster) StartManager(ctx context.Context) error {
	probes, err := freeAddress()
	if err != nil {
		return err
	}
	args := append([]string{
		"--image", Image, "--metrics-bind-address", "0", "--health-probe-bind-address", probes, "--leader-elect=false",
	}, c.options.ManagerArgs...)
	c.manager, err = startProcess(filepath.Join(c.options.Root, "bin", "manager"), args,
		[]string{"KUBECONFIG=" + c.managerKubeconfig()}, filepath.Join(c.options.Dir, "manager.log"))
	if err != nil {
		return err
	}
	return c.manager.ready(ctx, "http://"+probes+"/readyz", readyWithin)
}

// StopManager asks the manager to end and waits for it.
func (c *Cluster) StopManager() error {
	if c.manager == nil {
		return nil
	}
	err := c.manager.stop(syscall.SIGTERM, stopWithin)
	c.manager = nil
	return err
}

// KillManager ends the manager as a power cut would.
func (c *Cluster) KillManager() error {
	if c.manager == nil {
		return nil
	}
	err := c.manager.stop(syscall.SIGKILL, stopWithin)
	c.manager = nil
	return err
}

// Kubectl runs kubectl as the cluster's administrator and returns what it printed.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.KubectlInput(ctx, "", args...)
}

// KubectlInput is Kubectl with an input.
func (c *Cluster) KubectlInput(ctx context.Context, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"), args...)
	// Its cache is keyed by the server's address, which another cluster may have had before.
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Rig.Kubeconfig(), "KUBECACHEDIR="+filepath.Join(c.options.Dir, "kubectl"))
	return output(cmd, input)
}

// Belay runs the belay command and returns what it printed on stdout.
func (c *Cluster) Belay(ctx context.Context, args ...string) (string, error) {
	return output(exec.CommandContext(ctx, filepath.Join(c.options.Root, "bin", "belay"), args...), "")
}

// ClaimDir is the directory behind a bound claim.
func (c *Cluster) ClaimDir(ctx context.Context, namespace, claim string) (string, error) {
	volume, err := c.Kubectl(ctx, "get", "pvc", "-n", namespace, claim, "-o", "jsonpath={.spec.volumeName}")
	if err != nil {
		return "", err
	}
	if volume == "" {
		return "", fmt.Errorf("claim %s/%s is not bound", namespace, claim)
	}
	return filepath.Join(c.options.Dir, "node", "claims", volume), nil
}
