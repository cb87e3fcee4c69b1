package toolbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"belay.dev/belay/internal/runtime/tools"
)

const (
	shellName           = "shell"
	defaultShellTimeout = 120 * time.Second
	defaultPath         = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// findShell returns the image's shell, or "" if there is none or it is not allowed.
func findShell(config Config) string {
	if !config.AllowShell {
		return ""
	}
	for _, path := range []string{"/bin/bash", "/usr/bin/bash", "/bin/sh"} {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

type shellArguments struct {
	Command        string            `json:"command"`
	Cwd            string            `json:"cwd"`
	TimeoutSeconds int               `json:"timeoutSeconds"`
	Env            map[string]string `json:"env"`
}

func shellTool(config Config, supervisor *Supervisor, shell string) tool {
	maximum := int(tools.MaxShellTimeout / time.Second)
	description := fmt.Sprintf("Run a command with %s -c and wait for its end. Standard output and standard error come back together, "+
		"with the exit code. Standard input is empty, so nothing can be asked interactively. Every process that the command leaves "+
		"behind is killed when it ends: servers and other background processes do not survive the call, and neither do the working "+
		"directory and variables. Long output is shown by its beginning and end; a file has all of it. "+
		"The command is stopped after timeoutSeconds (default %d).", filepath.Base(shell), int(defaultShellTimeout/time.Second))
	input := schema(map[string]any{
		"command": map[string]any{"type": "string", "minLength": 1, "description": "The command line."},
		"cwd": map[string]any{"type": "string",
			"description": "Directory to run in, relative to the workspace. Default: the workspace itself."},
		"timeoutSeconds": map[string]any{"type": "integer", "minimum": 1, "maximum": maximum,
			"description": fmt.Sprintf("Time limit in seconds, at most %d.", maximum)},
		"env": map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "string"},
			"propertyNames": map[string]any{"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
			"description":   "Environment variables to add."},
	}, "command")
	t := tools.Tool{Name: shellName, Description: description, InputSchema: input, Effect: tools.Supervised,
		Provider: tools.ProviderWorkspace, Timeout: tools.MaxShellTimeout}
	return tool{Tool: t, run: func(ctx context.Context, call invocation) tools.Outcome {
		var arguments shellArguments
		if err := json.Unmarshal(call.arguments, &arguments); err != nil {
			return tools.Refusal(tools.KindInvalidArguments, err.Error())
		}
		return runShell(ctx, config, supervisor, shell, call, arguments)
	}}
}

func runShell(ctx context.Context, config Config, supervisor *Supervisor, shell string, call invocation, arguments shellArguments) tools.Outcome {
	if strings.Contains(arguments.Command, "\x00") {
		return tools.Refusal(tools.KindInvalidArguments, "command: a command line cannot contain a NUL character")
	}
	dir := arguments.Cwd
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(config.Workspace, dir)
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return tools.Failure(tools.KindNotFound, fmt.Sprintf("cwd: there is no directory %q. The command was not executed.", arguments.Cwd))
	}
	limit := shellLimit(call.timeout, arguments.TimeoutSeconds)
	argv := []string{shell, "-c", arguments.Command}
	if config.MaxProcesses > 0 {
		self, err := os.Executable()
		if err != nil {
			return tools.Failure(tools.KindExecutionFailed, fmt.Sprintf("The command was not executed: finding the toolbox's own program: %v", err))
		}
		argv = append([]string{self, LimitedCommand, strconv.Itoa(config.MaxProcesses)}, argv...)
	}
	r, err := supervisor.runCommand(ctx, command{
		callID: call.callID, argv: argv, dir: dir, timeout: limit,
		env: commandEnv(config, arguments.Env, map[string]string{
			tagCall: call.callID, tagBoot: supervisor.bootID, tagSpool: supervisor.spool.id,
		}),
	})
	if err != nil {
		return tools.Failure(tools.KindExecutionFailed, fmt.Sprintf("The command was not executed: %v", err))
	}
	outcome := r.outcome(call.callID, limit)
	if err := supervisor.spool.keepOutput(call.callID, r.output.stored, outcome.Truncated != nil, config.MaxSpoolBytes); err != nil {
		config.Logger.Warn("old output could not be removed", "error", err)
	}
	return outcome
}

// shellLimit is how long a command may run: what the model asks for, or the
// default, but no more than the run allows.
func shellLimit(allowed time.Duration, seconds int) time.Duration {
	limit := defaultShellTimeout
	if seconds > 0 {
		limit = time.Duration(seconds) * time.Second
	}
	if allowed > 0 {
		limit = min(limit, allowed)
	}
	return min(limit, tools.MaxShellTimeout)
}

// commandEnv is the whole environment of a command: nothing else of the
// toolbox's own environment is passed on.
func commandEnv(config Config, added, tags map[string]string) []string {
	env := map[string]string{
		"PATH": defaultPath, "HOME": filepath.Join(config.Workspace, homeDir), "LANG": "C.UTF-8", "TERM": "dumb",
	}
	if path := os.Getenv("PATH"); path != "" {
		env["PATH"] = path
	}
	for _, declared := range config.Env {
		name, value, ok := strings.Cut(declared, "=")
		if !ok {
			value, ok = os.LookupEnv(name)
		}
		if ok {
			env[name] = value
		}
	}
	maps.Copy(env, added)
	maps.Copy(env, tags)
	list := make([]string, 0, len(env))
	for name, value := range env {
		list = append(list, name+"="+strings.ReplaceAll(value, "\x00", ""))
	}
	slices.Sort(list)
	return list
}

// outcome is what the model is told about a command: its output, then one line
// about its end.
func (r *result) outcome(callID string, limit time.Duration) tools.Outcome {
	var outcome tools.Outcome
	r.describe(&outcome)
	path := outputPath(callID)
	total, stored := r.output.excerpt.Total(), r.output.stored
	where := fmt.Sprintf("%s has all of it", path)
	if stored < total {
		where = fmt.Sprintf("%s has the first %d bytes", path, stored)
	}
	text, truncated := r.output.excerpt.Text(where)
	if truncated != nil {
		truncated.Path, truncated.StoredBytes = path, stored
		outcome.Truncated = truncated
	}
	var notes []string
	switch {
	case errors.Is(r.stopped, errTimeLimit):
		outcome.Status, outcome.ErrorKind = tools.Timeout, tools.KindTimeout
		notes = append(notes, fmt.Sprintf("stopped after its time limit of %v; it may have had effects", limit))
	case r.stopped != nil:
		outcome.Status, outcome.ErrorKind = tools.Cancelled, tools.KindCancelled
		notes = append(notes, fmt.Sprintf("stopped: %v; it may have had effects", r.stopped))
	case outcome.Signal != "":
		outcome.Status, outcome.ErrorKind = tools.Error, tools.KindExecutionFailed
		notes = append(notes, "ended by "+outcome.Signal)
	case outcome.ExitCode != nil && *outcome.ExitCode != 0:
		outcome.Status, outcome.ErrorKind = tools.Error, tools.KindExecutionFailed
		notes = append(notes, fmt.Sprintf("exit code %d", *outcome.ExitCode))
	default:
		outcome.Status = tools.OK
		notes = append(notes, "exit code 0")
	}
	if r.survivors > 0 {
		notes = append(notes, fmt.Sprintf("%d of its processes could not be killed", r.survivors))
	}
	if r.outputErr != nil {
		notes = append(notes, fmt.Sprintf("a part of its output was lost: %v", r.outputErr))
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	note := tools.SafeText(strings.Join(notes, "; "))
	outcome.Text = text + "[" + note[:min(len(note), statusRoom-3)] + "]"
	return outcome
}
