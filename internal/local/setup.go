package local

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"k8s.io/utils/ptr"

	"belay.dev/belay/api/v1alpha1"
	"belay.dev/belay/internal/runtime/tools"
	"belay.dev/belay/internal/toolbox"
)

// setupExcerpt is how much of a failed step's output is told, in bytes.
const setupExcerpt = 4096

// SetupError is a step that did not prepare the workspace. The ledger is intact; the next invocation runs the step again.
type SetupError struct {
	Step string
	// Code is the exit code of the step's command.
	Code int
	// Output is the beginning and the end of what it wrote, without known secrets.
	Output string
}

func (e *SetupError) Error() string {
	return fmt.Sprintf("setup step %s ended with exit code %d; mend it, then the same command runs it again. Its output:\n%s", e.Step, e.Code, e.Output)
}

// setup runs the steps that prepare the workspace, each to success once for a run.
func (j *job) setup(ctx context.Context, uid string, progress *narrator) error {
	if j.run.Spec.Workspace == nil {
		return nil
	}
	for i := range j.run.Spec.Workspace.Setup {
		s := &j.run.Spec.Workspace.Setup[i]
		env, err := j.setupEnv(s)
		if err != nil {
			return &InputError{fmt.Errorf("AgentRun %s: spec.workspace.setup[%s]: %w", j.title(), s.Name, err)}
		}
		output := tools.NewHeadTail(setupExcerpt)
		step := toolbox.Setup{
			Name: s.Name, Marker: filepath.Join(j.workspace, ".belay", "setup", uid, s.Name), Command: slices.Concat(s.Command, s.Args),
			Dir: j.workspace, Env: append(scrubbed(j.workspace), env...), Stdout: output, Stderr: output,
		}
		code, err := step.Run(ctx)
		if cause := context.Cause(ctx); cause != nil {
			return fmt.Errorf("setup step %s was stopped: %w", s.Name, cause)
		}
		if err != nil {
			return err
		}
		if code != 0 {
			text, _ := output.Text("")
			return &SetupError{Step: s.Name, Code: code, Output: j.redactor.String(text)}
		}
		progress.line("workspace: setup step %s is done", s.Name)
	}
	return nil
}

// setupEnv is what a step declares: envFrom in order, then env, which wins.
func (j *job) setupEnv(s *v1alpha1.SetupStep) ([]string, error) {
	var out []string
	for _, from := range s.EnvFrom {
		data, err := j.envFrom(from)
		if err != nil {
			return nil, err
		}
		for _, key := range slices.Sorted(maps.Keys(data)) {
			out = append(out, from.Prefix+key+"="+data[key])
		}
	}
	for _, e := range s.Env {
		value, err := j.envValue(e)
		if err != nil {
			return nil, fmt.Errorf("env[%s]: %w", e.Name, err)
		}
		out = append(out, e.Name+"="+value)
	}
	return out, nil
}

func (j *job) envFrom(from v1alpha1.EnvFromSource) (map[string]string, error) {
	switch {
	case from.SecretRef != nil:
		data := j.secrets.all(from.SecretRef.Name)
		if data == nil {
			return nil, fmt.Errorf("envFrom: the files have no Secret %q; add it with -f, or its keys with --credential %s/KEY=ENVVAR",
				from.SecretRef.Name, from.SecretRef.Name)
		}
		return data, nil
	case from.ConfigMapRef != nil:
		data, err := j.configs.all(from.ConfigMapRef.Name)
		if err != nil {
			return nil, fmt.Errorf("envFrom: ConfigMap %q: %w", from.ConfigMapRef.Name, err)
		}
		return data, nil
	}
	return nil, errors.New("envFrom: one of secretRef and configMapRef is needed")
}

func (j *job) envValue(e v1alpha1.EnvVar) (string, error) {
	from := e.ValueFrom
	switch {
	case from == nil:
		return ptr.Deref(e.Value, ""), nil
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		if v := j.secrets.value(ref.Name, ref.Key); v != "" {
			return v, nil
		}
		return "", fmt.Errorf("there is no key %q of a Secret %q; add it with -f, or with --credential %s/%s=ENVVAR", ref.Key, ref.Name, ref.Name, ref.Key)
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		v, err := j.configs.ConfigMapKey(ref.Name, ref.Key)
		if err != nil {
			return "", fmt.Errorf("key %q of ConfigMap %q: %w", ref.Key, ref.Name, err)
		}
		return v, nil
	}
	return "", errors.New("valueFrom: one of secretKeyRef and configMapKeyRef is needed")
}
