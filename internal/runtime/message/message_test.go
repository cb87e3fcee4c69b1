package message

import (
	"encoding/json"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const runUID = "16462e84-30e3-4ce9-b4a3-e1f3b59216d3"

// The ids were computed by another program: SHA-256 over the UID and three big-endian 64-bit numbers, read as one number,
// whose nine lowest digits in base 62 are the id, the lowest first. A ledger holds them, so they never change.
func TestCallIDsAreTheSameForEver(t *testing.T) {
	for _, test := range []struct {
		uid                  string
		turn, index, attempt int
		want                 string
	}{
		{runUID, 1, 0, 0, "JjKdpU1ul"},
		{runUID, 1, 1, 0, "LbBR9Osmz"},
		{runUID, 1, 0, 1, "jDTdOHpfU"},
		{"", 0, 0, 0, "QBRO5fct0"},
	} {
		if got := CallID(test.uid, test.turn, test.index, test.attempt); got != test.want {
			t.Errorf("CallID(%q, %d, %d, %d) = %s, want %s", test.uid, test.turn, test.index, test.attempt, got, test.want)
		}
	}
}

func TestCallIDsOfARunAreNineAlphanumericsAndApart(t *testing.T) {
	grammar := regexp.MustCompile(`^[A-Za-z0-9]{9}$`)
	seen := make(map[string]bool, 100_000)
	for turn := range 10_000 {
		for index := range 10 {
			id := CallID(runUID, turn, index, 0)
			if !grammar.MatchString(id) {
				t.Fatalf("%q is not nine alphanumerics", id)
			}
			if seen[id] {
				t.Fatalf("turn %d, call %d: %s was minted before", turn, index, id)
			}
			seen[id] = true
		}
	}
}

func TestTextAndCallsAreThoseOfTheirBlocksInOrder(t *testing.T) {
	m := Message{Blocks: []Block{
		{Kind: BlockThinking, Text: "hidden"},
		{Kind: BlockText, Text: "one "},
		{Kind: BlockCall, Call: &Call{ID: "1", Name: "x"}},
		{Kind: BlockText, Text: "two"},
		{Kind: BlockCall},
		{Kind: BlockCall, Call: &Call{ID: "2", Name: "y"}},
	}}
	if got := m.Text(); got != "one two" {
		t.Errorf("text is %q", got)
	}
	if diff := cmp.Diff([]Call{{ID: "1", Name: "x"}, {ID: "2", Name: "y"}}, m.Calls()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if (Message{}).Calls() != nil || (Message{}).Text() != "" {
		t.Error("an empty message has calls or text")
	}
}

func TestMediaBytesStayOutOfTheRecord(t *testing.T) {
	data, err := json.Marshal(Media{MIMEType: "image/png", Blob: Blob{SHA256: "ab", Size: 3}, Data: []byte("png")})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"mimeType":"image/png","blob":{"sha256":"ab","size":3}}`; string(data) != want {
		t.Errorf("encoded as %s, want %s", data, want)
	}
}
