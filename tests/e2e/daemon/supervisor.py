"""A small systemd: holds a listening socket and a notification socket, starts daemons with both, and reports what happens.

Commands come as lines on standard input: "start FLAG...", "signal NUMBER NAME", "end". Events go out as lines of JSON:
{"listening": port}, {"started": number}, {"notify": text}, {"log": line}, {"ended": number, "code": code}.
"""
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading

output = threading.Lock()


def tell(**event):
    with output:
        print(json.dumps(event), flush=True)


def listen_for_notifications():
    path = os.path.join(tempfile.mkdtemp(prefix="quire-"), "notify")
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.bind(path)

    def loop():
        while True:
            tell(notify=notify.recv(4096).decode())

    threading.Thread(target=loop, daemon=True).start()
    return path


def start(number, flags, listener, notify_path):
    environment = dict(os.environ, LISTEN_FDS="1", LISTEN_FDNAMES="http", NOTIFY_SOCKET=notify_path,
                       WATCHDOG_USEC="400000")
    # The shell becomes the daemon, so that its process id is what LISTEN_PID says.
    script = 'exec 3<&"$1"; shift; LISTEN_PID=$$ exec "$@"'
    command = ["bash", "-c", script, "bash", str(listener.fileno()), os.environ["QUIRE_BINARY"], "serve", *flags]
    process = subprocess.Popen(command, env=environment, pass_fds=[listener.fileno()], stderr=subprocess.PIPE, text=True)

    def watch():
        for line in process.stderr:
            tell(log=line.rstrip())
        tell(ended=number, code=process.wait())

    threading.Thread(target=watch, daemon=True).start()
    tell(started=number)
    return process


def main():
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    notify_path = listen_for_notifications()
    tell(listening=listener.getsockname()[1])
    processes = []
    for line in sys.stdin:
        command, *rest = line.split()
        if command == "start":
            processes.append(start(len(processes), rest, listener, notify_path))
        elif command == "signal":
            processes[int(rest[0])].send_signal(getattr(signal, rest[1]))
        else:
            break
    for process in processes:
        process.kill()


main()
