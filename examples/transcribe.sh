#!/usr/bin/env bash
# Transcribe a recording with curl: transcribe.sh RECORDING
#
# OPENAI_BASE_URL is Steno's address; OPENAI_API_KEY is the key, if the operator has set any.
set -euo pipefail
recording=${1:?"usage: transcribe.sh RECORDING"}
url=${OPENAI_BASE_URL:-http://localhost:8000/v1}

# --fail-with-body: if the answer is an error, print it and fail.
transcribe() {
  curl --silent --show-error --fail-with-body --header "Authorization: Bearer ${OPENAI_API_KEY:-none}" \
    "$url/audio/transcriptions" --form model=whisper-1 --form file=@"$recording" "$@"
}

transcribe --form response_format=text
transcribe --form response_format=verbose_json \
  --form 'timestamp_granularities[]=word' --form 'timestamp_granularities[]=segment'
echo
transcribe --form 'include[]=logprobs'
echo
transcribe --no-buffer --form stream=true
transcribe --form response_format=srt

# Without a form: the recording is the body, and options are in the query.
curl --silent --show-error --fail-with-body --header "Authorization: Bearer ${OPENAI_API_KEY:-none}" \
  --header 'Content-Type: application/octet-stream' --data-binary @"$recording" \
  "$url/audio/transcriptions?model=whisper-1&response_format=text"
