package local

import (
	"fmt"
	"io"

	"belay.dev/belay/internal/runtime/budget"
)

// Usage writes a table of what each leg was asked and charged, over all invocations of the run.
func Usage(w io.Writer, account *budget.Account) {
	width := len("total")
	for _, l := range account.Legs {
		width = max(width, len(l.Leg))
	}
	fmt.Fprintf(w, "%-*s %8s %6s %12s %12s %14s\n", width, "LEG", "REQUESTS", "FAILED", "INPUT", "OUTPUT", "COST")
	row := func(name string, requests, failed int, c budget.Charge) {
		mark := ""
		if c.Usage.Estimated {
			mark = " (estimated)"
		}
		fmt.Fprintf(w, "%-*s %8d %6d %12d %12d %14s%s\n", width, name, requests, failed, c.Usage.InputTokens, c.Usage.OutputTokens, budget.USD(c.CostMicroUSD), mark)
	}
	requests, failed := 0, 0
	for _, l := range account.Legs {
		row(l.Leg, l.Requests, l.Failed, l.Charge)
		requests, failed = requests+l.Requests, failed+l.Failed
	}
	row("total", requests, failed, account.Total)
}
