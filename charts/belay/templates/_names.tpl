{{- define "belay.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The prefix of every object's name: "belay" for a release of that name, "<release>-belay" for another. It leaves room
for the suffixes. */}}
{{- define "belay.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 45 | trimSuffix "-" }}
{{- else if contains (include "belay.name" .) .Release.Name }}
{{- .Release.Name | trunc 45 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "belay.name" .) | trunc 45 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "belay.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (printf "%s-manager" (include "belay.fullname" .)) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name is required with serviceAccount.create=false: name the account that the manager uses" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* What selects pods; it cannot change during a release's life. */}}
{{- define "belay.selectorLabels" -}}
app.kubernetes.io/name: {{ include "belay.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "belay.labels" -}}
{{ include "belay.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "belay.image" -}}
{{- $repository := required "image.repository is required: build the image from the Dockerfile, push it to your registry, and name it here" .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{ $repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ $repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}
{{- end }}

{{/* The pod-level and container-level parts of the Pod Security Standard "restricted", for Belay's image. */}}
{{- define "belay.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "belay.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}
