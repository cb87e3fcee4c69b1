package tools

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestShortTextIsShownWhole(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "one line": "hello\n", "just fits": strings.Repeat("x", 4096), "runes": strings.Repeat("é", 2048),
	} {
		got, truncated := Excerpt(text, 4096, "nowhere")
		if got != text || truncated != nil {
			t.Errorf("%s: got %d bytes, %+v", name, len(got), truncated)
		}
	}
}

func TestLongTextShowsBeginningAndEndAndCountsTheRest(t *testing.T) {
	// 4096 - 512 for the marker leaves 1792 bytes for each side.
	text := strings.Repeat("a", 5000) + strings.Repeat("b", 5000)
	got, truncated := Excerpt(text, 4096, "file F has all of it")
	want := strings.Repeat("a", 1792) + "\n[... 6416 of 10000 bytes left out; file F has all of it ...]\n" + strings.Repeat("b", 1792)
	if got != want {
		t.Errorf("got %q", got)
	}
	if truncated == nil || truncated.TotalBytes != 10000 || truncated.OmittedBytes != 6416 {
		t.Errorf("got %+v", truncated)
	}
}

func TestNoRuneIsSplit(t *testing.T) {
	for _, r := range []string{"é", "€", "😀"} {
		for shift := range len(r) {
			text := strings.Repeat("x", shift) + strings.Repeat(r, 5000) + strings.Repeat("y", shift)
			got, truncated := Excerpt(text, 4096, "")
			if strings.ContainsRune(got, utf8.RuneError) || !utf8.ValidString(got) {
				t.Errorf("%s shifted by %d: a rune was split", r, shift)
			}
			head, rest, _ := strings.Cut(got, "\n[... ")
			_, tail, _ := strings.Cut(rest, " ...]\n")
			if !strings.HasPrefix(text, head) || !strings.HasSuffix(text, tail) {
				t.Errorf("%s shifted by %d: head or tail is not of the text", r, shift)
			}
			if shown := int64(len(head) + len(tail)); truncated.OmittedBytes != int64(len(text))-shown {
				t.Errorf("%s shifted by %d: %d bytes left out, want %d", r, shift, truncated.OmittedBytes, int64(len(text))-shown)
			}
		}
	}
}

func TestInvalidBytesCannotMakeTheTextLonger(t *testing.T) {
	got, truncated := Excerpt(strings.Repeat("\xff", 4000), 4096, "") // 12,000 bytes as U+FFFD
	if len(got) > 4096 || truncated == nil {
		t.Errorf("got %d bytes, %+v", len(got), truncated)
	}
}

func TestSafeTextReplacesInvalidBytesAndNUL(t *testing.T) {
	for in, want := range map[string]string{
		"plain": "plain", "a\x00b": "a\uFFFDb", "\xc3": "\uFFFD", "\xed\xa0\x80": "\uFFFD\uFFFD\uFFFD", "é😀": "é😀",
	} {
		if got := SafeText(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestHeadTailDependsOnTheBytesOnlyAndNotOnTheWrites(t *testing.T) {
	text := make([]byte, 20_000)
	for i := range text {
		text[i] = byte('a' + i%26)
	}
	whole := NewHeadTail(2048)
	_, _ = whole.Write(text)
	want, _ := whole.Text("w")
	for _, size := range []int{1, 7, 769, 1279, 1280, 4096} {
		h := NewHeadTail(2048)
		for rest := text; len(rest) > 0; {
			n := min(size, len(rest))
			if written, err := h.Write(rest[:n]); written != n || err != nil {
				t.Fatalf("wrote %d, %v", written, err)
			}
			rest = rest[n:]
		}
		if got, _ := h.Text("w"); got != want {
			t.Errorf("in writes of %d bytes: got %q, want %q", size, got, want)
		}
	}
}

func TestPartsOfBytesAreCutBetweenRunes(t *testing.T) {
	if got := HeadText([]byte("aéb"), 2); got != "a" {
		t.Errorf("head: got %q", got)
	}
	if got := TailText([]byte("aéb")[2:], 10); got != "b" { // begins with the second byte of é
		t.Errorf("tail: got %q", got)
	}
}

func FuzzExcerpt(f *testing.F) {
	f.Add([]byte("hello"), uint16(1024))
	f.Add([]byte(strings.Repeat("\xf0\x9f\x98", 900)), uint16(1024))
	f.Add([]byte(strings.Repeat("\x00é", 3000)), uint16(2000))
	f.Fuzz(func(t *testing.T, text []byte, limit uint16) {
		most := 1024 + int(limit)
		got, truncated := Excerpt(string(text), most, "w")
		if len(got) > most || !utf8.ValidString(got) || strings.Contains(got, "\x00") {
			t.Fatalf("%d bytes, limit %d, valid %v", len(got), most, utf8.ValidString(got))
		}
		if truncated == nil && got != SafeText(string(text)) {
			t.Fatal("shown whole, but changed")
		}
		if truncated != nil && !strings.Contains(got, fmt.Sprintf("[... %d of %d bytes left out", truncated.OmittedBytes, len(text))) {
			t.Fatal("the marker does not say what is left out")
		}
	})
}
