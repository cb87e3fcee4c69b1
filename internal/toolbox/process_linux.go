package toolbox

import (
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// becomeReaper makes this process the parent of every orphan among its descendants.
func becomeReaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("becoming the reaper of orphans: %w", err)
	}
	return nil
}

// leaderAttributes start a process as the leader of a session of its own that
// dies with the thread which started it.
func leaderAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

// peer returns the process and the user that connected. A process in another
// namespace has the id 0.
func peer(conn *net.UnixConn) (pid, uid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, 0, fmt.Errorf("peer credentials: %w", err)
	}
	var credentials *unix.Ucred
	var credentialsErr error
	if err := raw.Control(func(fd uintptr) {
		credentials, credentialsErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, 0, fmt.Errorf("peer credentials: %w", err)
	}
	if credentialsErr != nil {
		return 0, 0, fmt.Errorf("peer credentials: %w", credentialsErr)
	}
	return int(credentials.Pid), int(credentials.Uid), nil
}
