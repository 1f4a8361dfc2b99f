{{/* Everything the operator does in the namespaces it serves, Secrets apart. */}}
{{- define "jobqueue-operator.rules" -}}
- apiGroups: [jobqueue.dev]
  resources: [jobqueues, downstreamcapacities]
  verbs: [get, list, watch]
- apiGroups: [jobqueue.dev]
  resources: [jobqueues/status, downstreamcapacities/status]
  verbs: [get, patch]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, patch]
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [get, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
{{- if .Values.workers.networkPolicy }}
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
{{- end }}
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [list, watch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end -}}

{{/* Secrets: one at a time, by name, never a list of them. */}}
{{- define "jobqueue-operator.secretRules" -}}
- apiGroups: [""]
  resources: [secrets]
  verbs: [get]
{{- end -}}
