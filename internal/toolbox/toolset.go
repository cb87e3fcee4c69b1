package toolbox

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"belay.dev/belay/internal/runtime/tools"
)

// fileTimeout bounds the tools that work on files only.
const fileTimeout = 60 * time.Second

// toolset is what the toolbox offers, in the order in which it is listed.
func toolset(config Config, supervisor *Supervisor, root *os.Root) []tool {
	files := &files{root: root, base: config.Workspace}
	set := []tool{readTool(files), writeTool(files), editTool(files), grepTool(files), globTool(files)}
	if shell := findShell(config); shell != "" {
		set = append(set, shellTool(config, supervisor, shell))
	}
	return set
}

// schema marshals a JSON schema that is written as a Go literal.
func schema(properties map[string]any, required ...string) json.RawMessage {
	object := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		object["required"] = required
	}
	raw, err := json.Marshal(object)
	if err != nil {
		panic(fmt.Sprintf("toolbox: schema literal: %v", err)) // of maps, strings and numbers only
	}
	return raw
}

func fileTool(name, description string, effect tools.Effect, input json.RawMessage) tools.Tool {
	return tools.Tool{Name: name, Description: description, InputSchema: input, Effect: effect,
		Provider: tools.ProviderWorkspace, Timeout: fileTimeout}
}
