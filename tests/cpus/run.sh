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
if cc -O2 -shared -fPIC -o "$mask" tests/cpus/masked_cpuid.c -ldl && LD_PRELOAD=$mask true 2>/dev/null; then
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

pytest() { "$@" -m pytest -q -p no:cacheprovider -m 'not gpu and not long' -n "${workers:-2}" "${chosen[@]}"; }

failed=()
for level in "${levels[@]}"; do
  echo "== $level"
  chosen=("${tests[@]}") workers=2
  case $level in
    here) pytest "$python" || failed+=("$level") ;;
    *) if [ $can_mask = yes ]; then
        vendor=${level#*-} export_level=${level%-amd}
        LD_PRELOAD=$mask MASKED_CPUID_LEVEL=$export_level MASKED_CPUID_VENDOR=$vendor pytest "$python" || failed+=("$level")
      elif [ "$level" = avx512 ]; then
        echo "QEMU has no AVX-512" && failed+=("$level")
      else
        chosen=("${golden[@]}") workers=0
        cpu=$([ "$level" = sse4.2 ] && echo Nehalem || echo Haswell)
        pytest qemu-x86_64 -cpu "$cpu" "$python" --timeout 3600 || failed+=("$level")
      fi ;;
  esac
done
echo "levels run: ${levels[*]}; failed: ${failed[*]:-none}"
[ ${#failed[@]} = 0 ]
