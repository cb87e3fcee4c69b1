package ledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// BlobRef names a payload that is kept beside the records, by its content.
type BlobRef struct {
	// SHA256 is in lower-case hex.
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
}

// BlobError says that the content behind a reference is missing or damaged.
type BlobError struct {
	Ref  BlobRef
	Path string
	Err  error
}

func (e *BlobError) Error() string {
	return fmt.Sprintf("reading ledger blob %s (%d bytes): %v; restore the file from a copy", e.Path, e.Ref.Size, e.Err)
}

func (e *BlobError) Unwrap() error { return e.Err }

func refOf(data []byte) BlobRef {
	sum := sha256.Sum256(data)
	return BlobRef{SHA256: hex.EncodeToString(sum[:]), Size: int64(len(data))}
}

func blobPath(dir string, ref BlobRef) (string, error) {
	if raw, err := hex.DecodeString(ref.SHA256); err != nil || len(raw) != sha256.Size || hex.EncodeToString(raw) != ref.SHA256 {
		return "", fmt.Errorf("blob reference %q is no SHA-256 in lower-case hex", ref.SHA256)
	}
	return filepath.Join(dir, blobDir, ref.SHA256), nil
}

// PutBlob stores data, redacted, and returns its reference. The blob is durable
// when PutBlob returns, so that a record which names it never dangles. The same
// content is stored once. It returns [*UnwritableError] if there is no room, and
// the ledger stays usable; a failed fsync poisons it.
func (l *Ledger) PutBlob(data []byte) (BlobRef, error) {
	data, err := l.redactBlob(data)
	if err != nil {
		return BlobRef{}, err
	}
	ref := refOf(data)
	path, err := blobPath(l.dir, ref)
	if err != nil {
		return BlobRef{}, err
	}
	if err := l.usable(); err != nil {
		return BlobRef{}, err
	}
	l.blobs.Lock()
	err = l.storeBlob(path, ref, data)
	l.blobs.Unlock()
	if err != nil {
		if failedSync := (*syncError)(nil); errors.As(err, &failedSync) {
			l.mu.Lock()
			err = l.poison(err)
			l.mu.Unlock()
		}
		return BlobRef{}, err
	}
	return ref, nil
}

// redactBlob looks into the strings of a blob that is JSON, as a payload that was
// too large for its record is.
func (l *Ledger) redactBlob(data []byte) ([]byte, error) {
	if l.opts.Redact == nil {
		return data, nil
	}
	if !json.Valid(data) {
		return l.opts.Redact(bytes.Clone(data)), nil
	}
	clean, err := redactJSON(bytes.Clone(data), l.opts.Redact)
	if err != nil {
		return nil, fmt.Errorf("redacting a blob: %w", err)
	}
	return clean, nil
}

func (l *Ledger) usable() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

func (l *Ledger) storeBlob(path string, ref BlobRef, data []byte) error {
	dir := filepath.Dir(path)
	if err := makeDirs(l.fsys, dir, &l.counts); err != nil {
		return err
	}
	if _, err := readBlob(l.fsys, l.dir, ref); err == nil {
		// A crash may have come between the rename and the sync of the directory.
		return syncDir(l.fsys, dir, &l.counts)
	}
	return writeDurably(l.fsys, path, data, &l.counts)
}

// Blob returns the content behind a reference, checked against it, or a [*BlobError].
func (l *Ledger) Blob(ref BlobRef) ([]byte, error) {
	if err := l.usable(); errors.Is(err, ErrClosed) {
		return nil, err
	}
	return readBlob(l.fsys, l.dir, ref)
}

// ReadBlob is [Ledger.Blob] for readers that do not hold the ledger. A nil FS means [OS].
func ReadBlob(fsys FS, dir string, ref BlobRef) ([]byte, error) {
	return readBlob(orOS(fsys), dir, ref)
}

func readBlob(fsys FS, dir string, ref BlobRef) ([]byte, error) {
	path, err := blobPath(dir, ref)
	if err != nil {
		return nil, &BlobError{Ref: ref, Path: filepath.Join(dir, blobDir), Err: err}
	}
	data, err := readFile(fsys, path, max(ref.Size, 0))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &BlobError{Ref: ref, Path: path, Err: err}
	case err != nil:
		return nil, &BlobError{Ref: ref, Path: path, Err: err}
	case refOf(data) != ref:
		return nil, &BlobError{Ref: ref, Path: path, Err: errors.New("its content does not match its name")}
	}
	return data, nil
}
