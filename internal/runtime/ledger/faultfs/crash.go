package faultfs

import (
	"bytes"
	"math/rand/v2"
	"slices"
)

// Survival says what of the unsynced state a power loss leaves.
type Survival int

const (
	// Strict leaves what was synced and nothing else.
	Strict Survival = iota
	// Ordered leaves some unsynced names, and some first bytes of what was appended
	// to a file: what file systems do that write data before sizes.
	Ordered
	// Scattered also lets blocks in the midst of what was appended be zeros.
	Scattered
)

// scatterBlock is small, so that a few records span several blocks.
const scatterBlock = 64

// Crash returns the file system as it is found after a power loss now. No lock is
// held in it. m is not changed.
func (m *Memory) Crash(survival Survival, random *rand.Rand) *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	after := NewMemory()
	after.noLocks = m.noLocks
	after.capacity = m.capacity
	c := crash{survival: survival, random: random, inodes: map[*inode]*inode{}, into: after}
	after.root = c.directory(m.root)
	return after
}

type crash struct {
	survival Survival
	random   *rand.Rand
	inodes   map[*inode]*inode
	into     *Memory
}

func (c *crash) coin() bool { return c.random.IntN(2) == 0 }

func (c *crash) directory(d *directory) *directory {
	out := newDirectory()
	for _, name := range sortedNames(d.names, d.durable) {
		entry, kept := d.durable[name]
		if now, exists := d.names[name]; now != entry && c.survival != Strict && c.coin() {
			entry, kept = now, exists
		}
		if !kept {
			continue
		}
		switch entry := entry.(type) {
		case *directory:
			out.names[name] = c.directory(entry)
		case *inode:
			out.names[name] = c.file(entry)
		}
		out.durable[name] = out.names[name]
	}
	return out
}

func (c *crash) file(f *inode) *inode {
	if out, done := c.inodes[f]; done {
		return out
	}
	data := f.durable
	if c.survival != Strict && !bytes.Equal(f.data, f.durable) {
		data = c.content(f)
	}
	out := &inode{data: bytes.Clone(data), mode: f.mode}
	out.durable = out.data
	c.inodes[f] = out
	c.into.used += int64(len(out.data))
	return out
}

// content chooses between the synced and the written content of a file, and how much
// of the written one is there. What they begin with in common is safe.
func (c *crash) content(f *inode) []byte {
	kept := 0
	for kept < len(f.data) && kept < len(f.durable) && f.data[kept] == f.durable[kept] {
		kept++
	}
	if kept < len(f.durable) && c.coin() {
		return f.durable
	}
	data := bytes.Clone(f.data[:kept+c.random.IntN(len(f.data)-kept+1)])
	if c.survival == Scattered {
		for block := kept; block < len(data); block += scatterBlock {
			if c.random.IntN(4) == 0 {
				clear(data[block:min(block+scatterBlock, len(data))])
			}
		}
	}
	return data
}

func sortedNames(sets ...map[string]node) []string {
	seen := map[string]bool{}
	var names []string
	for _, set := range sets {
		for name := range set {
			if !seen[name] {
				seen[name] = true
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}
