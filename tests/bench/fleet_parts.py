"""The processes of a fleet on one machine: daemons, their store and what stands before it, HAProxy, and a load.

Nothing here measures. A daemon may have a share of the processors of its own (`Share`), so that it computes as fast beside
others as alone: three machines on one.
"""

import contextlib
import http.client
import http.server
import itertools
import json
import os
import random
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request

NUM_DAEMONS = 3

PROXY = """
global
  tune.bufsize 65536
defaults
  mode http
  option http-server-close
  option http-no-delay
  http-reuse never
  timeout connect 5s
  timeout client 600s
  timeout server 600s
  timeout http-request 600s
frontend quire
  bind 127.0.0.1:{port}
  default_backend daemons
backend daemons
  balance roundrobin
{servers}
"""


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Share:
    """A process has so much of a processor and no more, by a control group of version 1 or 2; needs root."""

    PERIOD_US = 5000

    def __init__(self, pid, processors):
        is_old = os.path.isdir("/sys/fs/cgroup/cpu")
        self.folder = f"/sys/fs/cgroup{'/cpu' if is_old else ''}/quire-bench-{pid}"
        os.mkdir(self.folder)
        quota = int(processors * self.PERIOD_US)
        limits = {"cpu.cfs_period_us": self.PERIOD_US, "cpu.cfs_quota_us": quota} if is_old else {"cpu.max": f"{quota} {self.PERIOD_US}"}
        for name, value in (limits | {"cgroup.procs": pid}).items():
            with open(os.path.join(self.folder, name), "w") as file:
                file.write(str(value))

    def end(self):
        os.rmdir(self.folder)


class Daemon:
    """One `quire serve`; without a URL of a store it shares nothing."""

    def __init__(self, options, flags, store=None):
        command = [options.quire, "serve", "--model", options.model, "--alias", "m", "--port", "0",
                   "--server.admin-listen", "127.0.0.1:0", *flags]
        if store:
            command += ["--kv-cache.shared.url", store]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        self.share = None
        try:
            if options.share:
                self.share = Share(self.process.pid, options.share)
            self.become_ready(store)
        except BaseException:
            self.stop()
            raise

    def become_ready(self, store):
        lines = []
        for line in self.process.stderr:
            lines.append(line)
            if found := re.search(r"listening on .*:(\d+)", line):
                self.port = int(found.group(1))
            if found := re.search(r"the admin listener is at .*:(\d+)", line):
                self.admin_port = int(found.group(1))
            if " is ready after " in line:
                break
        else:
            raise SystemExit("a daemon has ended:\n" + "".join(lines))
        threading.Thread(target=self.process.stderr.read, daemon=True).start()
        if store:
            self.metric_becomes("quire:shared_store_up", 1)

    def metric(self, name):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=60) as answer:
            lines = [line for line in answer.read().decode().split("\n") if re.match(re.escape(name) + r"[ {]", line)]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    def metric_becomes(self, name, wanted):
        until = time.monotonic() + 300
        while self.metric(name) != wanted:
            if time.monotonic() > until:
                raise SystemExit(f"{name} has not become {wanted}")
            time.sleep(0.02)

    def published(self):
        for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "quire:shared_store_blocks_waiting"):
            self.metric_becomes(name, 0)

    def stop(self):
        self.process.kill()
        self.process.wait()
        if self.share:
            self.share.end()


class Store:
    """A redis-server on a port that stays its own, and what can happen to it."""

    def __init__(self):
        self.port = free_port()
        self.folder = tempfile.mkdtemp(prefix="quire-redis-")
        self.process = None
        self.start()

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}"

    def start(self, *flags):
        self.process = subprocess.Popen(["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", self.folder,
                                         *flags], stdout=subprocess.DEVNULL)
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as link:
                link.sendall(b"PING\r\n")
                if link.recv(64).startswith(b"+PONG"):
                    return
            time.sleep(0.02)

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()
        self.process = None

    def stop(self):
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Relay:
    """Passes bytes on to the store; its answers are late by `delay` seconds, or garbage in their place."""

    def __init__(self, target):
        self.target, self.delay, self.garbage = target, 0.0, None
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.accept, daemon=True).start()

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.listener.getsockname()[1]}"

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            try:
                store = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                client.close()
                continue
            threading.Thread(target=self.pass_on, args=(client, store, False), daemon=True).start()
            threading.Thread(target=self.pass_on, args=(store, client, True), daemon=True).start()

    def pass_on(self, source, sink, is_answer):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 18):
                if is_answer and self.delay:
                    time.sleep(self.delay)
                sink.sendall(self.garbage if is_answer and self.garbage else data)
        for link in (source, sink):
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)


