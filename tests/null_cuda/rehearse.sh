#!/usr/bin/env bash
# Tries on a CUDA that computes nothing (build.py) what can be tried there: that the host waits for nothing, that memory
# does not grow, and the commands of docs/gpu-backlog.md at toy size. Their figures mean nothing. Fails where one does,
# or where CUDA would have refused anything. Left out: benchmarks/decoding, which counts its tokens. With more arguments
# it runs that benchmark instead.
set -euo pipefail
cd "$(dirname "$0")/../.."
venv=$1
log=$venv/rehearsal.log
environment=$("$venv/bin/python" -m tests.null_cuda.build "$venv/libraries")
# shellcheck disable=SC2086
export OMP_NUM_THREADS=2 $environment
[ $# -eq 1 ] || exec "$venv/bin/python" -m benchmarks "${@:2}"

{
  "$venv/bin/python" -m pytest -q -s -p no:cacheprovider -W default -m gpu tests/models tests/training/losses \
    -k '(does_not_wait or waits_for_nothing or thousand or eight_launches or are_not_rounded or torch_keeps or are_dropped_give or share_the_memory or beyond_the_limit or outlives_its_graph) and not what_comes_after and not side_stream'
  "$venv/bin/python" -m pytest -q -p no:cacheprovider -W default -m gpu tests/training/test_probe_on_gpu.py \
    tests/training/test_step_on_gpu.py tests/benchmarks/test_idle.py
  "$venv/bin/python" -m tests.null_cuda.faults 2>/dev/null
  benchmark() {
    echo "== $*"
    "$venv/bin/python" -m benchmarks "$@" --device cuda
  }
  for transducer in tdt rnnt; do
    benchmark offline --shape toy --transducer $transducer --dtypes bfloat16 float32 --utterances 20 \
      --batch-seconds 20 500 --repeats 1 --idle
  done
  benchmark offline --shape toy --dtypes float16 tf32 --decoders tdt --utterances 20 --batch-seconds 500 --repeats 1 \
    --one-stream
  benchmark latency --shape toy --dtypes bfloat16 --seconds 8 --batch 1 8 64 --repeats 3
  benchmark latency --shape jasper10x5dr --dtypes bfloat16 --seconds 2 --batch 1 --repeats 3
  benchmark latency --model bundled --dtypes bfloat16 --seconds 8 --batch 1 64 --repeats 3
  benchmark search --shape toy --dtype bfloat16 --batch 1 16 --rounds 2
  benchmark attention --shape toy --dtype bfloat16 --seconds 3 8 --batch-seconds 30 --rounds 2 --launches
  benchmark kernels --shape 0.6b --dtype bfloat16 --rounds 2
  benchmark training --precision bfloat16 --repeats 2
  benchmark training --precision bfloat16 --repeats 2 --transducer tdt
  benchmark losses --dtype bfloat16 --seconds 40 --clips 64 --repeats 1
} 2>&1 | tee "$log"
# What the code says where it goes on without a kernel, a graph or a loop.
! grep -E 'forbidden|fast path|no kernel|no CUDA graph|no loop|does not run here' "$log"
