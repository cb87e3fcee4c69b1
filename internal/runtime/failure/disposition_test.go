package failure

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEveryKindHasTheDispositionOfTheTable(t *testing.T) {
	blind := Disposition{SameLeg: "Backoff", NextLeg: "WhenSpent", Health: "Blind", Transient: true}
	informed := Disposition{SameLeg: "ShortWait", NextLeg: "WhenWaitTooLong", Health: "Informed", Transient: true}
	credential := Disposition{SameLeg: "Never", NextLeg: "AtOnce", Health: "CredentialCooling"}
	refused := Disposition{SameLeg: "AfterReread", NextLeg: "ByCredentialPolicy", Health: "Neutral", Flag: "Credential"}
	want := map[Kind]Disposition{
		"Network":               blind,
		"Timeout":               blind,
		"ServerError":           blind,
		"StreamTruncated":       blind,
		"StreamMalformed":       blind,
		"StreamStalled":         {SameLeg: "OnlyIfAlone", NextLeg: "AtOnce", Health: "Blind", Transient: true},
		"RateLimited":           informed,
		"Overloaded":            informed,
		"QuotaExhausted":        credential,
		"Billing":               credential,
		"ModelNotFound":         {SameLeg: "Never", NextLeg: "AtOnce", Health: "Neutral", Flag: "Model"},
		"AuthError":             refused,
		"PermissionDenied":      refused,
		"InvalidRequest":        {SameLeg: "AfterRepair", NextLeg: "Never", Health: "Neutral"},
		"ContextLengthExceeded": {SameLeg: "AfterReduction", NextLeg: "IfWindowFits", Health: "Neutral"},
		"OutputTruncated":       {SameLeg: "RaiseCap", NextLeg: "Never", Health: "Neutral"},
		"ContentFiltered":       {SameLeg: "Never", NextLeg: "ByFilterPolicy", Health: "Neutral"},
		"EmptyResponse":         {SameLeg: "Once", NextLeg: "WhenSpent", Health: "Neutral"},
		"Unknown":               {SameLeg: "Backoff", NextLeg: "WhenSpent", Health: "Neutral", Transient: true},
		"Cancelled":             {SameLeg: "Never", NextLeg: "Never", Health: "Neutral"},
	}
	got := map[Kind]Disposition{}
	for _, k := range Kinds() {
		got[k] = k.Disposition()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("dispositions (-want +got):\n%s", diff)
	}
}

func TestAKindOfANewerVersionIsTreatedAsUnknown(t *testing.T) {
	if got, want := Kind("FromTheFuture").Disposition(), Unknown.Disposition(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestKindsListsEveryDeclaredKind reads the source, so that a kind added to the constants and forgotten in the list fails.
func TestKindsListsEveryDeclaredKind(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "kind.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var declared []Kind
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if ok && len(spec.Values) == 1 {
			if lit, ok := spec.Values[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
				declared = append(declared, Kind(lit.Value[1:len(lit.Value)-1]))
			}
		}
		return true
	})
	if diff := cmp.Diff(declared, Kinds()); diff != "" {
		t.Errorf("declared kinds and Kinds() differ (-declared +listed):\n%s", diff)
	}
}
