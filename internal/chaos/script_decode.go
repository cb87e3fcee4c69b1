package chaos

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	yamlnode "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"

	"belay.dev/belay/internal/runtime/route"
)

// ScriptError says what is wrong with a script and where.
type ScriptError struct {
	// Leg is the leg's name, empty for an error outside all legs.
	Leg string
	// Step is the step's number, from 1; 0 for an error outside all steps.
	Step int
	// Field is the field inside the leg or step.
	Field string
	// Line is the line in the YAML text, from 1; 0 when unknown.
	Line int
	// Problem says what is wrong.
	Problem string
}

func (e *ScriptError) Error() string {
	var where []string
	if e.Line > 0 {
		where = append(where, "line "+strconv.Itoa(e.Line))
	}
	if e.Leg != "" {
		where = append(where, fmt.Sprintf("leg %q", e.Leg))
	}
	if e.Step > 0 {
		where = append(where, "step "+strconv.Itoa(e.Step))
	}
	if e.Field != "" {
		where = append(where, "field "+e.Field)
	}
	if len(where) == 0 {
		return "chaos script: " + e.Problem
	}
	return "chaos script: " + strings.Join(where, ", ") + ": " + e.Problem
}

// ParseScript reads a script. Unknown fields and values that make no sense are errors; each is a *ScriptError naming leg,
// step, field and line, and several are joined.
func ParseScript(text []byte) (*Script, error) {
	data, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, &ScriptError{Problem: err.Error()}
	}
	d := decoder{}
	// The text parsed above, so this parse, which is for line numbers only, cannot fail in a way that matters.
	_ = yamlnode.Unmarshal(text, &d.root)
	script := d.script(data)
	if len(d.errs) > 0 {
		return nil, errors.Join(d.errs...)
	}
	return script, nil
}

type decoder struct {
	root yamlnode.Node
	errs []error
}

// fail records an error at a path below the document, such as legs, primary, steps, 0, times.
func (d *decoder) fail(leg string, step int, field, problem string) {
	d.errs = append(d.errs, &ScriptError{Leg: leg, Step: step, Field: field, Problem: problem, Line: d.line(leg, step, field)})
}

func (d *decoder) line(leg string, step int, field string) int {
	path := []string{}
	if leg != "" {
		path = append(path, "legs", leg)
	}
	if step > 0 {
		path = append(path, "steps", strconv.Itoa(step-1))
	}
	path = append(path, strings.FieldsFunc(field, func(r rune) bool { return r == '.' || r == '[' || r == ']' })...)
	node, line := &d.root, 0
	if node.Kind == yamlnode.DocumentNode && len(node.Content) > 0 {
		node = node.Content[0]
		line = node.Line
	}
	for _, name := range path {
		next := (*yamlnode.Node)(nil)
		switch node.Kind {
		case yamlnode.MappingNode:
			for i := 0; i+1 < len(node.Content); i += 2 {
				if node.Content[i].Value == name {
					next, line = node.Content[i+1], node.Content[i].Line
				}
			}
		case yamlnode.SequenceNode:
			if i, err := strconv.Atoi(name); err == nil && i < len(node.Content) {
				next, line = node.Content[i], node.Content[i].Line
			}
		}
		if next == nil {
			break
		}
		if next.Kind == yamlnode.AliasNode {
			next = next.Alias
		}
		node = next
	}
	return line
}

func (d *decoder) script(data []byte) *Script {
	var raw struct {
		Legs map[string]json.RawMessage `json:"legs"`
	}
	if field, err := decodeStrict(data, &raw); err != nil {
		d.fail("", 0, field, err.Error())
		return nil
	}
	if len(raw.Legs) == 0 {
		d.fail("", 0, "legs", "a script needs at least one leg")
	}
	script := &Script{Legs: map[string]Leg{}}
	for _, name := range slices.Sorted(maps.Keys(raw.Legs)) {
		script.Legs[name] = d.leg(name, raw.Legs[name])
	}
	return script
}

func (d *decoder) leg(name string, data []byte) Leg {
	type plain Leg
	var raw struct {
		plain
		Steps []json.RawMessage `json:"steps"`
	}
	if !legName(name) {
		d.fail(name, 0, "", "a leg's name is a path segment: letters, digits, dots and dashes, starting with a letter or digit")
	}
	if field, err := decodeStrict(data, &raw); err != nil {
		d.fail(name, 0, field, err.Error())
		return Leg{}
	}
	leg := Leg(raw.plain)
	leg.Dialect = orDefault(leg.Dialect, route.OpenAIChat)
	leg.Vendor = orDefault(leg.Vendor, VendorOpenAI)
	leg.Advance = orDefault(leg.Advance, AdvancePerRequest)
	leg.UndeclaredCalls = orDefault(leg.UndeclaredCalls, UndeclaredAccept)
	for _, p := range leg.problems() {
		d.fail(name, 0, p.field, p.text)
	}
	for i, data := range raw.Steps {
		var step Step
		if field, err := decodeStrict(data, &step); err != nil {
			d.fail(name, i+1, field, err.Error())
			continue
		}
		step.Times = orDefault(step.Times, 1)
		step.Cut = orDefault(step.Cut, CutClose)
		for _, p := range step.problems(leg) {
			d.fail(name, i+1, p.field, p.text)
		}
		leg.Steps = append(leg.Steps, step)
	}
	return leg
}

func legName(s string) bool {
	for i, c := range s {
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || c != '-' && c != '.') {
			return false
		}
	}
	return s != ""
}

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// decodeStrict decodes one JSON value, refusing unknown fields, and names the field of an error as well as it can.
func decodeStrict(data []byte, into any) (field string, err error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	err = dec.Decode(into)
	if err == nil {
		if _, err = dec.Token(); errors.Is(err, io.EOF) {
			return "", nil
		}
		return "", errors.New("unexpected data after the value")
	}
	var wrongType *json.UnmarshalTypeError
	if errors.As(err, &wrongType) {
		return strings.TrimPrefix(wrongType.Field, "plain."), fmt.Errorf("want %s, got %s", wrongType.Type, wrongType.Value)
	}
	if name, found := strings.CutPrefix(err.Error(), "json: unknown field "); found {
		name = strings.Trim(name, `"`)
		return unknownFieldPath(data, name), errors.New("unknown field")
	}
	return countField(data), err
}

// unknownFieldPath finds where a field of that name is, since the decoder's error has the bare name only.
func unknownFieldPath(data []byte, name string) string {
	var value any
	if json.Unmarshal(data, &value) != nil {
		return name
	}
	if path, found := findField(value, name); found {
		return path
	}
	return name
}

func findField(value any, name string) (string, bool) {
	switch v := value.(type) {
	case map[string]any:
		if _, here := v[name]; here {
			return name, true
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if key == "arguments" {
				continue
			}
			if path, found := findField(v[key], name); found {
				return key + "." + path, true
			}
		}
	case []any:
		for i, element := range v {
			if path, found := findField(element, name); found {
				return strconv.Itoa(i) + "." + path, true
			}
		}
	}
	return "", false
}

// countField names the Count field that does not decode; Count's own errors are the only ones without a field.
func countField(data []byte) string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(data, &fields) != nil {
		return ""
	}
	for _, name := range []string{"times", "comments"} {
		var c Count
		if raw, set := fields[name]; set && json.Unmarshal(raw, &c) != nil {
			return name
		}
	}
	return ""
}
