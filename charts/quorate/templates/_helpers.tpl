{{- define "quorate.quorum" -}}
{{- default .Release.Name .Values.quorum.name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "quorate.operator" -}}
{{- printf "%s-operator" .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "quorate.serviceAccount" -}}
{{- default (include "quorate.operator" .) .Values.operator.serviceAccount.name -}}
{{- end -}}

{{- define "quorate.image" -}}
{{- printf "%s:%s" .image.repository (default .chart.AppVersion .image.tag) -}}
{{- end -}}

{{- define "quorate.selector" -}}
app.kubernetes.io/name: quorate
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "quorate.labels" -}}
{{ include "quorate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "quorate.brokerSelector" -}}
app.kubernetes.io/name: quorate
app.kubernetes.io/instance: {{ include "quorate.quorum" . }}
app.kubernetes.io/component: broker
{{- end -}}

{{- define "quorate.brokerLabels" -}}
{{ include "quorate.brokerSelector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* The operator's permissions for the objects of a namespace. */}}
{{- define "quorate.rules" -}}
- apiGroups: [quorate.dev]
  resources: [quorums]
  verbs: [get, list, watch]
- apiGroups: [quorate.dev]
  resources: [quorums/status]
  verbs: [get, patch]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, delete]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, patch]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, create]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
{{- end -}}

{{/* Secrets, where the operator keeps authorities and certificates: never cluster-wide. */}}
{{- define "quorate.secretRules" -}}
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, create, patch]
{{- end -}}
