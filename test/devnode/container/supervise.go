package container

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// supervisor is process 1 of a container once its file system stands: it runs
// the command, reaps every orphan and ends with the command.
type supervisor struct {
	spec     Spec
	rootless bool
	report   *json.Encoder
	main     int
	probes   map[int]*probe // by process id
}

type probe struct {
	id     int
	output *os.File
}

func (s *supervisor) startMain() error {
	pid, err := s.start(s.spec.Args, []uintptr{0, 1, 2})
	if err != nil {
		return err
	}
	s.main = pid
	return s.report.Encode(stageReport{Started: true})
}

// start runs a command as the container's user.
func (s *supervisor) start(args []string, files []uintptr) (int, error) {
	dir := s.spec.Dir
	if dir == "" {
		dir = "/"
	}
	program, err := lookPath(args[0], s.spec.Env, dir)
	if err != nil {
		return 0, err
	}
	attr := &syscall.ProcAttr{Dir: dir, Env: s.spec.Env, Files: files, Sys: &syscall.SysProcAttr{Setsid: true}}
	if s.rootless {
		// The one user of this namespace appears as the container's. Its files
		// are the host user's own on the outside.
		attr.Sys.Cloneflags = syscall.CLONE_NEWUSER
		attr.Sys.UidMappings = []syscall.SysProcIDMap{{ContainerID: s.spec.UID, HostID: 0, Size: 1}}
		attr.Sys.GidMappings = []syscall.SysProcIDMap{{ContainerID: s.spec.GID, HostID: 0, Size: 1}}
	} else {
		groups := make([]uint32, 0, len(s.spec.Groups))
		for _, g := range s.spec.Groups {
			groups = append(groups, uint32(g))
		}
		attr.Sys.Credential = &syscall.Credential{Uid: uint32(s.spec.UID), Gid: uint32(s.spec.GID), Groups: groups}
	}
	pid, err := syscall.ForkExec(program, args, attr)
	if err != nil {
		return 0, fmt.Errorf("exec %s as user %d:%d: %w", program, s.spec.UID, s.spec.GID, err)
	}
	return pid, nil
}

// supervise returns the command's exit code, or 128 plus the signal that ended
// it.
func (s *supervisor) supervise(control *bufio.Reader) int {
	commands := make(chan stageCommand)
	go func() {
		// The end of this pipe is the end of the parent.
		defer close(commands)
		dec := json.NewDecoder(control)
		for {
			var c stageCommand
			if dec.Decode(&c) != nil {
				return
			}
			commands <- c
		}
	}()
	// Wait4 would block the thread that starts probes; another one waits.
	deaths := make(chan struct{})
	next := make(chan struct{}, 1)
	go func() {
		for {
			// A peek first: the pid stays a zombie, thus not reused, until this
			// goroutine reaps it, and by then the map is up to date.
			var info unix.Siginfo
			if err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT, nil); err == unix.EINTR {
				continue
			} else if err != nil {
				return
			}
			deaths <- struct{}{}
			<-next
		}
	}()
	for {
		select {
		case c, ok := <-commands:
			if !ok {
				return 137 // the kernel kills what is left of the container
			}
			s.obey(c)
		case <-deaths:
			for {
				var status syscall.WaitStatus
				pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
				if err == syscall.EINTR {
					continue
				}
				if err != nil || pid <= 0 {
					break
				}
				if pid == s.main {
					return codeOf(status)
				}
				s.reaped(pid, codeOf(status))
			}
			next <- struct{}{}
		}
	}
}

func codeOf(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

func (s *supervisor) obey(c stageCommand) {
	switch {
	case len(c.Args) > 0:
		s.startProbe(c)
	case c.Probe != 0:
		for pid, p := range s.probes {
			if p.id == c.Probe {
				_ = syscall.Kill(-pid, syscall.Signal(c.Signal))
			}
		}
	default:
		_ = syscall.Kill(s.main, syscall.Signal(c.Signal))
	}
}

// maxProbeOutput bounds what a probe's command reports back.
const maxProbeOutput = 4096

func (s *supervisor) startProbe(c stageCommand) {
	fail := func(err error) {
		_ = s.report.Encode(stageReport{Probe: c.Probe, Code: 126, Output: err.Error()})
	}
	// A file without a name takes the output: nobody has to read while the
	// command runs.
	fd, err := unix.MemfdCreate("probe", unix.MFD_CLOEXEC)
	if err != nil {
		fail(err)
		return
	}
	output := os.NewFile(uintptr(fd), "probe")
	pid, err := s.start(c.Args, []uintptr{0, uintptr(fd), uintptr(fd)})
	if err != nil {
		_ = output.Close()
		fail(err)
		return
	}
	s.probes[pid] = &probe{id: c.Probe, output: output}
}

func (s *supervisor) reaped(pid, code int) {
	p, ok := s.probes[pid]
	if !ok {
		return // an orphan
	}
	delete(s.probes, pid)
	defer func() { _ = p.output.Close() }()
	text := make([]byte, maxProbeOutput)
	n, _ := p.output.ReadAt(text, 0)
	_ = s.report.Encode(stageReport{Probe: p.id, Code: code, Output: string(text[:n])})
}
