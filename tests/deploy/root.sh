#!/bin/sh
# The two commands as a newcomer runs them: root.sh SYSTEM FOLDER makes a bare root of the system in FOLDER, unless it is there, puts a
# clone of this tree into it, and runs `make test`, then `make run` with one request. Needs root and the network. TARGETS=run: that alone.
set -eu
system=$1
root=$2
cd "$(dirname "$0")/../.."
case $system in
  debian-11) suite=bullseye ;;
  debian-12) suite=bookworm ;;
  debian-13) suite=trixie ;;
  *) echo "no root of $system can be made here: debian-11, debian-12 and debian-13 are known" >&2; exit 2 ;;
esac
if [ ! -x "$root/usr/bin/make" ]; then
  mkdir -p "$root"
  debootstrap --variant=minbase --include=make,git,ca-certificates "$suite" "$root"
fi
root=$(realpath "$root")
rm -rf "$root/src"
git clone -q . "$root/src"
for folder in proc sys dev; do mountpoint -q "$root/$folder" || mount --rbind "/$folder" "$root/$folder"; done
trap 'for folder in proc sys dev; do umount -lR "$root/$folder" 2>/dev/null || true; done' EXIT
within() { chroot "$root" sh -c "cd /src && git config --global --add safe.directory /src && $1"; }

case " ${TARGETS:-test run} " in *" test "*) within "make test" ;; esac
case " ${TARGETS:-test run} " in *" run "*) ;; *) exit 0 ;; esac
within "make build && exec timeout 300 make run ARGS='--server.port 18080'" > "$root/run.log" 2>&1 &
daemon=$!
for attempt in $(seq 600); do
  kill -0 $daemon 2>/dev/null || { cat "$root/run.log" >&2; echo "make run ended in $system" >&2; exit 1; }
  ! curl -fs http://127.0.0.1:18080/readyz >/dev/null || break
  sleep 1
done
curl -fsS http://127.0.0.1:18080/v1/chat/completions -H 'Content-Type: application/json' \
  -d '{"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}'
echo
kill $daemon
pkill -f 'server.port 18080' || true
echo "$system: both commands work"
