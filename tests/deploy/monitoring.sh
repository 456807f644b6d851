#!/bin/sh
# Alerts, Prometheus configuration and dashboard are read by promtool, each alert is played, and every metric they name is one
# that a running daemon exports. Exit 77: promtool, node or curl is absent. Usage: monitoring.sh QUIRE_BINARY
set -eu
quire=$(realpath "$1")
here=$(realpath "$(dirname "$0")")
root=$(realpath "$here/../..")
for tool in promtool node curl openssl; do
  command -v $tool >/dev/null || { echo "skipped: $tool is absent (Debian packages prometheus, nodejs, curl, openssl)"; exit 77; }
done
work=$(mktemp -d)
server=
trap 'kill ${server:-} 2>/dev/null || true; rm -rf "$work"' EXIT

cd "$root/deploy/monitoring"
promtool check config prometheus.yml
promtool test rules alerts_test.yml
node "$here/dashboard_rules.mjs" grafana/quire.json > "$work/dashboard.yml"
promtool check rules "$work/dashboard.yml"

# With a certificate, whose expiry is a metric too.
openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=localhost -keyout "$work/key.pem" -out "$work/cert.pem" 2> "$work/openssl.log"
"$quire" serve --server.tls.certificate "$work/cert.pem" --server.tls.key "$work/key.pem" --model "$root/deploy/demo-model/quire-demo.gguf" --shared-quotas.url redis://127.0.0.1:1 --port 0 --kv-cache.num-blocks 256 2> "$work/log" &
server=$!
until grep -q 'is ready after' "$work/log"; do kill -0 $server || { cat "$work/log"; exit 1; }; done
url=$(sed -n 's/.*listening on \([0-9.:]*\).*/https:\/\/\1/p' "$work/log" | head -1)
# Labelled counters appear with their first event.
curl -skf -H 'Content-Type: application/json' -d '{"prompt": "Hello", "max_tokens": 4}' "$url/v1/completions" > "$work/answer"
curl -sk -H 'Content-Type: application/json' -d 'no json' "$url/v1/completions" > "$work/refusal"
curl -skf "$url/metrics" > "$work/metrics"

missing=$(grep -ohE '(vllm|quire):[a-z0-9_]+' alerts.yml grafana/quire.json "$root"/deploy/helm/quire/templates/*.yaml "$root"/deploy/helm/quire/values.yaml 2>/dev/null |
  sort -u | while read -r name; do grep -qE "^$name(\{| )" "$work/metrics" || echo "$name"; done)
[ -z "$missing" ] || { printf 'named in deploy/ but not exported by the daemon:\n%s\n' "$missing"; exit 1; }
echo "every metric named is exported"
