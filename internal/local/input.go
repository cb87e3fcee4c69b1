package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"belay.dev/belay/api/v1alpha1"
	"belay.dev/belay/internal/contract"
	"belay.dev/belay/internal/manifest"
	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/loop"
	"belay.dev/belay/internal/runtime/redact"
)

// job is the input of a run, read and checked.
type job struct {
	run      v1alpha1.AgentRun
	ladder   v1alpha1.RouteLadder
	secrets  secrets
	configs  configMaps
	contract record.Contract
	redactor *redact.Redactor
	// dir is the ledger's directory and workspace that of the tools; both are absolute.
	dir       string
	workspace string
	shell     bool
}

func (j *job) title() string { return j.run.Namespace + "/" + j.run.Name }

// load reads the files and prepares the directories.
func load(o Options) (*job, error) {
	env, err := parseCredentials(o.Credentials)
	if err != nil {
		return nil, err
	}
	set, err := manifest.Load(o.Files, o.Stdin)
	if err != nil {
		return nil, err
	}
	run, err := choose(set, o.Run)
	if err != nil {
		return nil, err
	}
	j := &job{
		run: run, shell: o.AllowShell,
		secrets: secrets{namespace: run.Namespace, files: set.Secrets, env: env},
		configs: configMaps{namespace: run.Namespace, files: set.ConfigMaps},
	}
	if err := j.check(); err != nil {
		return nil, err
	}
	if err := j.findLadder(set); err != nil {
		return nil, err
	}
	if j.contract, err = contract.Of(&run, j.configs); err != nil {
		return nil, fmt.Errorf("AgentRun %s: %w", j.title(), err)
	}
	j.redactor = redact.New(j.secrets.values()...)
	return j, j.makeDirectories(o)
}

// check refuses names that do not work as directories. The API server would refuse them too.
func (j *job) check() error {
	for field, name := range map[string]string{"metadata.namespace": j.run.Namespace, "metadata.name": j.run.Name} {
		if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 {
			return fmt.Errorf("AgentRun %q: %s: %s", j.title(), field, strings.Join(wrong, "; "))
		}
	}
	return nil
}

func (j *job) findLadder(set manifest.Set) error {
	for _, l := range set.Ladders {
		if l.Namespace == j.run.Namespace && l.Name == j.run.Spec.LadderRef.Name {
			j.ladder = l
			return nil
		}
	}
	return fmt.Errorf("AgentRun %s: spec.ladderRef.name: the files have no RouteLadder %s/%s; add its file with -f",
		j.title(), j.run.Namespace, j.run.Spec.LadderRef.Name)
}

func (j *job) makeDirectories(o Options) (err error) {
	if j.dir, err = filepath.Abs(filepath.Join(o.DataDir, j.run.Namespace, j.run.Name)); err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(j.dir), 0o700); err != nil {
		return fmt.Errorf("--data-dir %s cannot be written: %w", o.DataDir, err)
	}
	if info, err := os.Stat(j.dir); err == nil && !info.IsDir() {
		return fmt.Errorf("--data-dir %s: the ledger's place %s is taken by a file", o.DataDir, j.dir)
	}
	if j.workspace, err = filepath.Abs(o.Workspace); err != nil {
		return fmt.Errorf("--workspace: %w", err)
	}
	if err := os.MkdirAll(j.workspace, 0o755); err != nil {
		return fmt.Errorf("--workspace: %w", err)
	}
	return nil
}

// choose finds the run that is meant: the only one, or the one that name says, as NAME or NAMESPACE/NAME.
func choose(set manifest.Set, name string) (v1alpha1.AgentRun, error) {
	var names []string
	var found []v1alpha1.AgentRun
	for _, r := range set.Runs {
		title := r.Namespace + "/" + r.Name
		names = append(names, title)
		if name == "" || name == r.Name || name == title {
			found = append(found, r)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(names) == 0:
		return v1alpha1.AgentRun{}, errors.New("the files have no AgentRun")
	case name == "":
		return v1alpha1.AgentRun{}, fmt.Errorf("the files have %d AgentRuns; name one with --run: %s", len(names), strings.Join(names, ", "))
	case len(found) > 1:
		return v1alpha1.AgentRun{}, fmt.Errorf("--run %q: the files have %d AgentRuns of that name; use NAMESPACE/NAME: %s", name, len(found), strings.Join(names, ", "))
	default:
		return v1alpha1.AgentRun{}, fmt.Errorf("--run %q: the files have no AgentRun of that name, but %s", name, strings.Join(names, ", "))
	}
}

// Current returns the ladder of the files; it does not change while the command runs.
func (j *job) Current(context.Context) (loop.Ladder, error) {
	l, targets := contract.LadderOf(&j.ladder, j.secrets)
	return loop.Ladder{Ladder: l, Targets: targets}, nil
}

// setAside renames a ledger, so that a new one can be started and nothing is lost. It refuses a ledger that another
// process writes.
func setAside(dir string, now time.Time) (err error) {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	lock, err := ledger.Lock(nil, dir)
	if err != nil {
		return fmt.Errorf("--fresh: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	kept := dir + ".before-" + now.UTC().Format("20060102T150405Z")
	for n := 2; ; n++ {
		if _, err := os.Lstat(kept); errors.Is(err, os.ErrNotExist) {
			break
		}
		kept = fmt.Sprintf("%s.before-%s-%d", dir, now.UTC().Format("20060102T150405Z"), n)
	}
	if err := os.Rename(dir, kept); err != nil {
		return &InputError{fmt.Errorf("--fresh: keep the old ledger as %s: %w", kept, err)}
	}
	return nil
}
