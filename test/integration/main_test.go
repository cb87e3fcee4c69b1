// Package integration holds the tests of whole runs: the manager, runners and workspaces are the real programs, the control
// plane is the real one, the node runs pods as processes of this machine, and the providers are scripted. Each test has a
// namespace and providers of its own on the one cluster that they share. They assert what a user may rely on, where a user
// would look: kubectl, the API, what the providers were asked, the ledger, the files of the workspace.
//
// KEEP=1 keeps the logs and ledgers of a suite that passed, too.
//
// It may import everything of the test module, the API types, internal/chaos and the readers of the ledger.
package integration

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"belay.dev/belay/api/v1alpha1"
	"belay.dev/belay/internal/chaos"
	"belay.dev/belay/test/cluster"
)

const (
	startWithin = 3 * time.Minute
	// parallel is how many tests run at a time: most of their time they wait for backoffs and cooldowns.
	parallel = "6"
)

// shared is what all tests use.
var shared struct {
	*cluster.Cluster
	api client.WithWatch
	// err is why there is no cluster.
	err error
}

func TestMain(m *testing.M) {
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		shared.err = flag.Set("test.parallel", parallel)
	}
	dir, err := os.MkdirTemp("", "belay-integration-")
	if err != nil {
		panic(err)
	}
	shared.err = errors.Join(shared.err, start(dir))
	code := m.Run()
	if shared.Cluster != nil {
		if err := shared.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "integration: stop the cluster:", err)
		}
	}
	if code != 0 || os.Getenv("KEEP") != "" {
		fmt.Fprintln(os.Stderr, "integration: logs and ledgers are kept in", dir)
		return
	}
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
	}
}

func start(dir string) error {
	// The pods run as users of their own, who have to get to their files.
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	// Port 0, so that the suite may run beside a demo.
	shared.Cluster, err = cluster.Start(ctx, cluster.Options{Dir: dir, Root: root, Script: &chaos.Script{}, Providers: "127.0.0.1:0"})
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), rbacv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	shared.api, err = client.NewWithWatch(shared.Rig.Config(), client.Options{Scheme: scheme})
	return err
}
