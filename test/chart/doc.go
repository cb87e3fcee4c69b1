// Package chart tests the Helm chart: what it writes against what config/ writes, what its values refuse, and its whole
// life on the embedded cluster, where the manager runs as the chart's pod with the rights that the chart gives it.
//
// It has tests only.
package chart
