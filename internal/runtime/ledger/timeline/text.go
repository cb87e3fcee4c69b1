package timeline

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// clean makes untrusted text fit for a terminal: one line, and no control or format
// characters, which could move the cursor, hide text or turn its direction.
func clean(text string) string {
	var out strings.Builder
	space := false
	for _, r := range text {
		switch {
		case unicode.IsSpace(r):
			space = out.Len() > 0
			continue
		case r == utf8.RuneError, unicode.IsControl(r), unicode.Is(unicode.Cf, r), !unicode.IsGraphic(r):
			r = '\ufffd'
		}
		if space {
			out.WriteByte(' ')
			space = false
		}
		out.WriteRune(r)
	}
	return out.String()
}

// excerpt cuts clean text to a number of characters.
func excerpt(text string, limit int) string {
	text = clean(text)
	if utf8.RuneCountInString(text) <= limit {
		return text
	}
	runes := []rune(text)
	return strings.TrimRight(string(runes[:max(limit-1, 0)]), " ") + "…"
}

// wrap breaks text at spaces, where it can, into a first line of at most first
// characters and further lines of at most rest.
func wrap(text string, first, rest int) []string {
	var lines []string
	current := ""
	width := func() int {
		if len(lines) == 0 {
			return first
		}
		return rest
	}
	flush := func() {
		if current != "" {
			lines = append(lines, current)
			current = ""
		}
	}
	for word := range strings.FieldsSeq(text) {
		if current != "" && utf8.RuneCountInString(current)+1+utf8.RuneCountInString(word) > width() {
			flush()
		}
		for utf8.RuneCountInString(word) > width() {
			runes := []rune(word)
			current = string(runes[:width()])
			word = string(runes[width():])
			flush()
		}
		if current != "" {
			current += " "
		}
		current += word
	}
	flush()
	return lines
}

// span prints a duration for people. A negative one, from a clock that stepped
// back, is none.
func span(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	default:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
}

func milliseconds(n int64) string { return span(time.Duration(n) * time.Millisecond) }

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
