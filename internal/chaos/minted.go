package chaos

import "sync"

// mintedTurnsLimit bounds how many turns with reasoning a leg remembers.
const mintedTurnsLimit = 20_000

// mintedTurns remembers the reasoning of turns by the ids of their calls, so that a turn that comes back without it, or
// with less of it, is noticed. Its methods may be called from any goroutine.
type mintedTurns struct {
	mu     sync.Mutex
	byCall map[string][]thinkingBlock
	order  []string
}

// thinkingBlock is one block of reasoning as the client must send it back.
type thinkingBlock struct {
	kind      string // thinking or redacted_thinking
	text      string // thinking
	signature string // thinking
	data      string // redacted_thinking
}

func newMintedTurns() *mintedTurns { return &mintedTurns{byCall: map[string][]thinkingBlock{}} }

func (m *mintedTurns) remember(t turn) {
	blocks := t.thinkingBlocks()
	if len(blocks) == 0 || len(t.calls) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range t.calls {
		if _, known := m.byCall[c.id]; !known {
			m.order = append(m.order, c.id)
		}
		m.byCall[c.id] = blocks
	}
	for len(m.order) > mintedTurnsLimit {
		delete(m.byCall, m.order[0])
		m.order = m.order[1:]
	}
}

// of returns the reasoning that went out in front of a call, nil if the call or its reasoning is unknown.
func (m *mintedTurns) of(callID string) []thinkingBlock {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.byCall[callID]
}

func (t turn) thinkingBlocks() []thinkingBlock {
	var blocks []thinkingBlock
	if t.thinking != "" {
		blocks = append(blocks, thinkingBlock{kind: "thinking", text: t.thinking, signature: t.signature})
	}
	if t.redacted != "" {
		blocks = append(blocks, thinkingBlock{kind: "redacted_thinking", data: t.redacted})
	}
	return blocks
}
