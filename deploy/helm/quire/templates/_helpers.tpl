{{- define "quire.name" -}}
{{- if contains .Chart.Name .Release.Name -}}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{- else -}}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{- end -}}
{{- end }}

{{- define "quire.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "quire.labels" -}}
{{ include "quire.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* quire.yaml: what the user gave, under what the chart relies on. */ -}}
{{- define "quire.config" -}}
{{- $default := dict "log" (dict "format" "json") -}}
{{- $own := dict
  "model" (dict "path" .Values.model.path)
  "server" (dict "host" "0.0.0.0" "port" 8080)
  "drain" (dict "delay" (printf "%ds" (int .Values.drain.delaySeconds)) "deadline" (printf "%ds" (int .Values.drain.deadlineSeconds))) -}}
{{ toYaml (mergeOverwrite $default (deepCopy .Values.config) $own) }}
{{- end }}
