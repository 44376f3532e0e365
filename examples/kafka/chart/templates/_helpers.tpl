{{- define "kafka.quorum" -}}
{{- include "quorate.quorum" (dict "Values" .Values.quorate "Release" .Release) -}}
{{- end -}}

{{- define "kafka.selector" -}}
app.kubernetes.io/name: kafka
app.kubernetes.io/instance: {{ include "kafka.quorum" . }}
app.kubernetes.io/component: broker
{{- end -}}

{{- define "kafka.labels" -}}
{{ include "kafka.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* The settings that all brokers share. */}}
{{- define "kafka.settings" -}}
{{- $count := int .Values.quorate.quorum.tls.brokerCertificates }}
{{- $replicas := min 3 $count }}
{{- $users := list "User:CN=client" }}
{{- range $ordinal := until $count }}
{{- $users = append $users (printf "User:CN=broker-%d" $ordinal) }}
{{- end }}
process.roles: broker
controller.listener.names: KAFKA
controller.quorum.bootstrap.servers: {{ include "kafka.quorum" . }}-controllers.{{ .Release.Namespace }}.svc:9094
listeners: "BROKER://:9092"
inter.broker.listener.name: BROKER
listener.security.protocol.map: BROKER:SSL,KAFKA:SSL
log.dirs: /var/lib/kafka/data
ssl.client.auth: required
ssl.keystore.type: PEM
ssl.keystore.location: /tmp/broker.pem
ssl.truststore.type: PEM
ssl.truststore.location: /etc/quorate/tls/ca.crt
authorizer.class.name: org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users: {{ join ";" $users }}
min.insync.replicas: {{ max 1 (sub $replicas 1) }}
offsets.topic.replication.factor: {{ $replicas }}
transaction.state.log.replication.factor: {{ $replicas }}
transaction.state.log.min.isr: {{ max 1 (sub $replicas 1) }}
share.coordinator.state.topic.replication.factor: {{ $replicas }}
share.coordinator.state.topic.min.isr: {{ max 1 (sub $replicas 1) }}
{{- end -}}
