"""Checks the deployments of deploy/examples. Usage: examples.py QUIRE_BINARY REPOSITORY"""
import os
import re
import subprocess
import sys
import tempfile

import yaml

quire, repository = sys.argv[1:]
examples = os.path.join(repository, "deploy", "examples")


def read(*names):
    with open(os.path.join(examples, *names), encoding="utf-8") as file:
        return file.read()


def seconds(text):
    units = {"s": 1, "m": 60}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"([\d.]+)([sm])", str(text)))


def check(text):
    """The configuration as the daemon reads it; files of other machines are not looked at by --print-config."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        printed = subprocess.run([quire, "serve", "--config", file.name, "--print-config"], check=True, capture_output=True, text=True)
    settings = yaml.safe_load(printed.stdout)
    return settings, seconds(settings["drain"]["delay"]) + seconds(settings["drain"]["deadline"])


# Compose: the model is in the mounted folder, secrets are where the configuration looks.
compose = yaml.safe_load(read("compose", "compose.yaml"))
service = compose["services"]["quire"]
settings, drain = check(read("compose", compose["configs"]["quire"]["file"]))
outside, inside = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", service["volumes"][0]).split(":")[:2]
for model in settings["models"]:
    assert os.path.exists(os.path.join(examples, "compose", outside, os.path.relpath(model["path"], inside))), model
assert {key["file"] for key in settings["security"]["keys"]} == {f"/run/secrets/{name}" for name in service["secrets"]}
assert set(service["secrets"]) == set(compose["secrets"])
assert service["command"][1] == service["configs"][0]["target"]
assert seconds(service["stop_grace_period"]) > drain
assert os.path.samefile(os.path.join(examples, "compose", service["build"]), repository)

# Kubernetes: the objects name each other, probes exist, the grace period covers the drain.
objects = {each["kind"]: each for each in yaml.safe_load_all(read("kubernetes", "quire.yaml"))}
assert set(objects) == {"ConfigMap", "Deployment", "Service"}
deployment = objects["Deployment"]["spec"]
pod = deployment["template"]["spec"]
container = pod["containers"][0]
settings, drain = check(objects["ConfigMap"]["data"]["quire.yaml"])
labels = deployment["template"]["metadata"]["labels"]
assert deployment["selector"]["matchLabels"] == labels == objects["Service"]["spec"]["selector"]
mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
volumes = {volume["name"]: volume for volume in pod["volumes"]}
assert set(mounts) == set(volumes)
assert volumes["config"]["configMap"]["name"] == objects["ConfigMap"]["metadata"]["name"]
assert container["args"] == ["--config", os.path.join(mounts["config"], "quire.yaml")]
assert settings["model"]["path"].startswith(mounts["models"] + "/")
assert all(key["file"].startswith(mounts["keys"] + "/") for key in settings["security"]["keys"])
assert pod["terminationGracePeriodSeconds"] > drain
assert container["ports"][0]["containerPort"] == settings["server"]["port"]
ports = {port["name"] for port in container["ports"]}
assert {each["targetPort"] for each in objects["Service"]["spec"]["ports"]} <= ports
with open(os.path.join(repository, "server", "API.md"), encoding="utf-8") as file:
    api = file.read()
for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
    assert container[probe]["httpGet"]["path"] in api and container[probe]["httpGet"]["port"] in ports
with open(os.path.join(repository, "CMakeLists.txt"), encoding="utf-8") as file:
    version = re.search(r"project\(quire VERSION ([\d.]+)", file.read())[1]
assert container["image"] == f"quire:{version}", container["image"]

# systemd: the credential that the unit loads is the file that the configuration reads; folders are the unit's own.
settings, drain = check(read("systemd", "quire.yaml"))
drop_in = read("systemd", "models.conf")
with open(os.path.join(repository, "deploy", "systemd", "quire.service"), encoding="utf-8") as file:
    unit = file.read()
credential = re.search(r"^LoadCredential=(\w+):", drop_in, re.M)[1]
assert settings["security"]["keys"][0]["file"] == f"/run/credentials/quire.service/{credential}"
assert settings["model"]["path"].startswith(re.search(r"^RequiresMountsFor=(\S+)", drop_in, re.M)[1] + "/")
assert settings["model"]["packed_cache"] == "/var/cache/" + re.search(r"^CacheDirectory=(\S+)", unit, re.M)[1]
assert settings["server"]["admin_listen"].startswith("/run/" + re.search(r"^RuntimeDirectory=(\S+)", unit, re.M)[1] + "/")
assert int(re.search(r"^TimeoutStopSec=(\d+)s", unit, re.M)[1]) > drain
print("compose, Kubernetes and systemd agree with their configurations and the daemon")
