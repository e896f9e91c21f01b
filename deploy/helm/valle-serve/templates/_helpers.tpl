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
{{- /* Whether there are several pods. */ -}}
{{- define "valle.several" -}}
{{- if or (gt (int .Values.replicas) 1) (ne .Values.autoscaling.kind "none") }}yes{{ end -}}
{{- end }}
{{- /* Whether voices lie at a URL. */ -}}
{{- define "valle.remoteVoices" -}}
{{- if contains "://" (get .Values.settings "TTS_VOICES" | default "") }}yes{{ end -}}
{{- end }}
{{- /* Which claims are made: cache and voices. */ -}}
{{- define "valle.claims" -}}
{{- if .Values.cache.persistent }}cache {{ end -}}
{{- if and .Values.voices.persistent (not (include "valle.remoteVoices" .)) }}voices{{ end -}}
{{- end }}
{{- /* Which of them only one pod can hold at a time. */ -}}
{{- define "valle.once" -}}
{{- $root := . -}}
{{- range $kind := list "cache" "voices" -}}
{{- $modes := (get $root.Values $kind).accessModes | default (ternary (list "ReadWriteMany") (list "ReadWriteOnce") (eq (include "valle.several" $root) "yes")) -}}
{{- if and (contains $kind (include "valle.claims" $root)) (not (has "ReadWriteMany" $modes)) }}{{ $kind }} {{ end -}}
{{- end -}}
{{- end }}
{{- define "valle.image" -}}
{{- if not .Values.image.repository }}
{{- fail "image.repository: name the image that you built and pushed, as registry.example/speech/valle-serve (docs/replicas.md); the chart has none of its own" }}
{{- end -}}
{{- .Values.image.repository }}:{{ .Values.image.tag | default (ternary "cuda" "cpu" (gt (int .Values.gpus) 0)) -}}
{{- end }}
