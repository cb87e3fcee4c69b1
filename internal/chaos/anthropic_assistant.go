package chaos

import (
	"fmt"
	"slices"
	"strconv"
)

// assistant checks an assistant message. The rules on reasoning bind for the latest one; it is in an open cycle when its
// tool results follow.
func (c *anthropicCheck) assistant(path string, blocks []map[string]any, latest, inCycle bool) {
	c.conv.assistantTurns++
	var thinking []thinkingBlock
	var calls []string
	last := ""
	for i, block := range blocks {
		where := at(path, "content."+strconv.Itoa(i))
		switch block["type"] {
		case "text":
			last = c.text(where, block)
			c.conv.all = append(c.conv.all, last)
		case "thinking", "redacted_thinking":
			if i != len(thinking) {
				c.bad(where, "reasoning must come before all other content of the turn")
			}
			thinking = append(thinking, c.thinkingBlock(where, block))
		case "tool_use":
			calls = append(calls, c.toolUse(where, block))
		default:
			c.bad(where, "input tag %q is not allowed in an assistant message", fmt.Sprint(block["type"]))
		}
	}
	c.conv.last = last
	c.open = calls
	if latest {
		c.latestThinking(path, blocks, thinking, calls, inCycle)
	}
}

// latestThinking demands that the latest turn has the reasoning that it was given.
func (c *anthropicCheck) latestThinking(path string, blocks []map[string]any, thinking []thinkingBlock, calls []string, inCycle bool) {
	if len(calls) == 0 || !inCycle {
		return
	}
	minted := c.in.minted.of(calls[0])
	mayDrop := c.thinkingOff && len(thinking) == 0
	switch {
	case minted != nil && !mayDrop && !slices.Equal(thinking, minted):
		c.bad(path, "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified; they must remain as they were in the original response")
	case c.forcedThinking && len(thinking) == 0:
		c.bad(at(path, "content.0.type"), "expected `thinking` or `redacted_thinking`, but found `%v`; when `thinking` is enabled, a final `assistant` message must start with a thinking block", blocks[0]["type"])
	}
}

func (c *anthropicCheck) thinkingBlock(path string, block map[string]any) thinkingBlock {
	if block["type"] == "redacted_thinking" {
		c.known(path, block, "type", "data")
		data, _ := block["data"].(string)
		if !c.in.mint.sealed(c.in.name, c.conv.model, data) {
			c.bad(path, "invalid `data` in `redacted_thinking` block")
		}
		return thinkingBlock{kind: "redacted_thinking", data: data}
	}
	c.known(path, block, "type", "thinking", "signature")
	text, isText := block["thinking"].(string)
	signature, _ := block["signature"].(string)
	switch {
	case !isText:
		c.bad(at(path, "thinking"), "field required")
	case signature == "":
		c.bad(at(path, "signature"), "field required")
	case signature != c.in.mint.sign(c.in.name, c.conv.model, text):
		c.bad(path, "invalid `signature` in `thinking` block")
	}
	return thinkingBlock{kind: "thinking", text: text, signature: signature}
}

func (c *anthropicCheck) toolUse(path string, block map[string]any) string {
	c.known(path, block, "type", "id", "name", "input", "cache_control", "caller", "toolset_name")
	c.cacheControl(path, block)
	id, _ := block["id"].(string)
	switch {
	case !toolUseGrammar.MatchString(id):
		c.bad(at(path, "id"), "must match ^[a-zA-Z0-9_-]{1,64}$")
	case c.ids[id]:
		c.bad(path, "`tool_use` ids must be unique")
	}
	c.ids[id] = true
	c.conv.calls = append(c.conv.calls, id)
	name, _ := block["name"].(string)
	switch {
	case !toolNameGrammar.MatchString(name):
		c.bad(at(path, "name"), "must match ^[a-zA-Z0-9_-]{1,64}$")
	case len(c.tools) == 0:
		c.bad("tools", "must be declared when the conversation has `tool_use` blocks")
	case !c.tools[name] && c.in.leg.UndeclaredCalls == UndeclaredReject:
		c.bad(at(path, "name"), "is a tool that `tools` does not declare")
	}
	input, ok := block["input"].(map[string]any)
	if !ok {
		c.bad(at(path, "input"), "must be an object")
	}
	c.conv.all = append(c.conv.all, string(compact(input)))
	return id
}
