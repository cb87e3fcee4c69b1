package toolbox

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// LimitedCommand is the subcommand that a program which serves a Config with
// MaxProcesses must implement by calling RunLimited.
const LimitedCommand = "run-limited"

// RunLimited replaces this process by a command that may have at most a number
// of processes: its arguments are that number and the command line. It returns
// only if it fails. A process of its own is needed because the limit must hold
// before the command's first instruction, and must not hold for the toolbox.
func RunLimited(arguments []string) error {
	if len(arguments) < 2 {
		return fmt.Errorf("%s: a number of processes and a command are needed", LimitedCommand)
	}
	limit, err := strconv.ParseUint(arguments[0], 10, 32)
	if err != nil {
		return fmt.Errorf("%s: number of processes: %w", LimitedCommand, err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
		return fmt.Errorf("%s: setting RLIMIT_NPROC to %d: %w", LimitedCommand, limit, err)
	}
	if err := unix.Exec(arguments[1], arguments[1:], os.Environ()); err != nil {
		return fmt.Errorf("%s: %s: %w", LimitedCommand, arguments[1], err)
	}
	return nil
}
