package toolbox

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// pattern is a glob over slash-separated paths: * and ? do not match a slash,
// [a-z] is a class, {a,b} an alternative, and ** any number of directories.
type pattern struct {
	alternatives [][]string // segments
}

// maxAlternatives bounds what braces may expand to.
const maxAlternatives = 256

// errPattern marks a pattern that cannot be read.
var errPattern = errors.New("not a valid glob")

func parsePattern(glob string) (pattern, error) {
	expanded, err := expandBraces(glob)
	if err != nil {
		return pattern{}, err
	}
	var p pattern
	for _, alternative := range expanded {
		segments := strings.Split(path.Clean(alternative), "/")
		for _, segment := range segments {
			if _, err := path.Match(segment, ""); err != nil {
				return pattern{}, fmt.Errorf("%w: %q: %w", errPattern, glob, err)
			}
		}
		p.alternatives = append(p.alternatives, segments)
	}
	return p, nil
}

// expandBraces turns a{b,c} into ab and ac; braces may be nested.
func expandBraces(glob string) ([]string, error) {
	open := strings.IndexByte(glob, '{')
	if open < 0 {
		return []string{glob}, nil
	}
	depth, from := 0, open+1
	var options []string
	for i := open; i < len(glob); i++ {
		switch glob[i] {
		case '{':
			depth++
		case ',':
			if depth == 1 {
				options = append(options, glob[from:i])
				from = i + 1
			}
		case '}':
			if depth--; depth > 0 {
				continue
			}
			options = append(options, glob[from:i])
			var all []string
			for _, option := range options {
				rest, err := expandBraces(glob[:open] + option + glob[i+1:])
				if err != nil {
					return nil, err
				}
				if all = append(all, rest...); len(all) > maxAlternatives {
					return nil, fmt.Errorf("%w: %q has more than %d alternatives", errPattern, glob, maxAlternatives)
				}
			}
			return all, nil
		}
	}
	return nil, fmt.Errorf("%w: %q has a { without its }", errPattern, glob)
}

func (p pattern) match(name string) bool {
	segments := strings.Split(name, "/")
	for _, alternative := range p.alternatives {
		if matchSegments(alternative, segments) {
			return true
		}
	}
	return false
}

// matchSegments matches with one remembered ** at a time, which is enough: a
// later ** can take whatever an earlier one could have taken more. So it is
// quadratic at worst.
func matchSegments(glob, name []string) bool {
	g, n := 0, 0
	starG, starN := -1, 0
	for n < len(name) {
		if g < len(glob) && glob[g] == "**" {
			starG, starN = g, n
			g++
			continue
		}
		if g < len(glob) {
			if ok, _ := path.Match(glob[g], name[n]); ok {
				g, n = g+1, n+1
				continue
			}
		}
		if starG < 0 {
			return false
		}
		starN++
		g, n = starG+1, starN
	}
	for g < len(glob) && glob[g] == "**" {
		g++
	}
	return g == len(glob)
}
