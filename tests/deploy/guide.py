"""Runs the commands of the guide as a reader would, page by page: guide.py QUIRE_BINARY REPOSITORY [PAGE...]

Each fenced `sh` block of a page is run, in order, in one shell and an empty folder with `model.gguf`; a block under a comment
<!-- not run: why --> is left out and named. A line that begins with `quire serve` starts the daemon in the background on a free
port, which takes the place of 8080 in the page, and waits until it is ready; the daemon before it is ended. A command that fails,
or an HTTP status from 400 on, fails the page."""
import os
import re
import socket
import subprocess
import sys
import tempfile

PAGES = ["getting-started.md", "tasks.md", "structured-output.md", "performance.md", "capacity.md"]
CLIENTS = "clients"  # a folder of pages
PATIENCE = 240  # seconds for a page
BLOCK = re.compile(r"(?:<!-- not run: (?P<why>[^>]*) -->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S)
PROLOGUE = """
set -eu -o pipefail
daemon=
stop_daemon() { [ -z "$daemon" ] || { kill "$daemon" 2>/dev/null && wait "$daemon" || true; }; daemon=; }
trap stop_daemon EXIT
start_daemon() {
  stop_daemon
  : > daemon.log
  "$QUIRE" serve "$@" --port "$PORT" 2>> daemon.log &
  daemon=$!
  grep -q 'is ready after' <(tail -f -n +1 --pid="$daemon" daemon.log) || { cat daemon.log; exit 1; }
}
quire() { "$QUIRE" "$@" < /dev/stdin; }
quire-dev() { "$(dirname "$QUIRE")/quire-dev" "$@" < /dev/stdin; }
curl() { command curl -sS --fail-with-body "$@"; }
"""


def free_ports(count):
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in taken]
    for each in taken:
        each.close()
    return ports


def translate(text, port, admin):
    """A reader's commands as the test's: ports, the daemon in the background, its process id."""
    text = re.sub(r" --port 8080\b", "", text).replace("127.0.0.1:8080", f"127.0.0.1:{port}").replace("127.0.0.1:9090", f"127.0.0.1:{admin}")
    text = text.replace("$!", "$daemon")
    lines = []
    for line in text.replace("\\\n", " ").split("\n"):
        if re.match(r"quire serve\b", line) and not re.search(r"--(check-config|print-config|help)\b", line):
            line = re.sub(r"^quire serve", "start_daemon", line).rstrip("& ")
        lines.append(line)
    return "\n".join(lines)


def script_of(page):
    port, admin = free_ports(2)
    parts, left_out = [f"export PORT={port}\n{PROLOGUE}"], []
    for block in BLOCK.finditer(page):
        if block["why"]:
            left_out.append(block["why"])
        elif block["language"] == "sh":
            parts.append(translate(block["text"], port, admin))
    return "\n".join(parts), left_out


def run(name, text, quire, model):
    script, left_out = script_of(text)
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(model, os.path.join(folder, "model.gguf"))
        done = subprocess.run(["bash", "-xc", script], cwd=folder, env=dict(os.environ, QUIRE=quire), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE, check=False)
    if done.returncode != 0:
        sys.exit(f"{name}: a command failed with {done.returncode}:\n{done.stdout[-6000:]}")
    print(f"{name}: every command ran; {len(left_out)} blocks are marked as not run")


def main(quire, repository, *pages):
    model = os.path.join(repository, "deploy/demo-model/quire-demo.gguf")
    docs = os.path.join(repository, "deploy/docs")
    for name in pages or PAGES + [f"{CLIENTS}/{page}" for page in sorted(os.listdir(os.path.join(docs, CLIENTS)))]:
        with open(os.path.join(docs, name), encoding="utf-8") as file:
            run(name, file.read(), os.path.realpath(quire), model)


main(*sys.argv[1:])
