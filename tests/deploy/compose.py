"""Checks deploy/compose.yaml. Usage: compose.py QUIRE_BINARY REPOSITORY"""
import os
import re
import subprocess
import sys

import yaml

quire, repository = sys.argv[1:]
deploy = os.path.join(repository, "deploy")


def read(*names):
    with open(os.path.join(repository, *names), encoding="utf-8") as file:
        return file.read()


def parse(*names):
    return yaml.safe_load(read(*names))


def plain(text, **variables):
    """A value as it is with these variables alone, by Compose's rules: ${NAME:-otherwise} and ${NAME:+instead}, innermost first."""
    pattern = re.compile(r"\$\{(\w+):([-+])([^${}]*)\}")

    def value(match):
        name, kind, word = match.groups()
        return (variables.get(name) or word) if kind == "-" else (word if variables.get(name) else "")

    while pattern.search(text):
        text = pattern.sub(value, text)
    return text


def seconds(text):
    """1m30s, as the configuration writes a time."""
    units = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"([\d.]+)(ms|[smh])", str(text)))


def mounts(service):
    """{path inside: path outside, or a volume's name}"""
    split = [plain(volume).split(":") for volume in service["volumes"]]
    return {inside: outside for outside, inside, *_ in split}


def ports(service):
    """{port inside: the address outside}"""
    return {int(port.split(":")[-1]): port.rsplit(":", 1)[0] for port in service["ports"]}


compose = parse("deploy", "compose.yaml")
services = compose["services"]
for name, service in services.items():
    for inside, outside in mounts(service).items():
        if outside.startswith("."):
            assert os.path.exists(os.path.join(deploy, outside)), f"{name} mounts {outside}, which is not there"
        else:
            assert outside in compose["volumes"], f"{name} mounts {outside}, which is no volume"
    for outside in ports(service).values():
        assert outside.startswith("127.0.0.1:"), f"{name} is open to other machines at {outside}"

# The daemon: its flags are flags, its image is of this repository, and it has time to drain.
served = services["quire"]
rootfs = read("deploy", "container", "collect-rootfs.sh")
flags = [plain(word) for word in served["command"]]
[model] = [flag.removeprefix("--model=") for flag in flags if flag.startswith("--model=")]
assert f'"$root{os.path.dirname(model)}/"' in rootfs, f"{model} is not in the image"
flags[flags.index(f"--model={model}")] = "--model=" + os.path.join(deploy, "demo-model", os.path.basename(model))
subprocess.run([quire, "serve", *flags, "--check-config"], check=True)
printed = subprocess.run([quire, "serve", *flags, "--print-config"], check=True, capture_output=True, text=True).stdout
settings = yaml.safe_load(printed)
drain = seconds(settings["drain"]["delay"]) + seconds(settings["drain"]["deadline"])
assert seconds(served["stop_grace_period"]) > drain, f"stopped before it has drained for {drain} s"
assert os.path.samefile(os.path.join(deploy, served["build"]), repository)
assert served["read_only"] and "/models" in mounts(served)

# A model by its name goes into a volume that the image's user may write.
by_name = [plain(word, HF="owner/name:Q8_0") for word in served["command"]]
printed = subprocess.run([quire, "serve", *by_name, "--print-config"], check=True, capture_output=True, text=True).stdout
assert yaml.safe_load(printed)["model"]["hf"] == "owner/name:Q8_0"
cache = served["environment"]["HF_HUB_CACHE"]
assert cache in mounts(served) and f'chmod 1777 "$root/tmp" "$root{cache}"' in rootfs, f"{cache} cannot be written"
assert '"$root/etc/ssl/certs/"' in rootfs, "the image trusts no hub"

# The health check is the image's, and asks where the daemon listens.
dockerfile = read("Dockerfile")
port = settings["server"]["port"]
assert "healthcheck" not in served
assert f"\nEXPOSE {port}\n" in dockerfile and f"http://127.0.0.1:{port}/readyz" in dockerfile
assert set(ports(served)) == {port}

# Prometheus finds the daemon by its service's name, and its own rules where they are mounted.
prometheus = services["prometheus"]
file = dict(word.lstrip("-").split("=") for word in prometheus["command"])
scraped = parse("deploy", "monitoring", "prometheus.yml")
targets = [target for job in scraped["scrape_configs"] for each in job["static_configs"] for target in each["targets"]]
assert targets == [f"quire:{port}"], targets
assert file["storage.tsdb.path"] in mounts(prometheus)
assert file["config.file"] in mounts(prometheus)
for rules in scraped["rule_files"]:
    assert os.path.join(os.path.dirname(file["config.file"]), rules) in mounts(prometheus), f"{rules} is not mounted"

# Grafana finds Prometheus, and the dashboard where its provider looks.
grafana = services["grafana"]
for source in parse("deploy", "monitoring", "grafana", "datasource.yml")["datasources"]:
    host, source_port = re.fullmatch(r"http://(\w+):(\d+)", source["url"]).groups()
    assert int(source_port) in ports(services[host]), f"Grafana asks {source['url']}"
folders = [each["options"]["path"] for each in parse("deploy", "monitoring", "grafana", "dashboards.yml")["providers"]]
home = grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
assert home in mounts(grafana) and os.path.dirname(home) in folders, f"{home} is not provided"
print(f"{len(services)} services agree with their files, the daemon and the image")
