// Package manifest reads the files of `belay run -f`: AgentRuns, RouteLadders, and the Secrets and ConfigMaps that they
// refer to. It judges Belay's own kinds by the rules that the API server would apply, so that a file which works here
// works there.
//
// It may import the API types, the embedded definitions and the Kubernetes libraries for schemas.
package manifest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"belay.dev/belay/api/v1alpha1"
)

// DefaultNamespace is the namespace of an object that names none.
const DefaultNamespace = "default"

// Set is the objects of all files.
type Set struct {
	Runs       []v1alpha1.AgentRun
	Ladders    []v1alpha1.RouteLadder
	Secrets    []corev1.Secret
	ConfigMaps []corev1.ConfigMap
}

// Load reads the files; "-" is stdin, and a folder stands for its .yaml, .yml and .json files. Every error names the file,
// the object and the field.
func Load(paths []string, stdin io.Reader) (Set, error) {
	all, err := loadRules()
	if err != nil {
		return Set{}, err
	}
	l := loader{rules: all, seen: map[string]string{}}
	files, err := expand(paths)
	if err != nil {
		return Set{}, err
	}
	for _, file := range files {
		if err := l.file(file, stdin); err != nil {
			return Set{}, err
		}
	}
	return l.set, nil
}

func expand(paths []string) ([]string, error) {
	var files []string
	for _, path := range paths {
		if path == "-" {
			files = append(files, path)
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("read manifest: %w", err)
		}
		if !info.IsDir() {
			files = append(files, path)
			continue
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, fmt.Errorf("read manifest folder: %w", err)
		}
		for _, e := range entries {
			if ext := filepath.Ext(e.Name()); !e.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, ext) {
				files = append(files, filepath.Join(path, e.Name()))
			}
		}
	}
	return files, nil
}

type loader struct {
	rules map[string]rules
	// seen maps kind, namespace and name to the place of the object.
	seen map[string]string
	set  Set
}

func (l *loader) file(path string, stdin io.Reader) error {
	in := stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("read manifest: %w", err)
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(in))
	for n := 1; ; n++ {
		doc, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read manifest %s: %w", path, err)
		}
		if len(bytes.TrimSpace(withoutComments(doc))) == 0 {
			continue
		}
		if err := l.document(fmt.Sprintf("%s, document %d", path, n), doc); err != nil {
			return err
		}
	}
}

func withoutComments(doc []byte) []byte {
	var kept [][]byte
	for line := range bytes.Lines(doc) {
		if t := bytes.TrimSpace(line); !bytes.HasPrefix(t, []byte("#")) && !bytes.Equal(t, []byte("---")) {
			kept = append(kept, line)
		}
	}
	return bytes.Join(kept, nil)
}

func (l *loader) document(place string, doc []byte) error {
	raw, err := yaml.YAMLToJSONStrict(doc)
	var object map[string]any
	if err == nil {
		// As in the API server, a number without a fraction is an integer: the CEL rules tell the two apart.
		err = utiljson.Unmarshal(raw, &object)
	}
	if err != nil {
		return fmt.Errorf("%s: not a YAML object: %w", place, err)
	}
	kind, apiVersion := text(object, "kind"), text(object, "apiVersion")
	if kind == "" || apiVersion == "" {
		return fmt.Errorf("%s: apiVersion and kind are required", place)
	}
	meta, _ := object["metadata"].(map[string]any)
	name, namespace := text(meta, "name"), text(meta, "namespace")
	if namespace == "" {
		namespace = DefaultNamespace
	}
	title := fmt.Sprintf("%s: %s %s/%s", place, kind, namespace, name)
	if name == "" {
		return fmt.Errorf("%s: metadata.name is required", title)
	}
	key := kind + " " + namespace + "/" + name
	if first, taken := l.seen[key]; taken {
		return fmt.Errorf("%s: an object of this kind and name stands in %s already; rename or remove one", title, first)
	}
	l.seen[key] = place
	return l.add(title, apiVersion, kind, namespace, object)
}

func text(m map[string]any, key string) string {
	s, _ := m[key].(string)
	return s
}

func (l *loader) add(title, apiVersion, kind, namespace string, object map[string]any) error {
	if apiVersion == "v1" {
		return l.addCore(title, kind, namespace, object)
	}
	r, known := l.rules[apiVersion+"/"+kind]
	if !known {
		return fmt.Errorf("%s: kind %s of %s is not for a run without a cluster; AgentRun, RouteLadder, Secret and ConfigMap are", title, kind, apiVersion)
	}
	if errs := r.judge(object); len(errs) > 0 {
		return fmt.Errorf("%s: %s", title, messages(errs))
	}
	switch kind {
	case "AgentRun":
		run, err := convert[v1alpha1.AgentRun](title, object)
		if err != nil {
			return err
		}
		run.Namespace = namespace
		l.set.Runs = append(l.set.Runs, run)
	case "RouteLadder":
		ladder, err := convert[v1alpha1.RouteLadder](title, object)
		if err != nil {
			return err
		}
		ladder.Namespace = namespace
		l.set.Ladders = append(l.set.Ladders, ladder)
	default:
		return fmt.Errorf("%s: a %s has a meaning in a cluster only; remove it", title, kind)
	}
	return nil
}

func (l *loader) addCore(title, kind, namespace string, object map[string]any) error {
	switch kind {
	case "Secret":
		secret, err := convert[corev1.Secret](title, object)
		if err != nil {
			return err
		}
		secret.Namespace = namespace
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		for k, v := range secret.StringData {
			secret.Data[k] = []byte(v)
		}
		l.set.Secrets = append(l.set.Secrets, secret)
	case "ConfigMap":
		config, err := convert[corev1.ConfigMap](title, object)
		if err != nil {
			return err
		}
		config.Namespace = namespace
		l.set.ConfigMaps = append(l.set.ConfigMaps, config)
	default:
		return fmt.Errorf("%s: only Secrets and ConfigMaps of v1 can be used without a cluster", title)
	}
	return nil
}

// convert turns a document into its type. The error of a Secret never quotes the document.
func convert[T any](title string, object map[string]any) (T, error) {
	var out T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object, &out, true); err != nil {
		if _, secret := any(out).(corev1.Secret); secret {
			return out, fmt.Errorf("%s: a field is unknown or of the wrong type; data is base64, stringData is plain text", title)
		}
		return out, fmt.Errorf("%s: %w", title, err)
	}
	return out, nil
}

func messages(errs field.ErrorList) string {
	lines := make([]string, len(errs))
	for i, e := range errs {
		lines[i] = strings.TrimPrefix(e.Error(), "<nil>: ")
	}
	return strings.Join(lines, "; ")
}
