// Package crd holds the CustomResourceDefinitions as they are installed, so that a command without a cluster can judge a
// manifest by the very rules that the API server would apply.
//
// It is generated content and imports the standard library only.
package crd

import "embed"

// Bases are the generated CustomResourceDefinitions, one file for each kind, under bases/.
//
//go:embed bases/*.yaml
var Bases embed.FS
