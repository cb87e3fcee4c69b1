package manifest

import (
	"context"
	"fmt"
	"io/fs"
	"math"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"belay.dev/belay/config/crd"
)

// celCostBudget is the budget that the API server gives the rules of one object.
const celCostBudget = 10_000_000

// rules judge one kind as the API server does: unknown fields, the OpenAPI schema, the CEL rules.
type rules struct {
	structural *schema.Structural
	openAPI    validation.SchemaCreateValidator
	cel        *cel.Validator
}

// loadRules reads the rules of every kind and version of the embedded CustomResourceDefinitions.
func loadRules() (map[string]rules, error) {
	files, err := fs.Glob(crd.Bases, "bases/*.yaml")
	if err != nil {
		return nil, err
	}
	all := map[string]rules{}
	for _, file := range files {
		data, err := crd.Bases.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var definition apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(data, &definition); err != nil {
			return nil, fmt.Errorf("read the embedded %s: %w", file, err)
		}
		for _, version := range definition.Spec.Versions {
			r, err := newRules(version.Schema.OpenAPIV3Schema)
			if err != nil {
				return nil, fmt.Errorf("compile the embedded %s: %w", file, err)
			}
			all[definition.Spec.Group+"/"+version.Name+"/"+definition.Spec.Names.Kind] = r
		}
	}
	return all, nil
}

func newRules(v1 *apiextensionsv1.JSONSchemaProps) (rules, error) {
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v1, &internal, nil); err != nil {
		return rules{}, err
	}
	structural, err := schema.NewStructural(&internal)
	if err != nil {
		return rules{}, err
	}
	openAPI, _, err := validation.NewSchemaValidator(&internal)
	if err != nil {
		return rules{}, err
	}
	return rules{structural: structural, openAPI: openAPI, cel: cel.NewValidator(structural, true, math.MaxInt64)}, nil
}

// judge returns everything that is wrong with an object.
func (r rules) judge(object map[string]any) field.ErrorList {
	var errs field.ErrorList
	pruned := pruning.PruneWithOptions(object, r.structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	for _, path := range pruned {
		errs = append(errs, field.Invalid(field.NewPath(path), field.OmitValueType{}, "unknown field"))
	}
	errs = append(errs, validation.ValidateCustomResource(nil, object, r.openAPI)...)
	if len(errs) > 0 || r.cel == nil {
		return errs
	}
	broken, _ := r.cel.Validate(context.Background(), nil, r.structural, object, nil, celCostBudget)
	return append(errs, broken...)
}
