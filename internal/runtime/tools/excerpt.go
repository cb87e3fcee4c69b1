package tools

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxTextBytes is the most that a model is shown of one output.
const MaxTextBytes = 32 << 10

// markerRoom is kept free for the line that says what was left out.
const markerRoom = 512

// HeadTail is an io.Writer that keeps the beginning and the end of what is
// written to it, in bounded memory. The zero value is not usable.
type HeadTail struct {
	limit int
	head  []byte
	tail  []byte // a ring once it is full
	next  int    // where the ring is written next
	total int64
}

// NewHeadTail returns a HeadTail whose Text has at most limit bytes, which
// must be at least 1 KiB.
func NewHeadTail(limit int) *HeadTail { return &HeadTail{limit: limit} }

func (h *HeadTail) half() int { return (h.limit - markerRoom) / 2 }

// Write never fails.
func (h *HeadTail) Write(p []byte) (int, error) {
	n := len(p)
	h.total += int64(n)
	if room := h.half() - len(h.head); room > 0 {
		take := min(room, len(p))
		h.head = append(h.head, p[:take]...)
		p = p[take:]
	}
	// What follows the head: the last half+markerRoom bytes of it are kept, so
	// that an output that just fits is shown whole.
	size := h.limit - h.half()
	if len(p) > size {
		p = p[len(p)-size:]
		h.tail, h.next = h.tail[:0], 0
	}
	if room := size - len(h.tail); room > 0 {
		take := min(room, len(p))
		h.tail = append(h.tail, p[:take]...)
		p = p[take:]
	}
	for len(p) > 0 {
		copied := copy(h.tail[h.next:], p)
		h.next = (h.next + copied) % size
		p = p[copied:]
	}
	return n, nil
}

// Total is the number of bytes written.
func (h *HeadTail) Total() int64 { return h.total }

// Text returns what was written as valid UTF-8 of at most the limit. When
// bytes are left out, a marker line between head and tail says how many, and
// whole (a phrase such as "the whole output is in FILE") where to find them.
func (h *HeadTail) Text(whole string) (string, *Truncation) {
	tail := append(append([]byte{}, h.tail[h.next:]...), h.tail[:h.next]...)
	if h.total == int64(len(h.head)+len(tail)) {
		if text := SafeText(string(h.head) + string(tail)); len(text) <= h.limit {
			return text, nil
		}
	}
	head := headPart(h.head, h.half())
	tail = tailPart(tail, h.half())
	omitted := h.total - int64(len(head)) - int64(len(tail))
	marker := fmt.Sprintf("[... %d of %d bytes left out", omitted, h.total)
	if whole != "" {
		marker += "; " + clip(whole, markerRoom-len(marker)-16)
	}
	var text strings.Builder
	text.WriteString(SafeText(string(head)))
	if len(head) > 0 && head[len(head)-1] != '\n' {
		text.WriteByte('\n')
	}
	text.WriteString(marker + " ...]\n")
	text.WriteString(SafeText(string(tail)))
	return text.String(), &Truncation{TotalBytes: h.total, OmittedBytes: omitted}
}

// headPart is the longest beginning of p that ends between two runes and has
// at most limit bytes once it is safe text.
func headPart(p []byte, limit int) []byte {
	size, end := 0, 0
	for end < len(p) {
		if !utf8.FullRune(p[end:]) {
			break // the rest of this rune was not kept
		}
		r, width := utf8.DecodeRune(p[end:])
		if size += safeLen(r); size > limit {
			break
		}
		end += width
	}
	return p[:end]
}

// tailPart is the same for the end of p, whose beginning may be cut through a rune.
func tailPart(p []byte, limit int) []byte {
	for skipped := 0; skipped < utf8.UTFMax-1 && len(p) > 0 && !utf8.RuneStart(p[0]); skipped++ {
		p = p[1:]
	}
	size, start := 0, len(p)
	for start > 0 {
		r, width := utf8.DecodeLastRune(p[:start])
		if size += safeLen(r); size > limit {
			break
		}
		start -= width
	}
	return p[start:]
}

func safeLen(r rune) int {
	if r == 0 {
		return utf8.RuneLen(utf8.RuneError)
	}
	return utf8.RuneLen(r)
}

// SafeText returns s with every invalid byte and every NUL replaced by U+FFFD,
// because JSON encoders, databases and providers disagree about both.
func SafeText(s string) string {
	if utf8.ValidString(s) && !strings.Contains(s, "\x00") {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for _, r := range s { // range yields U+FFFD for each invalid byte
		if r == 0 {
			r = utf8.RuneError
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Excerpt returns text as safe text of at most limit bytes, head and tail.
func Excerpt(text string, limit int, whole string) (string, *Truncation) {
	h := NewHeadTail(limit)
	_, _ = h.Write([]byte(text))
	return h.Text(whole)
}

// clip cuts s between runes to at most limit bytes and marks the cut.
func clip(s string, limit int) string {
	s = SafeText(s)
	if len(s) <= limit {
		return s
	}
	const mark = "…"
	if limit <= len(mark) {
		return ""
	}
	return string(headPart([]byte(s), limit-len(mark))) + mark
}

// TailText returns the end of p as safe text of at most limit bytes; p may
// begin in the middle of a rune.
func TailText(p []byte, limit int) string { return SafeText(string(tailPart(p, limit))) }

// HeadText returns the beginning of p as safe text of at most limit bytes; p
// may end in the middle of a rune.
func HeadText(p []byte, limit int) string { return SafeText(string(headPart(p, limit))) }
