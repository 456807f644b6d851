#!/bin/sh
# The two commands as a newcomer runs them: root.sh SYSTEM FOLDER makes a bare root of the system in FOLDER, unless it is there, puts a
# clone of this tree into it, and runs `make test`, then `make run` with one request. Needs root and the network. TARGETS chooses: test,
# run, deb.
set -eu
system=$1
root=$(realpath -m "$2")
here=$(realpath "$(dirname "$0")")
cd "$here/../.."
trap '"$here/bare_root.sh" --end "$root"' EXIT
"$here/bare_root.sh" "$system" "$root" make git
rm -rf "$root/src"
git clone -q . "$root/src"
export NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt HOME=/root LC_ALL=C.UTF-8
within() { chroot "$root" make -C /src "$@"; }
wanted() { case " ${TARGETS:-test run} " in *" $1 "*) ;; *) return 1 ;; esac; }
chroot "$root" git config --global --add safe.directory /src

! wanted test || within test
! wanted deb || within deb
wanted run || exit 0
within build
setsid chroot "$root" make -C /src run ARGS='--server.port 18080' > "$root/run.log" 2>&1 &
daemon=$!
"$here/one_chat.sh" http://127.0.0.1:18080 $daemon || { cat "$root/run.log" >&2; exit 1; }
kill -- -$daemon
wait $daemon || true
echo "$system: ${TARGETS:-test run} work"
