#!/usr/bin/env bash
# same_sight.sh QUIRE [MODEL TOWER]: the model that sees answers about drawn pictures on the GPU as on the processor, one after the
# other and all at once. With MODEL and TOWER it prints how long the encoder takes on the GPU for each of eight pictures of 1280x720.
set -euo pipefail
cd "$(dirname "$0")/../.."
quire=$1
model=deploy/demo-model/seeing/quire-seeing.gguf
work=$(mktemp -d)
source tests/gpu/daemon.sh

# body WIDTH HEIGHT COLOUR SEED QUESTION: a request about a square of that colour (three bytes in hexadecimal) on white, with some grain.
body() {
  python3 -c '
import base64, json, random, struct, sys, zlib
width, height, colour, grain = int(sys.argv[1]), int(sys.argv[2]), bytes.fromhex(sys.argv[3]), random.Random(sys.argv[4])
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
def line(y):
    inside = height // 3 <= y < height * 2 // 3
    row = bytearray(b"\xfa" * 3 * (width // 3) + (colour if inside else b"\xfa" * 3) * (width // 3) + b"\xfa" * 3 * (width - width // 3 * 2))
    row[3 * grain.randrange(width)] ^= 1
    return b"\0" + bytes(row)
png = (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
       + chunk(b"IDAT", zlib.compress(b"".join(map(line, range(height))))) + chunk(b"IEND", b""))
url = "data:image/png;base64," + base64.b64encode(png).decode()
content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": sys.argv[5]}]
print(json.dumps({"messages": [{"role": "user", "content": content}], "max_tokens": 24, "temperature": 0}))' "$@"
}

ask() { # ask FILE WIDTH HEIGHT COLOUR SEED QUESTION
  local file=$1
  shift
  body "$@" | curl -sS --max-time 300 "$url/v1/chat/completions" -H 'Content-Type: application/json' -d @- |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["choices"][0]["message"]["content"])' > "$file"
}

# all FOLDER alone|together: twelve questions.
all() {
  mkdir -p "$work/$1"
  local colours=(d62828 2850d6 1e963c f0cd1e) i
  for i in {1..12}; do
    local question=(ask "$work/$1/$i" $((60 + 20 * i)) 192 "${colours[$((i % 4))]}" "$i" "What colour is the square?")
    if [[ $2 == together ]]; then "${question[@]}" & else "${question[@]}"; fi
  done
  [[ $2 == alone ]] || wait $(jobs -p | grep -v "^$pid$")
}

serve "$model" --device cpu
all processor alone
stop
serve "$model" --device cuda
all alone alone
stop
serve "$model" --device cuda
all together together
stop
sort "$work"/alone/* | uniq -c
diff -r "$work/alone" "$work/together"
diff -r "$work/alone" "$work/processor"
echo "the same answers about pictures on the GPU, alone and together, and on the processor"

[[ $# -lt 3 ]] && exit
serve "$2" --mmproj "$3" --device cuda --max-model-len 8192
for i in {1..8}; do ask "$work/answer" 1280 720 2850d6 "$i" "What is it?"; done
curl -sS "$url/metrics" | awk '/^quire:encoder_seconds_total/ { seconds = $2 } END { printf "encoder: %.1f ms for a picture of 1280x720\n", seconds / 8 * 1000 }'
stop
