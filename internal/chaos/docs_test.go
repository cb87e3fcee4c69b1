package chaos_test

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"belay.dev/belay/internal/chaos"
)

func readDocs(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/chaos-script.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTheExamplesOfTheDocumentationParse(t *testing.T) {
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(readDocs(t), -1)
	if len(examples) < 2 {
		t.Fatalf("found %d examples", len(examples))
	}
	for _, example := range examples {
		if _, err := chaos.ParseScript([]byte(example[1])); err != nil {
			t.Errorf("%v in\n%s", err, example[1])
		}
	}
}

func TestTheDocumentationNamesEveryField(t *testing.T) {
	docs := readDocs(t)
	for _, v := range []any{
		chaos.Leg{}, chaos.Step{}, chaos.Call{}, chaos.Usage{}, chaos.Error{}, chaos.RetryAfter{}, chaos.Redirect{}, chaos.Silence{},
		chaos.InBandError{}, chaos.Expectation{}, chaos.ResultExpectation{},
	} {
		for _, field := range reflect.VisibleFields(reflect.TypeOf(v)) {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name == "" {
				continue // an embedded struct
			}
			if !regexp.MustCompile("`[^`]*\\b" + name + "\\b[^`]*`").MatchString(docs) {
				t.Errorf("the documentation does not name %s of %T", name, v)
			}
		}
	}
}
