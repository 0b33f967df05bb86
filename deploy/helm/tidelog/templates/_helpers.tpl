{{- define "tidelog.protocol" -}}
{{ if .Values.users.secret }}SASL_{{ ternary "SSL" "PLAINTEXT" (ne .Values.tls.secret "") }}{{ else }}{{ ternary "SSL" "PLAINTEXT" (ne .Values.tls.secret "") }}{{ end }}
{{- end }}

{{- define "tidelog.scheme" -}}
{{ ternary "HTTPS" "HTTP" (ne .Values.tls.secret "") }}
{{- end }}

{{/* What the pods of both stateful sets share. The argument: root, app, user. */}}
{{- define "tidelog.pod" -}}
# Otherwise a variable of the service, TIDELOG_PORT, is taken for the broker's setting `port`.
enableServiceLinks: false
automountServiceAccountToken: false
securityContext: {runAsNonRoot: true, runAsUser: {{ .user }}, runAsGroup: {{ .user }}, fsGroup: {{ .user }}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: {{ ternary "DoNotSchedule" "ScheduleAnyway" (eq .root.Values.antiAffinity "required") }}
    labelSelector:
      matchLabels: {app: {{ .app }}}
{{- with .root.Values.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- end }}

{{- define "tidelog.hardened" -}}
securityContext:
  readOnlyRootFilesystem: true
  allowPrivilegeEscalation: false
  capabilities: {drop: [ALL]}
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "tidelog.claim" -}}
volumeClaimTemplates:
  - metadata:
      name: data
    spec:
      accessModes: [ReadWriteOncePod]
      {{- with .className }}
      storageClassName: {{ . }}
      {{- end }}
      resources:
        requests: {storage: {{ .size }}}
{{- end }}

{{- define "tidelog.steps" -}}
Anyone who can write to etcd administers the cluster, so etcd has TLS, a password, and a policy that lets only brokers in (your
network must enforce NetworkPolicy). Make its secrets first; cert-manager may make the certificates instead:
  deploy/kubernetes/etcd-certificates.sh NAMESPACE {{ .Release.Name }}
  kubectl create secret generic {{ .Release.Name }}-etcd-certificates --from-file=ca.crt --from-file=tls.crt --from-file=tls.key
  openssl rand -hex 24 | tr -d '\n' > password; openssl rand -hex 24 | tr -d '\n' > root.password
  kubectl create secret generic {{ .Release.Name }}-etcd-password --from-file=password
Once etcd runs, make its users. The brokers do not start before; keep root.password.
  etcdctl() { kubectl exec -i {{ .Release.Name }}-etcd-0 -- etcdctl "$@"; }
  etcdctl user add root --interactive=false < root.password && etcdctl user grant-role root root
  etcdctl role add tidelog && etcdctl role grant-permission tidelog --prefix=true readwrite tidelog/
  etcdctl user add tidelog --interactive=false < password && etcdctl user grant-role tidelog tidelog
  etcdctl auth enable
{{- end }}
