{{/*
belay.objects writes the objects of a file that was copied from config/, as kustomize does there: names and references to
them get the release's prefix, and what is namespaced comes into the release's namespace. So roles and policies are
written once, in config/.

  root    the root context
  file    the file below the chart
  strip   prefix of label names to leave out; optional
  drop    resources that rules of roles lose; optional
*/}}
{{- define "belay.objects" -}}
{{- $root := .root -}}
{{- $prefix := include "belay.fullname" $root -}}
{{- $text := required (printf "%s is missing from the chart; \"make manifests\" copies it" .file) ($root.Files.Get .file) -}}
{{- range $document := splitList "\n---\n" (trimPrefix "---\n" $text) }}
{{- $object := fromYaml $document -}}
{{- if not $object.kind }}{{ fail (printf "%s: not an object: %s" $.file (toJson $object)) }}{{ end -}}
{{- $meta := $object.metadata -}}
{{- $_ := set $meta "name" (printf "%s-%s" $prefix $meta.name) -}}
{{- if $meta.namespace }}{{ $_ := set $meta "namespace" $root.Release.Namespace }}{{ end -}}
{{- $labels := dict -}}
{{- range $name, $value := $meta.labels }}
{{- if not (and $.strip (hasPrefix $.strip $name)) }}{{ $_ := set $labels $name $value }}{{ end -}}
{{- end -}}
{{- $_ := set $meta "labels" (merge $labels (fromYaml (include "belay.labels" $root))) -}}
{{- if $object.roleRef }}{{ $_ := set $object.roleRef "name" (printf "%s-%s" $prefix $object.roleRef.name) }}{{ end -}}
{{- range $subject := $object.subjects }}
{{- $_ := set $subject "name" (include "belay.serviceAccountName" $root) -}}
{{- $_ := set $subject "namespace" $root.Release.Namespace -}}
{{- end -}}
{{- if and $object.spec $object.spec.policyName }}{{ $_ := set $object.spec "policyName" (printf "%s-%s" $prefix $object.spec.policyName) }}{{ end -}}
{{- if and $.drop $object.rules }}
{{- $rules := list -}}
{{- range $rule := $object.rules }}
{{- $resources := list -}}
{{- range $resource := $rule.resources }}{{ if not (has $resource $.drop) }}{{ $resources = append $resources $resource }}{{ end }}{{ end -}}
{{- if $resources }}{{ $rules = append $rules (set $rule "resources" $resources) }}{{ end -}}
{{- end -}}
{{- $_ := set $object "rules" $rules -}}
{{- end }}
---
{{ toYaml $object }}
{{- end }}
{{- end }}
