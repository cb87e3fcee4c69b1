package guard

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// excerptBytes is how much of a failure's text is kept and told again.
const excerptBytes = 512

const ellipsis = "…"

// clip returns s as valid UTF-8 of at most limit bytes, cut between runes and marked if it was cut.
func clip(s string, limit int) string {
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	if len(s) <= limit {
		return s
	}
	end := limit - len(ellipsis)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + ellipsis
}

// maxNameBytes is the longest name of a tool that any provider accepts.
const maxNameBytes = 64

const nameCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

// toolName shows a tool's name. A model may have made it up: one that no tool can have is quoted and cut.
func toolName(name string) string {
	if name != "" && len(name) <= maxNameBytes && strings.Trim(name, nameCharacters) == "" {
		return name
	}
	return fmt.Sprintf("%q", clip(name, maxNameBytes))
}

// names lists the distinct items in their order, at most most of them.
func names(items []string, most int) string {
	var distinct []string
	for _, item := range items {
		if !slices.Contains(distinct, item) {
			distinct = append(distinct, item)
		}
	}
	if more := len(distinct) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(distinct[:most], ", "), more)
	}
	return strings.Join(distinct, ", ")
}

// fingerprint is a hash of the parts that tells ("a", "bc") from ("ab", "c").
func fingerprint(parts ...string) string {
	h := sha256.New()
	// Outputs are large, and a resumed run has all of them to hash: they go through a small buffer instead of a copy.
	buffer := make([]byte, 1024)
	for _, part := range parts {
		binary.BigEndian.PutUint64(buffer, uint64(len(part)))
		h.Write(buffer[:8])
		for len(part) > 0 {
			n := copy(buffer, part)
			h.Write(buffer[:n])
			part = part[n:]
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// fingerprintSet is a fingerprint in which neither order nor number of equal parts matters.
func fingerprintSet(parts []string) string {
	sorted := slices.Clone(parts)
	slices.Sort(sorted)
	return fingerprint(slices.Compact(sorted)...)
}
