// Package podenv resolves a container's environment, command and arguments as
// the kubelet does: envFrom first, then env in order, with $(NAME) references to
// what came before.
//
// It is pure; secrets and config maps come through Sources. It imports core/v1
// and apimachinery only.
package podenv

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Sources reads the objects that an environment refers to. It returns
// ErrNotFound, wrapped, for one that does not exist.
type Sources interface {
	ConfigMap(ctx context.Context, name string) (map[string]string, error)
	Secret(ctx context.Context, name string) (map[string][]byte, error)
}

// ErrNotFound says that a referenced object or key does not exist.
var ErrNotFound = errors.New("not found")

// Facts is what downward API fields resolve to beside the pod itself.
type Facts struct {
	HostIP string
	PodIP  string
	// Base comes before everything else: the image's environment and the API
	// server's address. Any part of the pod's environment replaces it.
	Base []corev1.EnvVar
	// Allocatable stands in for limits that are not set.
	Allocatable corev1.ResourceList
}

// Environment returns the container's environment in a stable order.
func Environment(ctx context.Context, pod *corev1.Pod, c *corev1.Container, facts Facts, sources Sources) ([]corev1.EnvVar, error) {
	values := map[string]string{}
	var order []string
	set := func(name, value string) {
		if _, known := values[name]; !known {
			order = append(order, name)
		}
		values[name] = value
	}
	for _, v := range facts.Base {
		set(v.Name, v.Value)
	}
	for i := range c.EnvFrom {
		vars, err := fromSource(ctx, &c.EnvFrom[i], sources)
		if err != nil {
			return nil, err
		}
		for _, name := range slices.Sorted(maps.Keys(vars)) {
			set(name, vars[name])
		}
	}
	for i := range c.Env {
		v := &c.Env[i]
		if v.ValueFrom == nil {
			set(v.Name, Expand(v.Value, values))
			continue
		}
		value, found, err := fromValue(ctx, pod, c, v.ValueFrom, facts, sources)
		if err != nil {
			return nil, fmt.Errorf("environment variable %s: %w", v.Name, err)
		}
		if found {
			set(v.Name, value)
		}
	}
	out := make([]corev1.EnvVar, 0, len(order))
	for _, name := range order {
		out = append(out, corev1.EnvVar{Name: name, Value: values[name]})
	}
	return out, nil
}

func fromSource(ctx context.Context, from *corev1.EnvFromSource, sources Sources) (map[string]string, error) {
	out := map[string]string{}
	switch {
	case from.ConfigMapRef != nil:
		data, err := sources.ConfigMap(ctx, from.ConfigMapRef.Name)
		if err != nil && (!isTrue(from.ConfigMapRef.Optional) || !errors.Is(err, ErrNotFound)) {
			return nil, fmt.Errorf("configmap %q: %w", from.ConfigMapRef.Name, err)
		}
		for k, v := range data {
			out[from.Prefix+k] = v
		}
	case from.SecretRef != nil:
		data, err := sources.Secret(ctx, from.SecretRef.Name)
		if err != nil && (!isTrue(from.SecretRef.Optional) || !errors.Is(err, ErrNotFound)) {
			return nil, fmt.Errorf("secret %q: %w", from.SecretRef.Name, err)
		}
		for k, v := range data {
			out[from.Prefix+k] = string(v)
		}
	}
	for name := range out {
		// A key that cannot name a variable is left out.
		if len(validation.IsEnvVarName(name)) > 0 {
			delete(out, name)
		}
	}
	return out, nil
}

func fromValue(ctx context.Context, pod *corev1.Pod, c *corev1.Container, from *corev1.EnvVarSource, facts Facts, sources Sources) (value string, found bool, err error) {
	switch {
	case from.FieldRef != nil:
		value, err = Field(pod, from.FieldRef.FieldPath, facts)
		return value, err == nil, err
	case from.ResourceFieldRef != nil:
		value, err = Resource(pod, c, from.ResourceFieldRef, facts)
		return value, err == nil, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		data, err := sources.ConfigMap(ctx, ref.Name)
		v, ok := data[ref.Key]
		return keyed(v, ok, err, ref.Optional, "configmap", ref.Name, ref.Key)
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		data, err := sources.Secret(ctx, ref.Name)
		v, ok := data[ref.Key]
		return keyed(string(v), ok, err, ref.Optional, "secret", ref.Name, ref.Key)
	}
	return "", false, errors.New("this source of a value is not supported")
}

func keyed(value string, ok bool, err error, optional *bool, kind, name, key string) (string, bool, error) {
	switch {
	case err != nil && errors.Is(err, ErrNotFound) && isTrue(optional):
		return "", false, nil
	case err != nil:
		return "", false, fmt.Errorf("%s %q: %w", kind, name, err)
	case !ok && isTrue(optional):
		return "", false, nil
	case !ok:
		return "", false, fmt.Errorf("couldn't find key %s in %s %q: %w", key, kind, name, ErrNotFound)
	}
	return value, true, nil
}

func isTrue(b *bool) bool { return b != nil && *b }

// Field resolves a downward API field path.
func Field(pod *corev1.Pod, path string, facts Facts) (string, error) {
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return formatMap(pod.Labels), nil
	case "metadata.annotations":
		return formatMap(pod.Annotations), nil
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP", "status.hostIPs":
		return facts.HostIP, nil
	case "status.podIP", "status.podIPs":
		return facts.PodIP, nil
	}
	for prefix, from := range map[string]map[string]string{"metadata.labels['": pod.Labels, "metadata.annotations['": pod.Annotations} {
		if key, ok := strings.CutPrefix(path, prefix); ok {
			return from[strings.TrimSuffix(key, "']")], nil
		}
	}
	return "", fmt.Errorf("field %q is not one of the downward API", path)
}

// formatMap writes one key="value" a line, sorted.
func formatMap(m map[string]string) string {
	var b strings.Builder
	for i, k := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s=%q", k, m[k])
	}
	return b.String()
}

// Resource resolves a container's request or limit, divided and rounded up. A
// limit that is not set is what the node has.
func Resource(pod *corev1.Pod, c *corev1.Container, ref *corev1.ResourceFieldSelector, facts Facts) (string, error) {
	if ref.ContainerName != "" {
		all := append(slices.Clone(pod.Spec.InitContainers), pod.Spec.Containers...)
		i := slices.IndexFunc(all, func(c corev1.Container) bool { return c.Name == ref.ContainerName })
		if i < 0 {
			return "", fmt.Errorf("the pod has no container %q", ref.ContainerName)
		}
		c = &all[i]
	}
	kind, name, ok := strings.Cut(ref.Resource, ".")
	var list corev1.ResourceList
	switch {
	case ok && kind == "limits":
		list = c.Resources.Limits
	case ok && kind == "requests":
		list = c.Resources.Requests
	default:
		return "", fmt.Errorf("resource %q is neither a limit nor a request", ref.Resource)
	}
	quantity, set := list[corev1.ResourceName(name)]
	if !set && kind == "limits" {
		quantity = facts.Allocatable[corev1.ResourceName(name)]
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if corev1.ResourceName(name) == corev1.ResourceCPU {
		return strconv.FormatInt(int64(math.Ceil(float64(quantity.MilliValue())/float64(divisor.MilliValue()))), 10), nil
	}
	return strconv.FormatInt(int64(math.Ceil(float64(quantity.Value())/float64(divisor.Value()))), 10), nil
}
