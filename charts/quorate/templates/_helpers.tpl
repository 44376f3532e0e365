{{/* The names of pods, which are host names, begin with this name. It is not truncated: it could become that of another release. */}}
{{- define "quorate.quorum" -}}
{{- $name := default .Release.Name .Values.quorum.name -}}
{{- if and .Values.quorum.enabled (gt (len $name) 40) -}}
{{- fail (printf "the release's name %s is longer than 40 characters: set quorum.name (%s for a release that exists)" $name ($name | trunc 40 | trimSuffix "-")) -}}
{{- end -}}
{{- $name -}}
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

{{/* Whether the operator may delete Services. "" if not. An upgrade that removes quorum.external leaves the permission. */}}
{{- define "quorate.externalAccess" -}}
{{- $quorum := .Values.quorum }}
{{- if not (kindIs "invalid" .Values.operator.externalAccess) }}
{{- ternary "true" "" .Values.operator.externalAccess }}
{{- else if $quorum.enabled }}
{{- $live := lookup "quorate.dev/v1alpha1" "Quorum" .Release.Namespace (include "quorate.quorum" .) | default dict }}
{{- if or $quorum.external (dig "spec" "external" dict $live) }}true{{ end }}
{{- end }}
{{- end -}}

{{/* Whether the operator may run backups and restores. "" if not. */}}
{{- define "quorate.backups" -}}
{{- if not (kindIs "invalid" .Values.operator.backups) }}
{{- ternary "true" "" .Values.operator.backups }}
{{- else if and .Values.quorum.enabled (dig "recovery" dict (.Values.quorum.bootstrap | default dict)) }}true
{{- end }}
{{- end -}}

{{/* The operator's permissions for the objects of a namespace. */}}
{{- define "quorate.rules" -}}
- apiGroups: [quorate.dev]
  resources: [quorums]
  verbs: [get, list, watch]
- apiGroups: [quorate.dev]
  resources: [quorums/status]
  verbs: [patch]
# Also without operator.backups, so that the status of a QuorumBackup can show the missing permission.
- apiGroups: [quorate.dev]
  resources: [quorumbackups]
  verbs: [get, list, watch]
- apiGroups: [quorate.dev]
  resources: [quorumbackups/status]
  verbs: [patch]
# Deleted, without the pods, only to be created again for another StorageClass.
- apiGroups: [apps]
  resources: [statefulsets]
  {{- if dig "recreateStatefulSets" false .Values.operator }}
  verbs: [get, list, watch, create, patch, delete]
  {{- else }}
  verbs: [get, list, watch, create, patch]
  {{- end }}
{{- if include "quorate.backups" . }}
# A continuous backup is a Deployment, a scheduled one a CronJob; one is deleted when a backup becomes the other.
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, create, patch, delete]
- apiGroups: [batch]
  resources: [cronjobs]
  verbs: [get, create, patch, delete]
# The runs of a schedule are listed. A restore is a Job, on the volume claim of the first pod.
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, create]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [create]
{{- end }}
# Deleted to restart them. The StatefulSet's controller makes them.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, delete]
# Changed to expand volumes. They are made by the StatefulSet's controller, and never deleted.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  {{- if dig "expandVolumes" false .Values.operator }}
  verbs: [get, list, watch, patch]
  {{- else }}
  verbs: [get, list, watch]
  {{- end }}
# Those for clients outside the cluster are deleted when they are no longer wanted; all others stay.
- apiGroups: [""]
  resources: [services]
  {{- if include "quorate.externalAccess" . }}
  verbs: [get, list, watch, create, patch, delete]
  {{- else }}
  verbs: [get, list, watch, create, patch]
  {{- end }}
# For the label that allows a backup to use a ServiceAccount.
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [get]
# The record and the marker of the bootstrap, which are immutable.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, create]
# Those of StatefulSets show why a pod is rejected. The operator creates its own, and updates their counts.
- apiGroups: [""]
  resources: [events]
  verbs: [list, watch, create, patch]
# Deleted for a single voter.
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
# Deleted with quorum.networkPolicy.enabled=false.
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
