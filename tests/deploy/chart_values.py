"""The schema of the chart's values, with what it must take and refuse. Usage: chart_values.py ROOT"""
import copy
import json
import pathlib
import subprocess
import sys

import jsonschema
import yaml

ROOT = pathlib.Path(sys.argv[1])
CHART = ROOT / "deploy/helm/quire"
schema = json.loads((CHART / "values.schema.json").read_text())
values = yaml.safe_load((CHART / "values.yaml").read_text())
jsonschema.Draft7Validator.check_schema(schema)
validator = jsonschema.Draft7Validator(schema)


def merged(below, above):
    """As Helm merges a user's values into the chart's."""
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    return {**below, **{key: merged(below.get(key), value) for key, value in above.items()}}


def is_taken(change):
    return validator.is_valid(merged(copy.deepcopy(values), change))


def at(path, value):
    for name in reversed(path):
        value = {name: value}
    return value


# Every closed mapping has the values of values.yaml and no others; Helm itself adds `global`.
def compare(part, of_schema, path):
    if of_schema.get("additionalProperties", True) is not False:
        return
    assert set(part) == set(of_schema["properties"]) - {"global"}, (path, set(part) ^ set(of_schema["properties"]))
    assert not is_taken(at(path + ["typo"], 1)), path
    for name, value in part.items():
        assert not is_taken(at(path + [name], None)), path + [name]
        for wrong in ([1], {"typo": {"typo": 1}}, True, -1, "no such value at all, anywhere"):
            open_ended = of_schema["properties"][name].get("type") in ("object", "array", "string", "boolean")
            if not open_ended:
                assert not is_taken(at(path + [name], wrong)), (path, name, wrong)
        if isinstance(value, dict):
            compare(value, of_schema["properties"][name], path + [name])


errors = [error.message for error in validator.iter_errors(values)]
assert not errors, errors
compare(values, schema, [])

for good in (
    {"replicaCount": 1}, {"config": {"scheduler": {"max_num_seqs": 64}}}, {"podDisruptionBudget": {"maxUnavailable": "25%"}},
    {"models": [{"name": "chat", "path": "/models/chat.gguf", "preload": False}]},
    {"model": {"path": "/models/a.gguf", "volume": {"persistentVolumeClaim": {"claimName": "models", "readOnly": True}}}},
    {"rollout": {"maxSurge": 0, "maxUnavailable": "25%", "minReadySeconds": 30}}, {"cacheVolume": {"emptyDir": {"sizeLimit": "20Gi"}}},
    {"autoscaling": {"enabled": True, "target": "500m", "keda": {"enabled": True, "prometheusAddress": "http://prometheus:9090"}}},
    {"serviceMonitor": {"enabled": True, "interval": "1m30s", "bearerTokenSecret": {"name": "metrics", "key": "token"}}},
    {"gpu": {"count": 2, "runtimeClassName": "nvidia"}}, {"tolerations": [{"key": "cpu", "operator": "Exists"}]},
    {"kvEvents": {"enabled": True, "port": 6000}, "podLabels": {"llm-d.ai/engine-type": "vllm"}},
    {"resources": {"limits": {"cpu": 2, "memory": "4Gi"}}}, {"extraEnv": [{"name": "A", "value": "b"}]}, {"global": {"a": 1}},
):
    assert is_taken(good), (good, [error.message for error in validator.iter_errors(merged(values, good))])

for bad in (
    {"replicas": 3}, {"replicaCount": "3"}, {"image": {"pullPolicy": "Sometimes"}}, {"image": "quire:1"}, {"drain": {"delay": "5s"}},
    {"drain": {"deadlineSeconds": "60s"}}, {"service": {"port": 0}}, {"service": {"type": "ExternalName"}}, {"startupSeconds": 0},
    {"autoscaling": {"minReplicas": 0}}, {"autoscaling": {"target": "four"}}, {"autoscaling": {"keda": {"prometheusAddress": "prometheus:9090"}}},
    {"autoscaling": {"keda": True}}, {"rollout": {"maxSurge": "1 pod"}}, {"podDisruptionBudget": {"minAvailable": 1}},
    {"serviceMonitor": {"interval": 10}}, {"serviceMonitor": {"bearerTokenSecret": {"name": "metrics"}}}, {"models": [{"path": "/a"}]},
    {"networkPolicy": {"from": {}}}, {"tls": {"secretName": "cert"}}, {"extraEnv": {"A": "b"}}, {"podAnnotations": {"a": 1}},
    {"podLabels": {"a": 1}}, {"kvEvents": {"port": "5557"}}, {"kvEvents": {"enabled": True, "topic": "a"}},
):
    assert not is_taken(bad), bad

# The alerts as an object of the Prometheus operator, by the command of deploy/docs/fleet.md.
guide = (ROOT / "deploy/docs/fleet.md").read_text()
(command,) = [line for line in guide.splitlines() if "PrometheusRule" in line and "| kubectl apply" in line]
made = subprocess.run(command.split("| kubectl apply")[0], shell=True, cwd=ROOT, check=True, capture_output=True, text=True).stdout
rule = yaml.safe_load(made)
assert rule["kind"] == "PrometheusRule" and rule["metadata"]["name"] == "quire", made
assert rule["spec"] == yaml.safe_load((ROOT / "deploy/monitoring/alerts.yml").read_text())
print("the schema takes and refuses what it should")
