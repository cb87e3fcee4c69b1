package toolbox

import (
	"bytes"
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
)

// process is one line of the process table.
type process struct {
	pid, ppid, session int
	state              byte
}

func (p process) dead() bool { return p.state == 'Z' || p.state == 'X' }

// scanProcesses reads the process table. Processes that end meanwhile are left out.
func scanProcesses() []process {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	names, _ := dir.Readdirnames(-1)
	_ = dir.Close()
	var all []process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		raw, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue
		}
		if p, ok := parseStat(pid, raw); ok {
			all = append(all, p)
		}
	}
	return all
}

// parseStat reads /proc/PID/stat (proc_pid_stat(5)): the second field is a
// name in parentheses that may itself contain spaces and parentheses.
func parseStat(pid int, raw []byte) (process, bool) {
	end := bytes.LastIndexByte(raw, ')')
	if end < 0 {
		return process{}, false
	}
	fields := strings.Fields(string(raw[end+1:]))
	if len(fields) < 4 {
		return process{}, false
	}
	ppid, errParent := strconv.Atoi(fields[1])
	session, errSession := strconv.Atoi(fields[3])
	if errParent != nil || errSession != nil {
		return process{}, false
	}
	return process{pid: pid, ppid: ppid, session: session, state: fields[0][0]}, true
}

// tagOf reads one of the tags from a process's environment; empty if it has
// none, has ended or may not be read.
func tagOf(pid int, tag string) string {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return ""
	}
	return findTag(raw, tag)
}

func findTag(environ []byte, tag string) string {
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		if value, ok := bytes.CutPrefix(entry, []byte(tag+"=")); ok {
			return string(value)
		}
	}
	return ""
}

// family selects the processes that a predicate names, and all their descendants.
func family(all []process, named func(process) bool) []process {
	children := make(map[int][]int, len(all))
	for i, p := range all {
		children[p.ppid] = append(children[p.ppid], i)
	}
	member := make([]bool, len(all))
	var queue []int
	for i, p := range all {
		if named(p) {
			member[i] = true
			queue = append(queue, i)
		}
	}
	for len(queue) > 0 {
		i := queue[0]
		queue = queue[1:]
		for _, child := range children[all[i].pid] {
			if !member[child] {
				member[child] = true
				queue = append(queue, child)
			}
		}
	}
	var selected []process
	for i, p := range all {
		if member[i] {
			selected = append(selected, p)
		}
	}
	return selected
}

// killDeadline bounds the killing of one tree. What is left then sleeps in the
// kernel and cannot be killed by anybody.
const killDeadline = 5 * time.Second

// killAll kills what find returns until it finds nothing that lives, because a
// tree may grow while it is read. It returns how many were left at the deadline.
func killAll(ctx context.Context, clk clock.Clock, find func() []process, reap func()) int {
	deadline := clk.Now().Add(killDeadline)
	for delay := time.Millisecond; ; delay = min(2*delay, 50*time.Millisecond) {
		alive := 0
		for _, p := range find() {
			if p.dead() {
				continue
			}
			alive++
			_ = unix.Kill(p.pid, unix.SIGKILL)
		}
		reap()
		if alive == 0 {
			return 0
		}
		if clk.Now().After(deadline) {
			return alive
		}
		select {
		case <-ctx.Done():
			return alive
		case <-clk.After(delay):
		}
	}
}
