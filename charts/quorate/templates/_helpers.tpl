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
{{- include "quorate.commonLabels" . }}
{{- end -}}

{{/* Begins with a line break if there are any. */}}
{{- define "quorate.commonLabels" -}}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* A setting as text. Numbers of a values file are floats, whose text has an exponent from a million on. */}}
{{- define "quorate.setting" -}}
{{- if kindIs "float64" . }}{{ toJson . }}{{ else }}{{ toString . }}{{ end -}}
{{- end -}}

{{/* The ids of a pod's security context: none if the platform assigns them. Begins with a line break. */}}
{{- define "quorate.userIds" -}}
{{- if ne (toString .Values.fixedUserIds) "false" }}
runAsUser: 10001
runAsGroup: 10001
{{- end }}
{{- end -}}

{{- define "quorate.fsGroup" -}}
{{- if ne (toString .Values.fixedUserIds) "false" }}
fsGroup: 10001
{{- end }}
{{- end -}}

{{/* Where the pods of a part run (nodeSelector, …), as fields of a pod. Begins with a line break. */}}
{{- define "quorate.scheduling" -}}
{{- $part := . }}
{{- range $field := list "nodeSelector" "tolerations" "affinity" "priorityClassName" }}
{{- with get $part $field }}
{{ dict $field . | toYaml }}
{{- end }}
{{- end }}
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
{{- include "quorate.commonLabels" . }}
{{- end -}}

{{/* The operator's permissions for the objects of a namespace. */}}
{{- define "quorate.rules" -}}
- apiGroups: [quorate.dev]
  resources: [quorums]
  verbs: [get, list, watch]
- apiGroups: [quorate.dev]
  resources: [quorums/status]
  verbs: [get, patch]
- apiGroups: [quorate.dev]
  resources: [quorumbackups]
  verbs: [get, list]
- apiGroups: [quorate.dev]
  resources: [quorumbackups/status]
  verbs: [get, patch]
- apiGroups: [apps]
  resources: [statefulsets]
  {{- if dig "recreateStatefulSets" false .Values.operator }}
  verbs: [get, list, watch, create, patch, delete]
  {{- else }}
  verbs: [get, list, watch, create, patch]
  {{- end }}
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, create, patch, delete]
- apiGroups: [batch]
  resources: [cronjobs]
  verbs: [get, create, patch, delete]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, create]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, delete]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  {{- if dig "expandVolumes" false .Values.operator }}
  verbs: [get, list, watch, create, patch]
  {{- else }}
  verbs: [get, list, watch, create]
  {{- end }}
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, create]
- apiGroups: [""]
  resources: [events]
  verbs: [list, watch, create, patch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
{{- end -}}

{{/* The lease of a namespace, whose holder tends the Quorums there. */}}
{{- define "quorate.leaseRules" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [quorate-operator]
  # Who may delete an object may set its owner, where OwnerReferencesPermissionEnforcement is enabled (OpenShift).
  verbs: [get, update, delete]
{{- end -}}

{{/* A Role of the operator in a namespace, and its binding. root, namespace, rules (as text). */}}
{{- define "quorate.role" }}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ printf "%s-%s" .root.Release.Namespace (include "quorate.operator" .root) }}
  namespace: {{ .namespace }}
  labels: {{- include "quorate.labels" .root | nindent 4 }}
rules:
  {{- .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ printf "%s-%s" .root.Release.Namespace (include "quorate.operator" .root) }}
  namespace: {{ .namespace }}
  labels: {{- include "quorate.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ printf "%s-%s" .root.Release.Namespace (include "quorate.operator" .root) }}
subjects:
  - kind: ServiceAccount
    name: {{ include "quorate.serviceAccount" .root }}
    namespace: {{ .root.Release.Namespace }}
{{- end }}

{{/* Secrets, where the operator keeps authorities and certificates: never cluster-wide. */}}
{{- define "quorate.secretRules" -}}
- apiGroups: [""]
  resources: [secrets]
  {{- if dig "watchSecrets" true .Values.operator }}
  verbs: [get, list, watch, create, patch]
  {{- else }}
  verbs: [get, create, patch]
  {{- end }}
{{- end -}}
