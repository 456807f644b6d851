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
{{- if .Values.storeSecret -}}
{{- $file := "/run/secrets/store/url" -}}
{{- if not (dig "kv_cache" "shared" "url" "" .Values.config) -}}
{{- $_ := set $default "kv_cache" (dict "shared" (dict "url_file" $file)) -}}
{{- end -}}
{{- if not (dig "shared_quotas" "url" "" .Values.config) -}}
{{- $_ := set $default "shared_quotas" (dict "url_file" $file) -}}
{{- end -}}
{{- end -}}
{{- $server := dict "host" "0.0.0.0" "port" 8080 -}}
{{- if .Values.tls.secret -}}
{{- $_ := set $server "tls" (dict "certificate" "/run/secrets/tls/tls.crt" "key" "/run/secrets/tls/tls.key") -}}
{{- if .Values.tls.clientCaSecret -}}
{{- $_ := set $server.tls "client_ca" "/run/secrets/client-ca/ca.crt" -}}
{{- $_ := set $server "admin_listen" "127.0.0.1:9090" -}}
{{- end -}}
{{- end -}}
{{- $own := dict
  "server" $server
  "drain" (dict "delay" (printf "%ds" (int .Values.drain.delaySeconds)) "deadline" (printf "%ds" (int .Values.drain.deadlineSeconds))) -}}
{{- if .Values.models -}}
{{- $_ := set $own "models" .Values.models -}}
{{- else -}}
{{- $_ := set $own "model" (dict "path" .Values.model.path) -}}
{{- end -}}
{{ toYaml (mergeOverwrite $default (deepCopy .Values.config) $own) }}
{{- end }}

{{- /* How a probe asks for a page: over TLS where the pod speaks it, from inside where it asks for a certificate. */ -}}
{{- define "quire.probe" -}}
{{- if and .root.Values.tls.secret .root.Values.tls.clientCaSecret -}}
exec: {command: [/usr/bin/quire, probe, "http://127.0.0.1:9090{{ .path }}"]}
{{- else if .root.Values.tls.secret -}}
httpGet: {path: {{ .path }}, port: http, scheme: HTTPS}
{{- else -}}
httpGet: {path: {{ .path }}, port: http}
{{- end -}}
{{- end }}
