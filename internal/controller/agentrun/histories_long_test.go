//go:build long

package agentrun

const histories = 1000
