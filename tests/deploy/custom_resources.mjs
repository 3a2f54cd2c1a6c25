// Validate custom resources, JSON on standard input, against the schemas that their operators publish.
import { ScaledObject } from "@kubernetes-models/keda/keda.sh/v1alpha1/ScaledObject";
import { PrometheusRule } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PrometheusRule";
import { ServiceMonitor } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/ServiceMonitor";

const kinds = { PrometheusRule, ScaledObject, ServiceMonitor };
let text = "";
for await (const part of process.stdin) text += part;
for (const resource of JSON.parse(text)) new kinds[resource.kind](resource).validate();