class PrefillRouter:
    """Asks one of some daemons to compute a prompt, then one of the others for the answer, as vLLM's proxies do."""

    def __init__(self, prefilling, decoding):
        places = itertools.count()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.relay(decoding[0], b"")

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                place = next(places)
                body["kv_transfer_params"] = PrefillRouter.prefill(prefilling[place % len(prefilling)], self.path, body)
                self.relay(decoding[place % len(decoding)], json.dumps(body).encode())

            def relay(self, daemon, body):
                with socket.create_connection(("127.0.0.1", daemon.port)) as link:
                    link.sendall(f"{self.command} {self.path} HTTP/1.1\r\nHost: quire\r\nConnection: close\r\n"
                                 f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
                    while data := link.recv(1 << 16):
                        self.wfile.write(data)
                self.close_connection = True

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @staticmethod
    def prefill(daemon, path, body):
        link = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=600)
        asked = {name: value for name, value in body.items() if name not in ("stream_options", "min_tokens")}
        asked |= {"max_tokens": 1, "stream": False, "kv_transfer_params": {"do_remote_decode": True}}
        link.request("POST", path, json.dumps(asked), {"Content-Type": "application/json"})
        answer = json.load(link.getresponse())
        link.close()
        return answer["kv_transfer_params"]

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


@contextlib.contextmanager
def fleet(options, flags, store=None):
    """HAProxy's port, and the daemons behind it."""
    daemons = []
    folder = tempfile.mkdtemp(prefix="quire-fleet-")
    proxy = None
    try:
        for _ in range(NUM_DAEMONS):
            daemons.append(Daemon(options, flags, store))
        port = free_port()
        servers = "\n".join(f"  server d{i} 127.0.0.1:{daemon.port}" for i, daemon in enumerate(daemons))
        path = os.path.join(folder, "haproxy.cfg")
        with open(path, "w") as file:
            file.write(PROXY.format(port=port, servers=servers))
        proxy = subprocess.Popen(["haproxy", "-db", "-f", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.02)
        yield port, daemons
    finally:
        for daemon in daemons:
            daemon.stop()
        if proxy:
            proxy.terminate()
            proxy.wait()
        shutil.rmtree(folder, ignore_errors=True)


def load(options, port, *flags):
    """What `quire bench serve` measured."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run([options.quire, "bench", "serve", "--url", f"http://127.0.0.1:{port}", "--model", "m", "--json", file.name, *flags],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        report = json.load(file)
    if report["errors"]:
        raise SystemExit(f"FAIL: {report['errors']} requests failed: {report['sample_errors']}")
    return report


def words(count, seed):
    generator = random.Random(seed)
    return " ".join(generator.choice(("block", "river", "token", "story", "cache", "time", "world", "house")) for _ in range(count))


def ask(daemon, prompt, max_tokens):
    """Seconds to the first token of a stream, its prompt's tokens, those of them that were cached, and the text."""
    link = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=600)
    body = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, "stream": True,
            "stream_options": {"include_usage": True}}
    began = time.perf_counter()
    link.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    first, text, usage = None, "", {}
    response = link.getresponse()
    if response.status != 200:
        raise SystemExit(f"FAIL: {response.status} {response.read().decode()}")
    for line in response:
        if not line.startswith(b"data: {"):
            continue
        first = first or time.perf_counter() - began
        event = json.loads(line[6:])
        text += "".join(choice["text"] for choice in event["choices"])
        usage = event.get("usage") or usage
    link.close()
    return first, usage["prompt_tokens"], (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0), text
