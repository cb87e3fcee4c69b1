package ledger

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	firstSegment   = "ledger.jsonl"
	segmentPrefix  = "ledger-"
	segmentSuffix  = ".jsonl"
	segmentDigits  = 6
	epochFile      = "EPOCH"
	lockFile       = "LOCK"
	ballastFile    = "ballast"
	blobDir        = "blobs"
	tornDir        = "torn"
	tempSuffix     = ".tmp"
	fileMode       = fs.FileMode(0o600)
	archivedMode   = fs.FileMode(0o444)
	dirMode        = fs.FileMode(0o700)
	segmentStart   = "segment.start"
	recoveredType  = "recovered"
	maxSmallFile   = 64 << 10
	defaultSegment = 64 << 20
)

// segmentName is the file name of a segment, counted from 1.
func segmentName(number int) string {
	if number == 1 {
		return firstSegment
	}
	return fmt.Sprintf("%s%0*d%s", segmentPrefix, segmentDigits, number, segmentSuffix)
}

// segmentNumber is the inverse of segmentName; ok is false for other files.
func segmentNumber(name string) (number int, ok bool) {
	if name == firstSegment {
		return 1, true
	}
	digits, found := strings.CutPrefix(name, segmentPrefix)
	if !found {
		return 0, false
	}
	digits, found = strings.CutSuffix(digits, segmentSuffix)
	if !found {
		return 0, false
	}
	number, err := strconv.Atoi(digits)
	if err != nil || number < 2 || segmentName(number) != name {
		return 0, false
	}
	return number, true
}

// lastSegment returns the number of the newest segment, 0 if there is none, and
// refuses a directory in which one is missing.
func lastSegment(fsys FS, dir string) (int, error) {
	names, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("listing ledger directory %s: %w", dir, err)
	}
	present := map[int]bool{}
	newest := 0
	for _, name := range names {
		if number, ok := segmentNumber(name); ok {
			present[number] = true
			newest = max(newest, number)
		}
	}
	for number := 1; number < newest; number++ {
		if !present[number] {
			return 0, &CorruptError{
				Segment: filepath.Join(dir, segmentName(number)),
				What:    fmt.Sprintf("the segment is missing, though segment %d exists", newest),
				Advice:  adviceRestore,
			}
		}
	}
	return newest, nil
}

// segmentHeader is the payload of the first record of every segment but the first.
type segmentHeader struct {
	Segment  int    `json:"segment"`
	FirstSeq uint64 `json:"firstSeq"`
	RunUID   string `json:"runUID"`
}
