//go:build !long

package agentrun

// histories is how many random histories the protocol is tried on; the build tag "long" tries many more.
const histories = 60
