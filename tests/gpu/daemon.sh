# Sourced by scripts that ask a daemon, with $quire and a folder $work: `serve ARGUMENTS` starts it and sets $pid and $url, `stop` ends it,
# which must be with 0. At the script's end the daemon and the folder are gone.
pid=
trap '[[ -z $pid ]] || kill "$pid"; rm -rf "$work"' EXIT

serve() {
  : > "$work/log"
  "$quire" serve --port 0 "$@" 2>> "$work/log" &
  pid=$!
  if ! grep -qm1 " is ready after " <(tail -n +1 -f --pid="$pid" "$work/log"); then
    cat "$work/log"
    exit 1
  fi
  url=http://127.0.0.1:$(sed -n 's/.*listening on .*:\([0-9]*\).*/\1/p' "$work/log" | head -1)
}

stop() {
  kill "$pid"
  wait "$pid"
  pid=
}
