// Package contract turns API objects into what the runtime works with: an AgentRun into the contract that its ledger
// freezes, a RouteLadder into a failover chain and the transport settings of its legs. Unset fields become their documented
// defaults here, so that runner, command line and controllers agree on them.
//
// It is pure, and may import the API types and the leaves of the runtime.
package contract

import (
	"fmt"
	"strings"
	"time"

	"belay.dev/belay/api/v1alpha1"
	"belay.dev/belay/internal/runtime/ledger/record"
)

// Texts gives the text behind a reference.
type Texts interface {
	// ConfigMapKey returns the value of a key of a ConfigMap in the run's namespace.
	ConfigMapKey(name, key string) (string, error)
}

// Of returns the contract of a run. Its errors name the field.
func Of(run *v1alpha1.AgentRun, texts Texts) (record.Contract, error) {
	spec := &run.Spec
	task, err := text("spec.task", spec.Task, spec.TaskFrom, texts)
	if err != nil {
		return record.Contract{}, err
	}
	if strings.TrimSpace(task) == "" {
		field := "spec.task"
		if spec.TaskFrom != nil {
			field = "spec.taskFrom"
		}
		return record.Contract{}, fmt.Errorf("%s: the task is empty; say what the run is to do", field)
	}
	system, err := text("spec.system", spec.System, spec.SystemFrom, texts)
	if err != nil {
		return record.Contract{}, err
	}
	c := record.Contract{Task: task, System: system, Limits: LimitsOf(run)}
	if r := spec.Routing; r != nil {
		c.Routing = record.Routing{SecurityClass: string(r.SecurityClass), Metered: string(r.Metered), Legs: r.Legs}
	}
	if spec.Tools != nil {
		for _, t := range spec.Tools.Workspace {
			c.Tools = append(c.Tools, record.ToolGrant{Name: string(t.Name), Timeout: seconds(t.TimeoutSeconds)})
		}
	}
	return c, nil
}

func text(field, inline string, from *v1alpha1.TextSource, texts Texts) (string, error) {
	if from == nil {
		return inline, nil
	}
	ref := from.ConfigMapKeyRef
	value, err := texts.ConfigMapKey(ref.Name, ref.Key)
	if err != nil {
		return "", fmt.Errorf("%sFrom.configMapKeyRef: key %q of ConfigMap %q: %w", field, ref.Key, ref.Name, err)
	}
	return value, nil
}

// LimitsOf returns the limits that a run has now.
func LimitsOf(run *v1alpha1.AgentRun) record.Limits {
	l := run.Spec.Limits
	if l == nil {
		l = &v1alpha1.Limits{}
	}
	return record.Limits{
		MaxTurns:        int(or(l.MaxTurns, v1alpha1.DefaultMaxTurns)),
		MaxModelRetries: new(int(deref(l.MaxModelRetries, v1alpha1.DefaultMaxModelRetries))),
		MaxTokens:       l.MaxTokens,
		MaxCostMicroUSD: l.MaxCostMicroUSD,
		ActiveDeadline:  seconds(or(l.ActiveDeadlineSeconds, v1alpha1.DefaultActiveDeadlineSeconds)),
		MaxParked:       seconds(or(l.MaxParkedSeconds, v1alpha1.DefaultMaxParkedSeconds)),
	}
}

func seconds[T ~int32 | ~int64](n T) time.Duration { return time.Duration(n) * time.Second }

func or[T comparable](value, unset T) T {
	var zero T
	if value == zero {
		return unset
	}
	return value
}

func deref[T any](p *T, unset T) T {
	if p == nil {
		return unset
	}
	return *p
}
