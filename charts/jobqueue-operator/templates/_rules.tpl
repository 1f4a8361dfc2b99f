{{/* Everything the operator does in the namespaces it serves, Secrets apart. */}}
{{- define "jobqueue-operator.rules" -}}
- apiGroups: [jobqueue.dev]
  resources: [jobqueues, downstreamcapacities]
  verbs: [list, watch]
- apiGroups: [jobqueue.dev]
  resources: [jobqueues/status, downstreamcapacities/status]
  verbs: [patch]
# Whatever is applied takes `patch`, and `create` where it is not there yet.
- apiGroups: [apps]
  resources: [deployments]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, patch]
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [list, watch, create, patch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [list, watch, create, patch, delete]
{{- if .Values.workers.networkPolicy }}
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [list, watch, create, patch, delete]
{{- end }}
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [list, watch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
{{- end -}}

{{/* Secrets: one at a time, by name, never a list of them. */}}
{{- define "jobqueue-operator.secretRules" -}}
- apiGroups: [""]
  resources: [secrets]
  verbs: [get]
{{- end -}}
