package podenv

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Expand replaces $(NAME) by the value of NAME. A name without a value stays as
// it is written, and $$ is one $ that begins no reference.
func Expand(text string, values map[string]string) string {
	var b strings.Builder
	for {
		at := strings.IndexByte(text, '$')
		if at < 0 || at+1 == len(text) {
			b.WriteString(text)
			return b.String()
		}
		b.WriteString(text[:at])
		text = text[at:]
		switch text[1] {
		case '$':
			b.WriteByte('$')
			text = text[2:]
		case '(':
			end := strings.IndexByte(text, ')')
			if end < 0 {
				// An unfinished reference is text up to here.
				b.WriteString("$(")
				text = text[2:]
				continue
			}
			if value, ok := values[text[2:end]]; ok {
				b.WriteString(value)
			} else {
				b.WriteString(text[:end+1])
			}
			text = text[end+1:]
		default:
			b.WriteString(text[:2])
			text = text[2:]
		}
	}
}

// Command joins what the pod and the image say about the command: a pod's
// command replaces the image's entrypoint and its default arguments, a pod's
// arguments replace the image's.
func Command(c *corev1.Container, entrypoint, defaults []string, env []corev1.EnvVar) []string {
	values := Lookup(env)
	expand := func(list []string) []string {
		out := make([]string, len(list))
		for i, s := range list {
			out[i] = Expand(s, values)
		}
		return out
	}
	command, args := expand(c.Command), expand(c.Args)
	if len(c.Command) == 0 {
		command = entrypoint
		if len(c.Args) == 0 {
			args = defaults
		}
	}
	return append(append([]string{}, command...), args...)
}

// Strings writes an environment as NAME=value.
func Strings(env []corev1.EnvVar) []string {
	out := make([]string, len(env))
	for i, v := range env {
		out[i] = v.Name + "=" + v.Value
	}
	return out
}

// Lookup makes a map of an environment.
func Lookup(env []corev1.EnvVar) map[string]string {
	out := make(map[string]string, len(env))
	for _, v := range env {
		out[v.Name] = v.Value
	}
	return out
}
