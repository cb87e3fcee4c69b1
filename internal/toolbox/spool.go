package toolbox

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"belay.dev/belay/internal/runtime/tools"
)

// Places in the workspace that belong to the toolbox.
const (
	stateDir   = ".belay"
	homeDir    = ".home"
	spoolDir   = ".belay/spool"
	lockFile   = "lock"
	spoolFile  = "spool.json"
	startFile  = "start.json"
	resultFile = "outcome.json"
	outputFile = "output"
)

// startRecord is start.json: durable before the job begins.
type startRecord struct {
	Version    int       `json:"v"`
	CallID     string    `json:"call"`
	Attempt    int       `json:"attempt"`
	Tool       string    `json:"tool"`
	ArgsSHA256 string    `json:"argsSHA256"`
	BootID     string    `json:"bootID"`
	Epoch      int64     `json:"epoch"`
	StartedAt  time.Time `json:"startedAt"`
}

// spoolRecord is spool.json: it is born with the spool and tells a spool that
// was there all the time from one that was made anew.
type spoolRecord struct {
	Version int    `json:"v"`
	ID      string `json:"id"`
	Run     string `json:"run,omitempty"`
	// Epoch is the highest that has opened the spool.
	Epoch int64 `json:"epoch"`
	// Lost is true for good once a part of the spool was found missing.
	Lost bool `json:"lost,omitempty"`
}

// spool is the directory of the jobs' records. One process at a time has it.
type spool struct {
	dir  string
	id   string
	lock *os.File

	mu     sync.Mutex
	record spoolRecord
	self   os.FileInfo  // of the record's file
	kept   []keptOutput // oldest first
}

// errStaleEpoch means that the workspace belongs to a later epoch already.
var errStaleEpoch = errors.New("a later epoch of the run has used this workspace")

// openSpool takes the workspace's spool for the life of the process. witness
// is a file outside of the workspace that survives a restart of the process
// but not the pod: if it is there, the spool must be, too.
func openSpool(workspace, run string, epoch int64, witness string, clk clock.Clock) (_ *spool, err error) {
	state := filepath.Join(workspace, stateDir)
	s := &spool{dir: filepath.Join(workspace, spoolDir)}
	for _, dir := range []string{state, filepath.Join(workspace, homeDir)} {
		if err := os.Mkdir(dir, 0o770); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("spool: %w", err)
		}
		// A commit of everything in the workspace must not include ours.
		if err := writeNew(filepath.Join(dir, ".gitignore"), "*\n"); err != nil {
			return nil, fmt.Errorf("spool: %w", err)
		}
	}
	if s.lock, err = os.OpenFile(filepath.Join(state, lockFile), os.O_CREATE|os.O_RDWR, 0o660); err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.lock.Close())
		}
	}()
	if err := takeLock(s.lock, clk); err != nil {
		return nil, fmt.Errorf("spool %s: another toolbox works in this workspace: %w", s.dir, err)
	}
	if err := s.load(run, epoch, witness); err != nil {
		return nil, err
	}
	s.id = s.record.ID
	if s.kept, err = s.keptOutputs(); err != nil {
		return nil, err
	}
	return s, nil
}

// lockPatience is how long a predecessor that has been killed may take to let
// go of its files.
const lockPatience = 2 * time.Second

func takeLock(file *os.File, clk clock.Clock) error {
	deadline := clk.Now().Add(lockPatience)
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil || !errors.Is(err, unix.EWOULDBLOCK) || clk.Now().After(deadline) {
			return err
		}
		<-clk.After(20 * time.Millisecond)
	}
}

func (s *spool) load(run string, epoch int64, witness string) error {
	_, err := os.Lstat(witness)
	seen := err == nil
	if err := os.Mkdir(s.dir, 0o770); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("spool: %w", err)
	}
	path := filepath.Join(s.dir, spoolFile)
	raw, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// The first epoch finds no spool; for all others it was lost.
		s.record = spoolRecord{Version: 1, ID: randomID(), Lost: seen || epoch > 1}
	case err != nil:
		return fmt.Errorf("spool: %w", err)
	default:
		if err := json.Unmarshal(raw, &s.record); err != nil || s.record.ID == "" {
			s.record = spoolRecord{Version: 1, ID: randomID(), Lost: true}
		}
	}
	if s.record.Run == run && s.record.Epoch > epoch {
		return fmt.Errorf("epoch %d: %w (%d)", epoch, errStaleEpoch, s.record.Epoch)
	}
	s.record.Run, s.record.Epoch = run, epoch
	if err := s.save(); err != nil {
		return err
	}
	if err := writeNew(witness, ""); err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	return nil
}

