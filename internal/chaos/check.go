package chaos

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"unicode/utf8"
)

// rejection is one reason why a request is refused.
type rejection struct {
	status int
	// kind picks the dialect's name for the class of the error; typeName replaces it.
	kind     errorKind
	typeName string
	code     string
	param    string
	message  string
}

// errorKind is a class of errors for which each dialect has a name.
type errorKind int

const (
	kindInvalid errorKind = iota
	kindAuthentication
	kindPermission
	kindNotFound
	kindConflict
	kindTooLarge
	kindRateLimit
	kindServer
	kindOverloaded
	kindTimeout
	kindBilling
	kindScriptExhausted
)

// kindOfStatus is the class that a scripted status belongs to.
func kindOfStatus(status int) errorKind {
	switch status {
	case 401:
		return kindAuthentication
	case 402:
		return kindBilling
	case 403:
		return kindPermission
	case 404:
		return kindNotFound
	case 409:
		return kindConflict
	case 413:
		return kindTooLarge
	case 429:
		return kindRateLimit
	case 408, 504:
		return kindTimeout
	case 529:
		return kindOverloaded
	}
	if status >= 500 {
		return kindServer
	}
	return kindInvalid
}

// checker collects what is wrong with a request.
type checker struct{ found []rejection }

func (c *checker) reject(param, format string, args ...any) {
	c.rejectCode(param, "", format, args...)
}

func (c *checker) rejectCode(param, code, format string, args ...any) {
	c.found = append(c.found, rejection{status: 400, kind: kindInvalid, code: code, param: param, message: fmt.Sprintf(format, args...)})
}

var (
	toolNameGrammar = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	openAIIDGrammar = regexp.MustCompile(`^[A-Za-z0-9_-]{1,40}$`)
	mistralGrammar  = regexp.MustCompile(`^[A-Za-z0-9]{9}$`)
	toolUseGrammar  = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
)

// parseObject parses a body that must be one JSON object in valid UTF-8 without lone surrogates.
func parseObject(body []byte) (map[string]any, error) {
	if !utf8.Valid(body) {
		return nil, errors.New("the body is not valid UTF-8")
	}
	if i := loneSurrogate(body); i >= 0 {
		return nil, fmt.Errorf("the body has a lone surrogate at byte %d", i)
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var object map[string]any
	if err := dec.Decode(&object); err != nil {
		// A syntax error's text quotes at most one character of the body.
		return nil, fmt.Errorf("the body is not a JSON object: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the body has data after its JSON object")
	}
	if object == nil {
		return nil, errors.New("the body is not a JSON object: it is null")
	}
	return object, nil
}

// loneSurrogate returns the offset of the first \u escape of one half of a surrogate pair, or -1.
func loneSurrogate(body []byte) int {
	half := func(i int) uint64 {
		if i+6 > len(body) || body[i] != '\\' || body[i+1] != 'u' {
			return 0
		}
		v, err := strconv.ParseUint(string(body[i+2:i+6]), 16, 16)
		if err != nil {
			return 0
		}
		return v
	}
	for i := 0; i < len(body); i++ {
		if body[i] != '\\' {
			continue
		}
		switch v := half(i); {
		case v >= 0xD800 && v < 0xDC00:
			if low := half(i + 6); low < 0xDC00 || low > 0xDFFF {
				return i
			}
			i += 11
		case v >= 0xDC00 && v <= 0xDFFF:
			return i
		default:
			i++ // the escaped character, which may be a backslash
		}
	}
	return -1
}

// known rejects fields outside the list.
func (c *checker) known(path string, o map[string]any, fields ...string) {
	for _, name := range slices.Sorted(maps.Keys(o)) {
		if !slices.Contains(fields, name) {
			c.rejectCode(at(path, name), "unknown_parameter", "Unknown parameter: '%s'.", at(path, name))
		}
	}
}

// integer reads an optional whole number of at least least.
func (c *checker) integer(path string, o map[string]any, name string, least int64) (int64, bool) {
	v, set := o[name]
	if !set || v == nil {
		return 0, false
	}
	number, ok := v.(json.Number)
	if !ok {
		c.rejectCode(at(path, name), "invalid_type", "'%s' must be an integer.", at(path, name))
		return 0, false
	}
	n, err := number.Int64()
	if err != nil {
		c.rejectCode(at(path, name), "invalid_type", "'%s' must be an integer.", at(path, name))
		return 0, false
	}
	if n < least {
		c.rejectCode(at(path, name), "integer_below_min_value", "'%s' must be at least %d, got %d.", at(path, name), least, n)
		return 0, false
	}
	return n, true
}

// number checks an optional number within bounds.
func (c *checker) number(path string, o map[string]any, name string, least, most float64) {
	v, set := o[name]
	if !set || v == nil {
		return
	}
	number, ok := v.(json.Number)
	if !ok {
		c.rejectCode(at(path, name), "invalid_type", "'%s' must be a number.", at(path, name))
		return
	}
	if f, err := number.Float64(); err != nil || f < least || f > most {
		c.rejectCode(at(path, name), "decimal_out_of_range", "'%s' must be between %g and %g.", at(path, name), least, most)
	}
}

// boolean reads an optional boolean.
func (c *checker) boolean(path string, o map[string]any, name string) (value, set bool) {
	v, present := o[name]
	if !present || v == nil {
		return false, false
	}
	b, ok := v.(bool)
	if !ok {
		c.rejectCode(at(path, name), "invalid_type", "'%s' must be a boolean.", at(path, name))
	}
	return b, ok
}

// schema checks a tool's parameters: a JSON Schema of an object.
func (c *checker) schema(path string, v any) {
	o, ok := v.(map[string]any)
	if !ok || o["type"] != "object" {
		c.rejectCode(path, "invalid_function_parameters", "'%s' must be a JSON Schema of type \"object\".", path)
		return
	}
	if properties, set := o["properties"]; set {
		props, ok := properties.(map[string]any)
		if !ok {
			c.rejectCode(path, "invalid_function_parameters", "'%s.properties' must be an object.", path)
		}
		for _, name := range slices.Sorted(maps.Keys(props)) {
			switch props[name].(type) {
			case map[string]any, bool:
			default:
				c.rejectCode(path, "invalid_function_parameters", "'%s.properties.%s' is not a schema.", path, name)
			}
		}
	}
	if required, set := o["required"]; set {
		names, ok := required.([]any)
		if !ok || slices.ContainsFunc(names, func(n any) bool { _, isString := n.(string); return !isString }) {
			c.rejectCode(path, "invalid_function_parameters", "'%s.required' must be an array of strings.", path)
		}
	}
}

func at(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func item(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }
