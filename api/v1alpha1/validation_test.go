package v1alpha1_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// crd is a generated CustomResourceDefinition with the validators that an API server builds from it.
type crd struct {
	structural *structuralschema.Structural
	openAPI    validation.SchemaValidator
	rules      *cel.Validator
}

func loadCRD(t *testing.T, plural string) crd {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "config", "crd", "bases", "agents.belay.dev_"+plural+".yaml"))
	if err != nil {
		t.Fatalf("reading the generated CRD: %v", err)
	}
	var versioned apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(raw, &versioned); err != nil {
		t.Fatalf("decoding the generated CRD: %v", err)
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinition(&versioned)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&versioned.Spec)
	versioned.Status.StoredVersions = []string{"v1alpha1"}
	var internal apiextensions.CustomResourceDefinition
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&versioned, &internal, nil); err != nil {
		t.Fatalf("converting the generated CRD: %v", err)
	}
	if errs := crdvalidation.ValidateCustomResourceDefinition(t.Context(), &internal); len(errs) > 0 {
		t.Fatalf("an API server would refuse the CRD: %v", errs.ToAggregate())
	}
	schema := internal.Spec.Validation
	if schema == nil {
		schema = internal.Spec.Versions[0].Schema
	}
	structural, err := structuralschema.NewStructural(schema.OpenAPIV3Schema)
	if err != nil {
		t.Fatalf("building the structural schema: %v", err)
	}
	openAPI, _, err := validation.NewSchemaValidator(schema.OpenAPIV3Schema)
	if err != nil {
		t.Fatalf("building the OpenAPI validator: %v", err)
	}
	return crd{structural: structural, openAPI: openAPI, rules: cel.NewValidator(structural, true, celconfig.PerCallLimit)}
}

func object(t *testing.T, manifest string) map[string]any {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(manifest))
	if err != nil {
		t.Fatalf("decoding %q: %v", manifest, err)
	}
	var obj map[string]any
	if err := json.Unmarshal(raw, &obj); err != nil { // integers stay integers
		t.Fatalf("decoding %q: %v", manifest, err)
	}
	return obj
}

// validate is what an API server does with a create (old is nil) or an update, in strict field validation.
func (c crd) validate(ctx context.Context, t *testing.T, obj, old map[string]any) field.ErrorList {
	t.Helper()
	var errs field.ErrorList
	pruned := object(t, encode(t, obj))
	for _, path := range pruning.PruneWithOptions(pruned, c.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		errs = append(errs, field.Forbidden(field.NewPath(path), "unknown field"))
	}
	var oldAny any
	if old == nil {
		errs = append(errs, validation.ValidateCustomResource(nil, obj, c.openAPI)...)
	} else {
		errs = append(errs, validation.ValidateCustomResourceUpdate(nil, obj, old, c.openAPI)...)
		oldAny = old
	}
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, c.structural, obj)...)
	if len(errs) > 0 {
		return errs
	}
	celErrs, _ := c.rules.Validate(ctx, nil, c.structural, obj, oldAny, celconfig.RuntimeCELCostBudget)
	return celErrs
}

func encode(t *testing.T, obj map[string]any) string {
	t.Helper()
	raw, err := yaml.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// set returns manifest with the value at a dotted path replaced; nil removes it. A path element in digits is a list index.
func set(t *testing.T, manifest, path string, value any) map[string]any {
	t.Helper()
	obj := object(t, manifest)
	parts := strings.Split(path, ".")
	var node any = obj
	for i, part := range parts {
		last := i == len(parts)-1
		switch n := node.(type) {
		case map[string]any:
			if last {
				if value == nil {
					delete(n, part)
				} else {
					n[part] = value
				}
				break
			}
			if n[part] == nil {
				n[part] = map[string]any{}
			}
			node = n[part]
		case []any:
			var index int
			if _, err := fmt.Sscan(part, &index); err != nil || index >= len(n) {
				t.Fatalf("path %s: no index %s", path, part)
			}
			if last {
				n[index] = value
				break
			}
			node = n[index]
		default:
			t.Fatalf("path %s: %s is %T", path, part, node)
		}
	}
	return object(t, encode(t, obj))
}

func wantErrors(t *testing.T, errs field.ErrorList, want string) {
	t.Helper()
	if want == "" {
		if len(errs) > 0 {
			t.Errorf("got %v, want it accepted", errs.ToAggregate())
		}
		return
	}
	if len(errs) == 0 {
		t.Fatalf("accepted, want an error with %q", want)
	}
	if got := errs.ToAggregate().Error(); !strings.Contains(got, want) {
		t.Errorf("got %s\nwant an error with %q", got, want)
	}
}

func list(items ...any) []any { return append([]any{}, items...) }

func fields(pairs ...any) map[string]any {
	m := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i].(string)] = pairs[i+1]
	}
	return m
}

func TestSamplesAreValid(t *testing.T) {
	crds := map[string]crd{"AgentRun": loadCRD(t, "agentruns"), "RouteLadder": loadCRD(t, "routeladders"), "ProviderHealth": loadCRD(t, "providerhealths")}
	files, err := filepath.Glob(filepath.Join("..", "..", "config", "samples", "*", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq(string(raw), "\n---\n") {
			obj := object(t, document)
			kind, _ := obj["kind"].(string)
			c, ours := crds[kind]
			if !ours {
				continue
			}
			checked++
			if errs := c.validate(t.Context(), t, obj, nil); len(errs) > 0 {
				t.Errorf("%s: %v", file, errs.ToAggregate())
			}
		}
	}
	if checked == 0 {
		t.Fatal("found no sample of this API in config/samples")
	}
}
