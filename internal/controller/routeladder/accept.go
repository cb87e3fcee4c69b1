package routeladder

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/url"

	"belay.dev/belay/api/v1alpha1"
	"belay.dev/belay/internal/contract"
	"belay.dev/belay/internal/runtime/route"
)

// verdict is what the controller makes of one leg's configuration.
type verdict struct {
	leg *v1alpha1.Leg
	// route is empty if the leg's provider does not exist.
	route route.Name
	// reason is empty for an accepted leg.
	reason  string
	message string
}

func (v verdict) accepted() bool { return v.reason == "" }

// judge returns a verdict on each leg, in order. Most of what can be wrong with a ladder is refused by the API server; what
// is left are things that its rules cannot see.
func judge(l *v1alpha1.RouteLadder) []verdict {
	verdicts := make([]verdict, 0, len(l.Spec.Legs))
	for i := range l.Spec.Legs {
		leg := &l.Spec.Legs[i]
		v := verdict{leg: leg}
		p := providerOf(l, leg.Provider)
		if p == nil {
			v.reason, v.message = v1alpha1.ReasonUnknownRoute, fmt.Sprintf("provider %q is not in spec.providers", leg.Provider)
			verdicts = append(verdicts, v)
			continue
		}
		v.route = contract.RouteOf(l, *leg).Name()
		if leg.State == v1alpha1.LegStateDrained {
			v.reason, v.message = v1alpha1.ReasonLegDrained, "the leg's state is Drained; set it to Active to use the leg again"
		} else {
			v.reason, v.message = rejectProvider(p)
		}
		verdicts = append(verdicts, v)
	}
	return verdicts
}

func providerOf(l *v1alpha1.RouteLadder, name string) *v1alpha1.Provider {
	for i := range l.Spec.Providers {
		if l.Spec.Providers[i].Name == name {
			return &l.Spec.Providers[i]
		}
	}
	return nil
}

// rejectProvider says why no request can be sent to a provider; empty if one can.
func rejectProvider(p *v1alpha1.Provider) (reason, message string) {
	u, err := url.Parse(p.BaseURL)
	switch {
	case err != nil || u.Hostname() == "":
		return v1alpha1.ReasonInvalidURL, fmt.Sprintf("baseURL of provider %q is not a URL with a host", p.Name)
	case u.Scheme != "https" && u.Scheme != "http":
		return v1alpha1.ReasonInvalidURL, fmt.Sprintf("baseURL of provider %q must begin with https:// or http://", p.Name)
	case u.Scheme == "http" && (p.Insecure == "" || p.Insecure == v1alpha1.InsecureForbid):
		return v1alpha1.ReasonInvalidURL, fmt.Sprintf("baseURL of provider %q is plain http, which needs insecure: Loopback or Cluster", p.Name)
	}
	if p.CABundle != "" && !holdsCertificate(p.CABundle) {
		return v1alpha1.ReasonInvalidCABundle, fmt.Sprintf("caBundle of provider %q holds no certificate that can be read, or one that cannot", p.Name)
	}
	return "", ""
}

// holdsCertificate tells that a bundle has at least one certificate and none that is broken. Text between them is a
// comment.
func holdsCertificate(bundle string) bool {
	found := false
	for rest := []byte(bundle); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return found
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return false
		}
		found = true
	}
}

// warning is something risky about a ladder.
type warning struct{ reason, message string }

// warnings returns what is risky about the accepted legs, the gravest first.
func warnings(verdicts []verdict) []warning {
	var list []warning
	accepted, byProvider := 0, map[string]int{}
	firstOf := map[route.Name]string{}
	var repeated []warning
	for _, v := range verdicts {
		if !v.accepted() {
			continue
		}
		accepted++
		byProvider[v.leg.Provider]++
		if first, ok := firstOf[v.route]; ok {
			repeated = append(repeated, warning{v1alpha1.ReasonUnreachableLeg,
				fmt.Sprintf("leg %q has the same provider, model and credential as leg %q, so it fails whenever that one does", v.leg.Name, first)})
			continue
		}
		firstOf[v.route] = v.leg.Name
	}
	if accepted == 1 {
		list = append(list, warning{v1alpha1.ReasonThinChain, "one accepted leg: there is nothing to fail over to"})
	}
	// More than a third of the legs, rounded up.
	if share := (accepted + 2) / 3; accepted >= 3 {
		for _, v := range verdicts {
			if n := byProvider[v.leg.Provider]; v.accepted() && n > share {
				list = append(list, warning{v1alpha1.ReasonDominantProvider,
					fmt.Sprintf("provider %q has %d of %d accepted legs, more than a third: its outage takes most of the ladder away", v.leg.Provider, n, accepted)})
				delete(byProvider, v.leg.Provider)
			}
		}
	}
	return append(list, repeated...)
}
