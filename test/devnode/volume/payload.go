package volume

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"belay.dev/belay/test/devnode/podenv"
)

// file is one file of a volume whose contents come from the API.
type file struct {
	data []byte
	mode os.FileMode
	// uid owns the file; -1 is whoever writes it.
	uid int
}

// payload is such a volume's contents by relative path.
type payload map[string]file

func (m *Manager) fill(ctx context.Context, pod *corev1.Pod, v *corev1.Volume, dir string) error {
	files, err := m.collect(ctx, pod, v, dir)
	if err != nil {
		return err
	}
	digest := files.digest()
	m.mu.Lock()
	same := m.written[dir] == digest
	m.mu.Unlock()
	if same {
		return nil
	}
	err = writeAtomically(dir, files, func(staged string) error { return own(staged, pod.Spec.SecurityContext, true) })
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.written[dir] = digest
	m.mu.Unlock()
	return nil
}

// collect reads a volume's contents.
func (m *Manager) collect(ctx context.Context, pod *corev1.Pod, v *corev1.Volume, dir string) (payload, error) {
	sources := Sources{Client: m.cfg.Client, Namespace: pod.Namespace}
	out := payload{}
	switch {
	case v.Secret != nil:
		s := v.Secret
		return out, out.secret(ctx, sources, s.SecretName, s.Items, isTrue(s.Optional), mode(s.DefaultMode))
	case v.ConfigMap != nil:
		s := v.ConfigMap
		return out, out.configMap(ctx, sources, s.Name, s.Items, isTrue(s.Optional), mode(s.DefaultMode))
	case v.DownwardAPI != nil:
		return out, m.downward(pod, out, v.DownwardAPI.Items, mode(v.DownwardAPI.DefaultMode))
	case v.Projected == nil:
		return nil, errors.New("this type of volume is not supported")
	}
	fallback := mode(v.Projected.DefaultMode)
	for i := range v.Projected.Sources {
		var err error
		switch p := &v.Projected.Sources[i]; {
		case p.Secret != nil:
			err = out.secret(ctx, sources, p.Secret.Name, p.Secret.Items, isTrue(p.Secret.Optional), fallback)
		case p.ConfigMap != nil:
			err = out.configMap(ctx, sources, p.ConfigMap.Name, p.ConfigMap.Items, isTrue(p.ConfigMap.Optional), fallback)
		case p.DownwardAPI != nil:
			err = m.downward(pod, out, p.DownwardAPI.Items, fallback)
		case p.ServiceAccountToken != nil:
			err = m.token(ctx, pod, out, p.ServiceAccountToken, dir, fallback)
		default:
			err = errors.New("this projected source is not supported")
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func isTrue(b *bool) bool { return b != nil && *b }

// mode is the mode of files; the API's default is 0644.
func mode(m *int32) os.FileMode { return os.FileMode(ptr.Deref(m, 0o644)) }

func (p payload) secret(ctx context.Context, sources Sources, name string, items []corev1.KeyToPath, optional bool, fallback os.FileMode) error {
	data, err := sources.Secret(ctx, name)
	return p.add("secret", name, data, err, items, optional, fallback)
}

func (p payload) configMap(ctx context.Context, sources Sources, name string, items []corev1.KeyToPath, optional bool, fallback os.FileMode) error {
	data := map[string][]byte{}
	cm, err := sources.Client.CoreV1().ConfigMaps(sources.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		err = missing(err)
	} else {
		maps.Copy(data, cm.BinaryData)
		for k, v := range cm.Data {
			data[k] = []byte(v)
		}
	}
	return p.add("configmap", name, data, err, items, optional, fallback)
}

func (p payload) add(kind, name string, data map[string][]byte, err error, items []corev1.KeyToPath, optional bool, fallback os.FileMode) error {
	if err != nil {
		if optional && errors.Is(err, podenv.ErrNotFound) {
			return nil
		}
		return fmt.Errorf("%s %q: %w", kind, name, err)
	}
	if len(items) == 0 {
		for key, value := range data {
			p[key] = file{data: value, mode: fallback, uid: -1}
		}
		return nil
	}
	for _, item := range items {
		value, ok := data[item.Key]
		if !ok {
			if optional {
				continue
			}
			return fmt.Errorf("%s %q references non-existent key: %s", kind, name, item.Key)
		}
		f := file{data: value, mode: fallback, uid: -1}
		if item.Mode != nil {
			f.mode = os.FileMode(*item.Mode)
		}
		p[path.Clean(item.Path)] = f
	}
	return nil
}

func (m *Manager) downward(pod *corev1.Pod, out payload, items []corev1.DownwardAPIVolumeFile, fallback os.FileMode) error {
	for _, item := range items {
		var value string
		var err error
		switch {
		case item.FieldRef != nil:
			value, err = podenv.Field(pod, item.FieldRef.FieldPath, m.cfg.Facts)
		case item.ResourceFieldRef != nil:
			value, err = podenv.Resource(pod, &pod.Spec.Containers[0], item.ResourceFieldRef, m.cfg.Facts)
		}
		if err != nil {
			return fmt.Errorf("file %s: %w", item.Path, err)
		}
		f := file{data: []byte(value), mode: fallback, uid: -1}
		if item.Mode != nil {
			f.mode = os.FileMode(*item.Mode)
		}
		out[path.Clean(item.Path)] = f
	}
	return nil
}

// token adds a token bound to the pod, a new one when the last one ages.
func (m *Manager) token(ctx context.Context, pod *corev1.Pod, out payload, source *corev1.ServiceAccountTokenProjection, dir string, fallback os.FileMode) error {
	key := filepath.Join(dir, source.Path)
	m.mu.Lock()
	t := m.tokens[key]
	m.mu.Unlock()
	if t.due(m.cfg.Clock.Now()) {
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: source.ExpirationSeconds,
			BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
		}}
		if source.Audience != "" {
			request.Spec.Audiences = []string{source.Audience}
		}
		issued := m.cfg.Clock.Now()
		reply, err := m.cfg.Client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
		switch {
		case err == nil:
			t = token{value: reply.Status.Token, issued: issued, expiry: reply.Status.ExpirationTimestamp.Time}
			m.mu.Lock()
			m.tokens[key] = t
			m.mu.Unlock()
		case t.value == "" || !issued.Before(t.expiry):
			return fmt.Errorf("request a token for service account %q: %w", pod.Spec.ServiceAccountName, err)
		}
	}
	f := file{data: []byte(t.value), mode: fallback, uid: -1}
	// A token is for its user only, where that is known.
	user := onlyUser(pod)
	if user >= 0 || fsGroup(pod.Spec.SecurityContext) >= 0 {
		f.mode, f.uid = 0o600, user
	}
	out[path.Clean(source.Path)] = f
	return nil
}

// onlyUser is the user that all containers run as, or -1.
func onlyUser(pod *corev1.Pod) int {
	user := -1
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			var as *int64
			if sc := pod.Spec.SecurityContext; sc != nil {
				as = sc.RunAsUser
			}
			if sc := list[i].SecurityContext; sc != nil && sc.RunAsUser != nil {
				as = sc.RunAsUser
			}
			if as == nil || user >= 0 && user != int(*as) {
				return -1
			}
			user = int(*as)
		}
	}
	return user
}
