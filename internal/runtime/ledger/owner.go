package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
)

// owner is the content of the EPOCH file: who may write. It is sealed with a crc
// member in the same way as a record.
type owner struct {
	Version int    `json:"v"`
	RunUID  string `json:"runUID"`
	Epoch   uint64 `json:"epoch"`
	PodUID  string `json:"podUID"`
}

// Holder describes the process that holds the lock of a directory. It is for
// messages only.
type Holder struct {
	Epoch  uint64 `json:"epoch"`
	PodUID string `json:"podUID"`
	PID    int    `json:"pid"`
	Host   string `json:"host"`
}

func (o owner) encode() ([]byte, error) {
	o.Version = Version
	body, err := marshal(o)
	if err != nil {
		return nil, err
	}
	body = bytes.TrimSuffix(body, []byte("}"))
	crc := crc32.Checksum(body, castagnoli)
	body = append(body, crcLead...)
	body = appendCRC(body, crc)
	return append(body, '"', '}', '\n'), nil
}

// readOwner returns the zero owner if there is no EPOCH file yet.
func readOwner(fsys FS, dir string) (owner, error) {
	path := filepath.Join(dir, epochFile)
	data, err := readFile(fsys, path, maxSmallFile)
	if errors.Is(err, fs.ErrNotExist) {
		return owner{}, nil
	}
	if err != nil {
		return owner{}, fmt.Errorf("reading the epoch file: %w", err)
	}
	sealed := bytes.TrimSuffix(data, []byte("\n"))
	var o owner
	err = checkCRC(sealed)
	if err == nil {
		err = json.Unmarshal(sealed, &o)
	}
	if err != nil {
		return owner{}, &CorruptError{
			Segment: path, What: fmt.Sprintf("the epoch file is damaged: %v", err),
			Advice: "make sure that no runner is at work and remove this file, it is written anew; nothing was changed",
		}
	}
	if o.Version > Version {
		return owner{}, fmt.Errorf("reading the epoch file %s: %w", path, ErrNewerVersion)
	}
	return o, nil
}

// readHolder reads the lock file for a message; what it cannot read stays zero.
func readHolder(fsys FS, dir string) Holder {
	var h Holder
	data, err := readFile(fsys, filepath.Join(dir, lockFile), maxSmallFile)
	if err != nil || json.Unmarshal(data, &h) != nil {
		return Holder{}
	}
	return h
}

// writeHolder is called under the lock. It writes in place, because a rename would
// leave the lock on the old file.
func writeHolder(fsys FS, dir string, h Holder) error {
	data, err := marshal(h)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, lockFile)
	f, err := fsys.OpenFile(path, flagCreate, fileMode)
	if err != nil {
		return &UnwritableError{Op: "writing", Path: path, Err: err}
	}
	_, err = f.Write(append(data, '\n'))
	if err = errors.Join(err, f.Close()); err != nil {
		return &UnwritableError{Op: "writing", Path: path, Err: err}
	}
	return nil
}

// writeDurably replaces a file by way of a synced temporary file, so that after a
// crash it has either its old or its new content.
func writeDurably(fsys FS, path string, data []byte, counts *counters) error {
	temp := path + tempSuffix
	err := writeSynced(fsys, temp, data, counts)
	if err == nil {
		err = fsys.Rename(temp, path)
	}
	if err != nil {
		return errors.Join(&UnwritableError{Op: "writing", Path: path, Err: err}, removeIfPresent(fsys, temp))
	}
	if err := syncDir(fsys, filepath.Dir(path), counts); err != nil {
		return err
	}
	return nil
}

func writeSynced(fsys FS, path string, data []byte, counts *counters) error {
	f, err := fsys.OpenFile(path, flagCreate, fileMode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		counts.fileSyncs.Add(1)
		if err = f.Sync(); err != nil {
			err = &syncError{err}
		}
	}
	return errors.Join(err, f.Close())
}

func syncDir(fsys FS, dir string, counts *counters) error {
	counts.dirSyncs.Add(1)
	if err := fsys.SyncDir(dir); err != nil {
		return &UnwritableError{Op: "syncing directory", Path: dir, Err: &syncError{err}}
	}
	return nil
}

// syncError marks a failed fsync, after which nothing that was written to the file
// can be trusted.
type syncError struct{ err error }

func (e *syncError) Error() string { return "fsync: " + e.err.Error() }
func (e *syncError) Unwrap() error { return e.err }

func removeIfPresent(fsys FS, path string) error {
	if err := fsys.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func thisProcess() (pid int, host string) {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return os.Getpid(), host
}
