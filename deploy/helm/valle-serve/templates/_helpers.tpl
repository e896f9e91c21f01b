{{- define "valle.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end }}
{{- define "valle.selector" -}}
app.kubernetes.io/name: valle-serve
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "valle.labels" -}}
{{ include "valle.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
{{- define "valle.slots" -}}
{{- get .Values.settings "TTS_SLOTS" | default 20 -}}
{{- end }}
