package record

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"
)

// Contract is what is frozen when a run starts: the task, the words of its owner, the tools it may use and its policy.
// A later epoch works from the contract in the ledger.
type Contract struct {
	Task   string `json:"task"`
	System string `json:"system,omitempty"`
	// Tools are the workspace tools the run may use.
	Tools   []ToolGrant `json:"tools,omitempty"`
	Routing Routing     `json:"routing"`
	Limits  Limits      `json:"limits"`
}

// ToolGrant allows one workspace tool.
type ToolGrant struct {
	Name string `json:"name"`
	// Timeout bounds one call; 0 takes the tool's default.
	Timeout time.Duration `json:"timeout,omitempty"`
}

// Routing is what a run demands of the legs that may serve it.
type Routing struct {
	// SecurityClass is the least class of a leg: Public, Internal, Confidential or Restricted; empty is Public.
	SecurityClass string `json:"securityClass,omitempty"`
	// Metered says whether legs billed by use may serve: Deny (default) or Allow.
	Metered string `json:"metered,omitempty"`
	// Legs are the legs that may serve, all when empty; the ladder's order stands.
	Legs []string `json:"legs,omitempty"`
}

// Limits bound a run. They may be raised while it runs; the contract keeps what it started with.
type Limits struct {
	MaxTurns int `json:"maxTurns,omitempty"`
	// MaxModelRetries bounds the requests after the first of each turn: 0 allows none, nil any number.
	MaxModelRetries *int  `json:"maxModelRetries,omitempty"`
	MaxTokens       int64 `json:"maxTokens,omitempty"`
	MaxCostMicroUSD int64 `json:"maxCostMicroUSD,omitempty"`
	// ActiveDeadline is pod time over all epochs, waits included.
	ActiveDeadline time.Duration `json:"activeDeadline,omitempty"`
	// MaxParked bounds the time parked.
	MaxParked time.Duration `json:"maxParked,omitempty"`
}

// SHA256 identifies the immutable part of the contract, in hex; limits may change between epochs and are left out.
func (c Contract) SHA256() string {
	c.Limits = Limits{}
	b, err := json.Marshal(c)
	if err != nil {
		panic(fmt.Sprintf("record: a contract of strings and numbers failed to encode: %v", err))
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
