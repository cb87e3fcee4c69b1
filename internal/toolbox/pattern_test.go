package toolbox

import (
	"errors"
	"path"
	"strings"
	"testing"
)

func TestPatternsMatchPaths(t *testing.T) {
	tests := []struct {
		glob, name string
		want       bool
	}{
		{"*.go", "a.go", true}, {"*.go", "d/a.go", false}, {"**/*.go", "a.go", true}, {"**/*.go", "d/e/a.go", true},
		{"**", "d/e/a.go", true}, {"d/**", "d/e", true}, {"d/**", "d", true}, {"d/**/a", "d/a", true}, {"d/**/a", "d/x/y/a", true},
		{"d/**/a", "d/x/y/b", false}, {"**/x/**/y", "x/y", true}, {"**/x/**/y", "a/x/b/x/c/y", true}, {"**/x/**/y", "a/y/b/x", false},
		{"?.go", "a.go", true}, {"?.go", "ab.go", false}, {"[ab].go", "b.go", true}, {"[^ab].go", "b.go", false},
		{"{a,b}.go", "b.go", true}, {"{a,b}.go", "c.go", false}, {"{a,b{c,d}}/*", "bd/x", true}, {"x{,y}", "x", true}, {"x{,y}", "xy", true},
		{"./a/../b.go", "b.go", true}, {"*", ".hidden", true}, {"a**", "ab", true},
	}
	for _, test := range tests {
		p, err := parsePattern(test.glob)
		if err != nil {
			t.Errorf("%s: %v", test.glob, err)
			continue
		}
		if got := p.match(test.name); got != test.want {
			t.Errorf("%s on %s: %v, want %v", test.glob, test.name, got, test.want)
		}
	}
}

func TestPatternsThatCannotBeReadAreErrors(t *testing.T) {
	for _, glob := range []string{"[a", "{a", "a{b,c", `x\`, strings.Repeat("{a,b,c,d}", 6)} {
		if _, err := parsePattern(glob); !errors.Is(err, errPattern) {
			t.Errorf("%s: %v", glob, err)
		}
	}
}

// matchSlowly is the definition of ** by recursion.
func matchSlowly(glob, name []string) bool {
	if len(glob) == 0 {
		return len(name) == 0
	}
	if glob[0] == "**" {
		return matchSlowly(glob[1:], name) || len(name) > 0 && matchSlowly(glob, name[1:])
	}
	if len(name) == 0 {
		return false
	}
	ok, _ := path.Match(glob[0], name[0])
	return ok && matchSlowly(glob[1:], name[1:])
}

func FuzzPattern(f *testing.F) {
	f.Add("**/x/**/y", "a/x/b/x/c/y")
	f.Add("*/**/*.{go,mod}", "a/b/go.mod")
	f.Add("{{a},{b,c}", "a")
	f.Fuzz(func(t *testing.T, glob, name string) {
		if strings.Count(glob, "**") > 6 || len(name) > 60 {
			return // the recursion is exponential
		}
		p, err := parsePattern(glob)
		if err != nil {
			return
		}
		want := false
		for _, alternative := range p.alternatives {
			want = want || matchSlowly(alternative, strings.Split(name, "/"))
		}
		if got := p.match(name); got != want {
			t.Fatalf("%q on %q: %v, want %v", glob, name, got, want)
		}
	})
}
