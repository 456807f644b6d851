#!/bin/sh
# A build without modules needs the packages of the core alone, and says of each key, command and route what it needs. Without FOLDER it
# is configured only; with FOLDER it is built there and asked. Exit 77: pkg-config or curl is absent. Usage: modules.sh QUIRE_BINARY [FOLDER]
set -eu
for tool in pkg-config curl; do
  command -v $tool >/dev/null || { echo "skipped: $tool is absent (Debian packages pkg-config, curl)"; exit 77; }
done
source=$(realpath "$(dirname "$0")/../..")
folder=${2:-}
work=$(mktemp -d)
daemon=
trap '[ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true; rm -rf "$work"' EXIT
fail() { echo "modules: $*" >&2; exit 1; }

# A machine with the core's packages alone: pkg-config sees no others, and CMake is not to look for theirs.
mkdir "$work/packages"
for package in yaml-cpp libpcre2-8 libxxhash libutf8proc; do
  ln -s "$(pkg-config --variable=pcfiledir $package)/$package.pc" "$work/packages/$package.pc"
done
configure() { # modules, folder
  (cd "$source" && PKG_CONFIG_LIBDIR="$work/packages" cmake --preset release -B "$2" "-DQUIRE_MODULES=$1" -DQUIRE_CORE_OPTIMIZE=-O0 \
    -DQUIRE_SERVER_OPTIMIZE=-O0 -DCMAKE_DISABLE_FIND_PACKAGE_PNG=ON -DCMAKE_DISABLE_FIND_PACKAGE_JPEG=ON -DCMAKE_DISABLE_FIND_PACKAGE_GIF=ON)
}

small=${folder:-$work/small}
configure "" "$small" > "$work/log" 2>&1 || { cat "$work/log"; fail "the core alone does not configure"; }
for absent in server/fleet/ server/batch/ server/hub/ server/admin/page_files core/sim/replica server/cli/run/ server/ops/reports/span_exporter \
  server/media/decode/ web_assets hiredis libzmq libedit libpng libjpeg libgif libwebp; do
  ! grep -q "$absent" "$small/build.ninja" || fail "$absent is in a build without modules"
done
# The packages are those of the modules, and named.
for case in "fleet hiredis" "images PNG" "terminal libedit" "chess batches;fleet;hub"; do
  if configure "${case% *}" "$work/refused" > "$work/log" 2>&1; then fail "${case% *} configures without its packages"; fi
  grep -q "${case#* }" "$work/log" || { cat "$work/log"; fail "the message does not name ${case#* }"; }
  rm -rf "$work/refused"
done
echo "modules: the core configures with its own packages; a module asks for its own"
[ -n "$folder" ] || exit 0

ninja -C "$small" quire > "$work/log" || { tail -50 "$work/log"; fail "the core alone does not build"; }
quire=$small/quire
model=$source/deploy/demo-model/quire-demo.gguf

refused() { # module, words of the command line
  module=$1
  shift
  if "$@" > "$work/out" 2> "$work/log"; then fail "'$*' is not refused"; fi
  grep -q "needs the module '$module', which this build leaves out: build with cmake -DQUIRE_MODULES=all, or with '$module' in its list" "$work/log" ||
    { cat "$work/log"; fail "'$*' does not name the module $module"; }
}
printf 'batches:\n  directory: /nowhere\n' > "$work/batches.yaml"
printf 'models:\n  - {name: a, hf: owner/name}\n' > "$work/models.yaml"
refused batches "$quire" serve --config "$work/batches.yaml" --check-config
grep -q "batches.yaml:2: 'batches.directory'" "$work/log" || fail "the file's line is not named"
refused hub "$quire" serve --config "$work/models.yaml" --check-config
refused hub "$quire" serve --hf owner/name
refused fleet "$quire" serve "$model" --kv-cache.shared.url redis://127.0.0.1:1
refused fleet "$quire" serve "$model" --shared-quotas.url redis://127.0.0.1:1 --check-config
refused images "$quire" serve "$model" --limit-mm-per-prompt 2
refused otlp env QUIRE_TRACING_ENDPOINT=http://127.0.0.1:1 "$quire" serve "$model" --check-config
refused terminal "$quire" run "$model"
refused terminal "$quire" chat "$model"
refused simulator "$quire" simulate --synthetic requests=1
refused simulator "$quire" help simulate
refused hub "$quire" pull owner/name
refused images "$quire" bench serve --url http://127.0.0.1:1 --images 1
"$quire" --help > "$work/out"
! grep -qE '^ +(run|pull|models|import|simulate) ' "$work/out" || fail "the help lists a command that is left out"
"$quire" serve --print-config > "$work/out"
! grep -qE '^(batches|media|tracing|shared_quotas):' "$work/out" || fail "the configuration has a section that is left out"
"$quire" serve --config "$work/out" --check-config

"$quire" serve "$model" --port 0 --admin-listen-absent 2> "$work/log" || true
grep -q "unknown option '--admin-listen-absent'" "$work/log" || fail "an unknown flag has another answer"
"$quire" serve "$model" --port 0 --kv-cache.num-blocks 256 2> "$work/log" &
daemon=$!
until grep -q 'is ready after' "$work/log"; do
  kill -0 "$daemon" 2>/dev/null || { cat "$work/log"; fail "the daemon ended"; }
  sleep 0.1
done
address=$(sed -n 's/.*listening on \([0-9.:]*\).*/\1/p' "$work/log")
! grep -q 'a chat page' "$work/log" || fail "the log names a page"
for route in "batches /v1/files" "batches /v1/batches/x" "page /" "page /ui/app.js" "hub /admin/models/cache"; do
  status=$(curl -s -o "$work/out" -w '%{http_code}' "http://$address${route#* }")
  [ "$status" = 404 ] || fail "${route#* } answers $status"
  grep -q "needs the module '${route% *}'" "$work/out" || { cat "$work/out"; fail "${route#* } does not say why"; }
done
curl -sf "http://$address/openapi.json" > "$work/out"
grep -q '"/v1/chat/completions"' "$work/out" || fail "the API's description lacks the chat"
! grep -qE '"/v1/(files|batches)"|"/api/pull"' "$work/out" || fail "the API's description has a route that is left out"
curl -sf "http://$address/metrics" > "$work/out"
grep -q '^vllm:num_requests_running' "$work/out" || fail "the metrics are missing"
! grep -qE '^quire:(shared_store|images|stored_file|spans)' "$work/out" || fail "a metric of a module is there"
"$source/tests/deploy/one_chat.sh" "http://$address" "$daemon"
kill "$daemon"
wait "$daemon" || fail "the daemon's drain failed"
daemon=
echo "modules: a daemon of the core serves, and names the module of what it refuses"
