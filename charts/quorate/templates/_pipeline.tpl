{{/* The parts that the job's pod and Spark's executors share. */}}
{{- define "quorate.pipelineLabels" -}}
app.kubernetes.io/name: quorate
app.kubernetes.io/instance: {{ include "quorate.quorum" . }}
app.kubernetes.io/component: pipeline
quorate.dev/client: "true"
{{- end -}}

{{- define "quorate.pipelinePod" -}}
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  {{- include "quorate.userIds" . | nindent 2 }}
  {{- include "quorate.fsGroup" . | nindent 2 }}
  seccompProfile:
    type: RuntimeDefault
{{- include "quorate.scheduling" .Values.pipeline }}
{{- end -}}

{{/* Ends with the list of mounts. */}}
{{- define "quorate.pipelineContainer" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
volumeMounts:
  - name: tmp
    mountPath: /tmp
  {{- if .Values.quorum.tls.enabled }}
  - name: tls
    mountPath: /etc/quorate/tls
    readOnly: true
  {{- end }}
  {{- if .Values.pipeline.claim }}
  - name: tables
    mountPath: /tables
  {{- end }}
{{- end -}}

{{/* Ends with the list of volumes. */}}
{{- define "quorate.pipelineVolumes" -}}
volumes:
  - name: tmp
    emptyDir: {}
  {{- if .Values.quorum.tls.enabled }}
  - name: tls
    secret:
      secretName: {{ include "quorate.quorum" . }}-client-tls
      defaultMode: 0440
  {{- end }}
  {{- with .Values.pipeline.claim }}
  - name: tables
    persistentVolumeClaim:
      claimName: {{ . }}
  {{- end }}
{{- end -}}
