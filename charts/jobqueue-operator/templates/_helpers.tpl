{{/* The chart's name, for labels. */}}
{{- define "jobqueue-operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of the release's objects. */}}
{{- define "jobqueue-operator.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* That name and a suffix, of 63 characters at most: (list . "suffix"). A suffix of up to 9 leaves a release's name whole. */}}
{{- define "jobqueue-operator.suffixed" -}}
{{- $suffix := printf "-%s" (index . 1) -}}
{{- $room := int (sub 63 (len $suffix)) -}}
{{- printf "%s%s" (include "jobqueue-operator.fullname" (index . 0) | trunc $room | trimSuffix "-") $suffix -}}
{{- end -}}

{{/* What the operator's pods, and only they, are selected by. */}}
{{- define "jobqueue-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ include "jobqueue-operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: operator
{{- end -}}

{{/* The labels of an object of a component, and others that these win over: (list . "component" (dict …)). */}}
{{- define "jobqueue-operator.labelsOf" -}}
{{- $root := index . 0 -}}
{{- $own := dict
  "app.kubernetes.io/name" (include "jobqueue-operator.name" $root)
  "app.kubernetes.io/instance" $root.Release.Name
  "app.kubernetes.io/component" (index . 1)
  "app.kubernetes.io/part-of" "jobqueue-operator"
  "app.kubernetes.io/version" ($root.Chart.AppVersion | trunc 63)
  "app.kubernetes.io/managed-by" $root.Release.Service
  "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-")
-}}
{{- mustMerge $own (deepCopy (index . 2)) (deepCopy $root.Values.commonLabels) | toYaml -}}
{{- end -}}

{{/* The labels of every object of the operator. */}}
{{- define "jobqueue-operator.labels" -}}
{{- include "jobqueue-operator.labelsOf" (list . "operator" dict) -}}
{{- end -}}

{{- define "jobqueue-operator.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "jobqueue-operator.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name is needed when serviceAccount.create is false: name the ServiceAccount that exists" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* The subject of every binding. */}}
{{- define "jobqueue-operator.subjects" -}}
- kind: ServiceAccount
  name: {{ include "jobqueue-operator.serviceAccountName" . }}
  namespace: {{ .Release.Namespace | quote }}
{{- end -}}

{{- define "jobqueue-operator.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* Refuses what single values cannot say of each other. */}}
{{- define "jobqueue-operator.consistent" -}}
{{- if and .Values.namespaces .Values.secrets.clusterWide -}}
{{- fail "secrets.clusterWide cannot be true when namespaces are listed: Secrets are read in those; leave it false" -}}
{{- end -}}
{{- if and .Values.namespaces .Values.secrets.namespaces -}}
{{- fail "secrets.namespaces must be empty when namespaces are listed: Secrets are read in those" -}}
{{- end -}}
{{- if and (gt (int .Values.replicas) 1) (not .Values.leaderElection.enabled) -}}
{{- fail "leaderElection.enabled must be true when replicas is above 1: two operators would both act" -}}
{{- end -}}
{{- end -}}
