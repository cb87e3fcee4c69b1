package toolbox

import (
	"slices"
	"testing"
)

func TestAStatLineIsReadWhateverTheProcessIsCalled(t *testing.T) {
	tests := map[string]struct {
		line string
		want process
		ok   bool
	}{
		"plain":          {"7 (sh) S 1 7 5 0 -1 4194560", process{pid: 7, ppid: 1, session: 5, state: 'S'}, true},
		"hostile name":   {"7 (a) R 9 (b) 1 1) Z 2 7 7 0 -1", process{pid: 7, ppid: 2, session: 7, state: 'Z'}, true},
		"cut":            {"7 (sh) S 1", process{}, false},
		"no name":        {"7 sh S 1 7 5", process{}, false},
		"empty":          {"", process{}, false},
		"not a number":   {"7 (sh) S x 7 5 0", process{}, false},
		"session broken": {"7 (sh) S 1 7 y 0", process{}, false},
	}
	for name, test := range tests {
		if got, ok := parseStat(7, []byte(test.line)); got != test.want || ok != test.ok {
			t.Errorf("%s: got %+v, %v", name, got, ok)
		}
	}
}

func TestATagIsAWholeVariable(t *testing.T) {
	environ := []byte("PATH=/bin\x00XBELAY_CALL_ID=no\x00NOTE=BELAY_CALL_ID=no\x00BELAY_CALL_ID=Ab3dE9xQ1\x00")
	if got := findTag(environ, tagCall); got != "Ab3dE9xQ1" {
		t.Errorf("got %q", got)
	}
	if got := findTag(environ[:30], tagCall); got != "" {
		t.Errorf("got %q", got)
	}
}

func TestAFamilyHasAllDescendantsAndNobodyElse(t *testing.T) {
	all := []process{
		{pid: 1}, {pid: 2, ppid: 1}, {pid: 9, ppid: 8}, {pid: 8, ppid: 5}, {pid: 5, ppid: 2}, {pid: 6, ppid: 2}, {pid: 7, ppid: 1},
		{pid: 20, ppid: 21}, {pid: 21, ppid: 20}, // a table read while it changes may have a circle
	}
	pids := func(named ...int) []int {
		var got []int
		for _, p := range family(all, func(p process) bool { return slices.Contains(named, p.pid) }) {
			got = append(got, p.pid)
		}
		slices.Sort(got)
		return got
	}
	if got := pids(5); !slices.Equal(got, []int{5, 8, 9}) {
		t.Errorf("of 5: %v", got)
	}
	if got := pids(2, 8); !slices.Equal(got, []int{2, 5, 6, 8, 9}) {
		t.Errorf("of 2 and 8: %v", got)
	}
	if got := pids(20); !slices.Equal(got, []int{20, 21}) {
		t.Errorf("of 20: %v", got)
	}
	if got := pids(); got != nil {
		t.Errorf("of nobody: %v", got)
	}
}