func (s *spool) save() (err error) {
	if err := writeDurably(s.dir, spoolFile, s.record); err != nil {
		return err
	}
	if s.self, err = os.Lstat(filepath.Join(s.dir, spoolFile)); err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	return nil
}

func (s *spool) close() error { return s.lock.Close() }

// intact reports whether the absence of a call proves anything. The marker
// file must be the very one that was there when the spool was opened.
func (s *spool) intact() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.record.Lost {
		return false
	}
	now, err := os.Lstat(filepath.Join(s.dir, spoolFile))
	return err == nil && os.SameFile(now, s.self)
}

func (s *spool) callDir(callID string) string { return filepath.Join(s.dir, callID) }

// outputPath is where the call's output is, relative to the workspace.
func outputPath(callID string) string { return spoolDir + "/" + callID + "/" + outputFile }

// begin makes the start of a job durable. It fails if the call is known.
func (s *spool) begin(start startRecord) error {
	dir := s.callDir(start.CallID)
	if err := os.Mkdir(dir, 0o770); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("spool: %w", err)
	}
	// A directory without a start is one whose start never became durable.
	if _, err := os.Lstat(filepath.Join(dir, startFile)); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(fmt.Errorf("spool: call %s was started before", start.CallID), err)
	}
	if err := writeDurably(dir, startFile, start); err != nil {
		return err
	}
	return syncDir(s.dir)
}

// finish makes the outcome of a job durable.
func (s *spool) finish(callID string, outcome tools.Outcome) error {
	return writeDurably(s.callDir(callID), resultFile, outcome)
}

// lookup reads what is stored of a call. ok is false if it never began; a nil
// outcome says that its end was not stored.
func (s *spool) lookup(callID string) (start startRecord, outcome *tools.Outcome, ok bool, err error) {
	dir := s.callDir(callID)
	raw, err := os.ReadFile(filepath.Join(dir, startFile))
	if errors.Is(err, fs.ErrNotExist) {
		return startRecord{}, nil, false, nil
	}
	if err != nil {
		return startRecord{}, nil, false, fmt.Errorf("spool: %w", err)
	}
	if err := json.Unmarshal(raw, &start); err != nil {
		// It was renamed into place, so it began: damage must not make it new.
		start = startRecord{CallID: callID}
	}
	raw, err = os.ReadFile(filepath.Join(dir, resultFile))
	if errors.Is(err, fs.ErrNotExist) {
		return start, nil, true, nil
	}
	if err != nil {
		return start, nil, true, fmt.Errorf("spool: %w", err)
	}
	var stored tools.Outcome
	if json.Unmarshal(raw, &stored) == nil && stored.Status != "" {
		return start, &stored, true, nil
	}
	return start, nil, true, nil // an outcome that cannot be read was not observed
}

// tail reads the end of a call's output so far.
func (s *spool) tail(callID string) string {
	const size = 4 << 10
	file, err := os.Open(filepath.Join(s.callDir(callID), outputFile))
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return ""
	}
	buffer := make([]byte, min(size, info.Size()))
	n, _ := file.ReadAt(buffer, info.Size()-int64(len(buffer)))
	return tools.TailText(buffer[:n], size)
}

// writeDurably writes value as JSON so that after a crash the file is either
// absent or complete, and after a return it is on the disk.
func writeDurably(dir, name string, value any) (err error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("spool: %s: %w", name, err)
	}
	temporary := filepath.Join(dir, "."+name+".new")
	file, err := os.OpenFile(temporary, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o660)
	if err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	_, err = file.Write(append(raw, '\n'))
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	if err := os.Rename(temporary, filepath.Join(dir, name)); err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	return nil
}

// writeNew makes a file unless it is there already.
func writeNew(path, content string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o660)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = file.WriteString(content)
	return errors.Join(err, file.Close())
}

func randomID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

// raiseEpoch records that a runner of a higher epoch has come.
func (s *spool) raiseEpoch(epoch int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record.Epoch = epoch
	return s.save()
}
