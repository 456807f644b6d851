#!/usr/bin/env bash
# run.sh [FOLDER]: what only a GPU can confirm, in one call that ends by itself within nine minutes. Needs this tree, nvcc of
# CUDA 13 and a g++ with C++20; what else is missing is skipped by name. Writes FOLDER/log (default build/gpu-run) and
# ends with 1 where a result differs from the emulator's. QUIRE: a daemon built with CUDA (default build/cuda/quire).
# GPU_CHECK: gpu_check built with CUDA, which is then not built here.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
folder=${1:-build/gpu-run}
quire=${QUIRE:-build/cuda/quire}
gpu_check=${GPU_CHECK:-$folder/gpu_check}
mkdir -p "$folder/objects"
exec > >(tee "$folder/log") 2>&1
export PATH=$PATH:/usr/local/cuda/bin
end=$((SECONDS + 525))
failed=0

# step NAME SECONDS COMMAND...: runs it for at most so long, and not beyond the end of the call.
step() {
  local name=$1 most=$2 left=$((end - SECONDS)) began=$SECONDS status
  shift 2
  if ((left < 10)); then echo "== $name: skipped, no time is left"; return 1; fi
  echo "== $name"
  timeout "$((most < left ? most : left))" "$@"
  status=$?
  echo "== $name: $([[ $status == 0 ]] && echo "done" || echo "ended with $status") after $((SECONDS - began)) s"
  return "$status"
}

if ! command -v "${GPU_CHECK:-nvcc}" > /dev/null; then echo "skipped: no ${GPU_CHECK:-nvcc}"; exit 0; fi
if ! nvidia-smi -L; then echo "skipped: no GPU"; exit 0; fi
nvidia-smi --query-gpu=name,driver_version,compute_cap,memory.total,clocks.max.sm,clocks.max.memory --format=csv
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)

# One object for each file, as many at once as there are processors.
build() {
  local cuda=$1 flags="-std=c++20 -O2 -I. -fno-math-errno -ffp-contract=off"
  {
    for source in kernels/cuda/*.cu; do
      echo "nvcc -std=c++20 -O2 -I. --expt-relaxed-constexpr -fmad=false -arch=sm_$capability --split-compile 0 -c $source -o $folder/objects/$(basename "$source").o"
    done
    for source in kernels/cuda/cuda_device.cpp kernels/cpu/machine/{thread_pool,topology}.cpp kernels/gpu/*.cpp kernels/gpu/*/*.cpp kernels/emulated/*.cpp \
      kernels/*.cpp tests/kernels/random_data.cpp tests/gpu_check/*.cpp; do
      case $source in kernels/registry.cpp | kernels/no_gpu.cpp | kernels/machine_limits.cpp | */emulated_target.cpp) continue ;; esac
      echo "g++ $flags -I$cuda/include -c $source -o $folder/objects/${source//\//_}.o"
    done
  } | xargs -P "$(nproc)" -I{} bash -c '{} || { echo "failed: {}"; exit 255; }' || return 1
  nvcc -arch="sm_$capability" -o "$folder/gpu_check" "$folder"/objects/*.o -Xcompiler -pthread
}
export -f build
export folder capability
[[ -n ${GPU_CHECK:-} ]] || step "build" 240 bash -c "build $(dirname "$(dirname "$(command -v nvcc)")")" || exit 1

step "bits against the emulator" 150 "$gpu_check" bits || failed=1
step "figures of the kernels" 100 "$gpu_check" speed || failed=1
if command -v compute-sanitizer > /dev/null; then
  for tool in memcheck racecheck; do
    for part in "Q4_K, 8 rows" "Q4_K, 130 rows" "attention f16 window"; do
      step "$tool: $part" 40 compute-sanitizer --tool "$tool" --error-exitcode 1 "$gpu_check" bits "$part" || failed=1
    done
  done
else
  echo "skipped: no compute-sanitizer"
fi

# The demo models, and synthetic 8B ones: one of 8 layers of BF16.
throughput() { "$quire" bench throughput --model "$@" 2>&1 | grep -v ' pass '; }
export -f throughput
export quire
if "$quire" --version > /dev/null 2>&1; then
  for model in quire-demo families/quire-hybrid families/quire-experts families/quire-windowed; do
    step "$model on the GPU" 60 bash tests/gpu/same_text.sh "$quire" "deploy/demo-model/$model.gguf" || failed=1
  done
  if "$quire" synth --shape qwen3vl-2b --type Q4_K "$folder/2b.gguf" && "$quire" synth --shape qwen3vl-2b-mmproj --type Q8_0 "$folder/2b-mmproj.gguf"; then
    step "pictures on the GPU" 100 bash tests/gpu/same_sight.sh "$quire" "$folder/2b.gguf" "$folder/2b-mmproj.gguf" || failed=1
  fi
  rm -f "$folder"/2b*.gguf
  if step "an 8B model is written" 120 "$quire" synth --shape llama-3-8b --type Q4_K "$folder/8b.gguf"; then
    step "it decodes" 120 bash -c "throughput $folder/8b.gguf --prompt 512 --output 64 --sequences 1,4,8,16,32,64,128"
    step "behind longer prompts" 60 bash -c "throughput $folder/8b.gguf --prompt 1024 --output 64 --sequences 1,64 --repeats 1"
  fi
  rm -f "$folder/8b.gguf"
  step "8 layers of BF16 are written" 120 "$quire" synth --shape llama-3-8b --layers 8 --type BF16 "$folder/8b.gguf" &&
    step "they prefill" 60 bash -c "throughput $folder/8b.gguf --prompt 2048 --output 32 --sequences 1,8"
  rm -f "$folder/8b.gguf"
else
  echo "skipped: $quire does not start here, no model was served"
fi
echo "== $([[ $failed == 0 ]] && echo "all equal" || echo "something FAILED") after $SECONDS s"
exit "$failed"
