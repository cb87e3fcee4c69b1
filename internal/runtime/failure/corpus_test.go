package failure

import (
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The corpus holds what providers really send and what it means. Its rows are numbered; the numbers have gaps. The rows
// are in corpus_*_test.go, by vendor; rows that no test here can run are in testdata/rows-not-run.md, each with its reason.

// corpusTime is the moment at which the corpus is classified.
var corpusTime = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

// corpusRow is one answer of a provider and what it must be classified as.
type corpusRow struct {
	row  int
	name string

	status int
	header http.Header
	body   string
	inBand string
	err    error

	kind Kind
	sub  Sub
	// wait is the expected hint with its source, "34.4s retryDelay"; empty for none.
	wait             string
	code             string
	limit, requested int64
	noRetry          bool
}

// h makes a header of pairs.
func h(pairs ...string) http.Header {
	header := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		header.Set(pairs[i], pairs[i+1])
	}
	return header
}

func corpus() []corpusRow {
	return slices.Concat(openAIRows, anthropicRows, googleRows, cloudRows, otherRows, anyRows)
}

func TestEveryRowOfTheCorpusIsClassified(t *testing.T) {
	for _, r := range corpus() {
		t.Run(strconv.Itoa(r.row)+" "+r.name, func(t *testing.T) {
			facts := Facts{Err: r.err, Status: r.status, Header: r.header, Body: []byte(r.body)}
			if r.inBand != "" {
				facts.InBand = []byte(r.inBand)
			}
			got := Classify(facts, corpusTime)
			wait := ""
			if got.Wait != nil {
				wait = got.Wait.Duration.String() + " " + got.Wait.Source
			}
			if got.Kind != r.kind || got.Sub != r.sub || wait != r.wait {
				t.Errorf("got %s %q, wait %q\nwant %s %q, wait %q", got.Kind, got.Sub, wait, r.kind, r.sub, r.wait)
			}
			if got.Code != r.code {
				t.Errorf("code %q, want %q", got.Code, r.code)
			}
			if got.Limit != r.limit || got.Requested != r.requested {
				t.Errorf("limit %d, requested %d, want %d, %d", got.Limit, got.Requested, r.limit, r.requested)
			}
			if got.NoRetry != r.noRetry {
				t.Errorf("noRetry %v, want %v", got.NoRetry, r.noRetry)
			}
			if got.HTTPStatus != r.status || got.Message == "" {
				t.Errorf("status %d, message %q", got.HTTPStatus, got.Message)
			}
		})
	}
}

// corpusNumbers are all rows of the corpus.
var corpusNumbers = []int{
	1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17, 19, 20, 22, 23, 25, 26, 28, 29, 31, 32, 34, 35, 37, 38, 40, 41, 43, 44, 46, 47,
	49, 50, 52, 53, 55, 56, 58, 59, 61, 62, 64, 65, 67, 68, 70, 71, 73, 74, 76, 77, 79, 80, 82, 83, 85, 86, 88, 89, 91, 92,
	94, 95, 97, 98, 100, 101, 103, 104, 106, 107, 109, 110, 112, 113, 115, 116, 118, 119, 121, 122, 124, 125, 127, 128, 130,
	131, 133, 134, 136, 137, 139, 140, 142, 143, 145, 146, 148, 149, 151, 152, 154, 155, 157, 158, 160, 161, 163, 164, 166,
	167,
}

func TestEveryRowIsRunOrHasAReason(t *testing.T) {
	text, err := os.ReadFile("testdata/rows-not-run.md")
	if err != nil {
		t.Fatal(err)
	}
	excused := map[int]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| (\d+) \| (.*) \|$`).FindAllStringSubmatch(string(text), -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil || len(strings.TrimSpace(m[2])) < 20 {
			t.Errorf("row %s has no reason", m[1])
		}
		excused[n] = true
	}
	run := map[int]bool{}
	for _, r := range corpus() {
		run[r.row] = true
	}
	for _, n := range corpusNumbers {
		if run[n] == excused[n] {
			t.Errorf("row %d: run %v, listed as not run %v", n, run[n], excused[n])
		}
	}
	for n := range run {
		if !slices.Contains(corpusNumbers, n) {
			t.Errorf("row %d is no row of the corpus", n)
		}
	}
}

// secretText stands in every free-text field of the corpus below; none of it may survive.
const secretText = "the user wrote: hunter2"

func TestNoTextOfTheProviderIsKept(t *testing.T) {
	for _, facts := range []Facts{
		{Status: 400, Body: []byte(`{"error":{"message":"` + secretText + `","type":"` + secretText + `","code":"` + secretText + `","param":"` + secretText + `"}}`)},
		{Status: 500, Body: []byte(secretText)},
		{Status: 500, Body: []byte("<html>" + secretText + "</html>")},
		{Status: 200, InBand: []byte(`{"error":"` + secretText + `"}`)},
		{Status: 429, Header: h("retry-after", secretText, "x-amzn-errortype", secretText)},
		{Err: &textError{secretText}},
		{Err: &textError{secretText}, Status: 200},
	} {
		got := Classify(facts, corpusTime)
		for _, kept := range []string{got.Message, got.Code} {
			if strings.Contains(kept, "hunter2") || strings.Contains(kept, "user") || kept == "the" {
				t.Errorf("%+v kept %q", facts, kept)
			}
		}
	}
}

type textError struct{ text string }

func (e *textError) Error() string { return e.text }
