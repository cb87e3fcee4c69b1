package loop

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"belay.dev/belay/internal/runtime/message"
)

func TestABareConversationHoldsNothingThatOneProviderMade(t *testing.T) {
	scope := message.Scope{Route: "r", Dialect: "d", Model: "m"}
	secret := []message.Credential{{Scope: scope, Kind: "signature", Data: []byte("s")}}
	turn := func() message.Message {
		return message.Message{Role: message.RoleAssistant, Origin: &scope, Stop: message.StopCalls, Blocks: []message.Block{
			{Kind: message.BlockThinking, Text: "hm", Credentials: secret},
			{Kind: message.BlockText, Text: "I look."},
			{Kind: message.BlockCall, Call: &message.Call{ID: "Ab3dE9xQ1", Name: "look"}, Credentials: secret},
		}}
	}
	messages := []message.Message{turn(), turn()}
	got := bare(messages, 1)
	want := []message.Message{
		{Role: message.RoleAssistant, Stop: message.StopCalls, Blocks: []message.Block{
			{Kind: message.BlockText, Text: "I look."},
			{Kind: message.BlockCall, Call: &message.Call{ID: "Ab3dE9xQ1", Name: "look"}},
		}},
		turn(), // what came later was minted since, and is left as it is
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]message.Message{turn(), turn()}, messages); diff != "" {
		t.Errorf("the conversation itself was changed: %s", diff)
	}
}
