#!/bin/sh
# Waits until a daemon is ready, then has one chat with it: one_chat.sh URL PROCESS. Fails once the process has ended.
set -eu
until curl -fs "$1/readyz" >/dev/null; do
  kill -0 "$2" 2>/dev/null || { echo "the daemon of $1 ended" >&2; exit 1; }
  sleep 0.2
done
curl -fsS "$1/v1/chat/completions" -H 'Content-Type: application/json' \
  -d '{"messages": [{"role": "user", "content": "What is a KV block?"}], "max_tokens": 40}' | grep '"content"'
