#!/usr/bin/env bash
# The tests of models and training at several levels of processor (`make test-cpus`, docs/performance.md).
#
#   tests/cpus/run.sh PYTHON [LEVEL...]     levels: here, sse4.2, avx2, avx2-amd, avx512; default: those there can be
#
# Where Linux and the processor can hide instruction sets (masked_cpuid.c) the tests run at full speed, and so they do
# twice of avx2: MKL takes other kernels for AMD. Elsewhere QEMU's user mode stands in for sse4.2 and avx2, a hundred
# times slower, with the golden models in float32 alone.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=$1
shift

tests=(
  tests/models/test_cpu.py tests/models/test_precision.py tests/models/test_packed_linear.py
  tests/models/test_quantized_linear.py tests/models/test_golden.py tests/models/test_device.py
  tests/models/test_bundled.py tests/models/encoders tests/models/heads tests/training/test_loop.py
)
golden=(tests/models/test_cpu.py tests/models/test_golden.py -k 'test_cpu or transcripts_are_equal')

build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
mask=$build/masked_cpuid.so
can_mask=no
# `true` alone would be the shell's own, which loads nothing.
if cc -O2 -shared -fPIC -o "$mask" tests/cpus/masked_cpuid.c -ldl && env LD_PRELOAD="$mask" true 2>/dev/null; then
  can_mask=yes
fi

levels=("$@")
if [ ${#levels[@]} = 0 ]; then
  levels=(here sse4.2 avx2)
  if [ $can_mask = yes ]; then
    levels+=(avx2-amd)
    if grep -qw avx512f /proc/cpuinfo; then levels+=(avx512); fi
  fi
fi

declare -A flag=([sse4.2]=sse4_2 [avx2]=avx2 [avx2-amd]=avx2 [avx512]=avx512f)
declare -A emulated=([sse4.2]=Nehalem [avx2]=Haswell)
options=(-m pytest -q -p no:cacheprovider -m 'not gpu and not long')

# run LEVEL: what it prints and returns is pytest's.
run() {
  if [ "$1" = here ]; then
    "$python" "${options[@]}" -n 2 "${tests[@]}"
  elif [ -z "${flag[$1]:-}" ]; then
    echo "$1 is no level: ${!flag[*]}, here" && return 2
  elif [ $can_mask = yes ] && grep -qw "${flag[$1]}" /proc/cpuinfo; then
    LD_PRELOAD=$mask MASKED_CPUID_LEVEL=${1%-amd} MASKED_CPUID_VENDOR=${1#*-} \
      "$python" "${options[@]}" -n 2 "${tests[@]}"
  elif [ -n "${emulated[$1]:-}" ]; then
    qemu-x86_64 -cpu "${emulated[$1]}" "$python" "${options[@]}" -n 0 --timeout 3600 "${golden[@]}"
  else
    echo "$1 cannot be had on this processor" && return 2
  fi
}

failed=()
for level in "${levels[@]}"; do
  echo "== $level"
  run "$level" || failed+=("$level")
done
echo "levels run: ${levels[*]}; failed: ${failed[*]:-none}"
[ ${#failed[@]} = 0 ]
