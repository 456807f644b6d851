#!/usr/bin/env bash
# same_text.sh QUIRE [MODEL]: greedy texts on the GPU are the same one after the other and all at once, and those on the
# processor up to a place where two tokens are within 0.2 in log probability, as between levels of the processor.
set -euo pipefail
cd "$(dirname "$0")/../.."
quire=$1
model=${2:-deploy/demo-model/quire-demo.gguf}
work=$(mktemp -d)
source tests/gpu/daemon.sh

ask() { # ask FILE PROMPT: a token a line, and by how much it is likelier than the second
  curl -sS --max-time 60 "$url/v1/completions" -H 'Content-Type: application/json' \
    -d "{\"prompt\": \"$2\", \"max_tokens\": 48, \"temperature\": 0, \"ignore_eos\": true, \"logprobs\": 2}" |
    python3 -c '
import json, sys
of = json.load(sys.stdin)["choices"][0]["logprobs"]
for token, top in zip(of["tokens"], of["top_logprobs"]):
    best = sorted(top.values())
    print(json.dumps(token), "%.3f" % (best[-1] - best[0]), sep="\t")' > "$1"
}

# agree ONE OTHER: the same tokens up to one that was hardly likelier than another.
agree() {
  paste "$1" "$2" | awk -F'\t' '$1 != $3 { exit !($2 < 0.2) }'
}

# all FOLDER alone|together: sixteen prompts.
all() {
  mkdir -p "$work/$1"
  local prompt="Once upon a time" i
  for i in {1..16}; do
    prompt+=" the river was cold and the boat was small"
    if [[ $2 == together ]]; then ask "$work/$1/$i" "$prompt" & else ask "$work/$1/$i" "$prompt"; fi
  done
  [[ $2 == alone ]] || wait $(jobs -p | grep -v "^$pid$")
}

serve "$model" --max-model-len 2048 --device cpu --isa scalar
all processor alone
stop
serve "$model" --max-model-len 2048 --device cuda
all alone alone
all together together
stop
cut -f 1 "$work/alone/1" | tr -d '\n'
echo
diff -r "$work/alone" "$work/together"
echo "on the GPU: the same texts alone and together"
for i in {1..16}; do
  agree "$work/processor/$i" "$work/alone/$i" || { diff "$work/processor/$i" "$work/alone/$i" || exit 1; }
done
echo "the same texts on the GPU and on the processor"
