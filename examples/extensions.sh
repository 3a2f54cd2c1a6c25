#!/usr/bin/env bash
# What Steno has beyond OpenAI's API, with curl: extensions.sh RECORDING
#
# OPENAI_BASE_URL is Steno's address; OPENAI_API_KEY is the key, if the operator has set any.
set -euo pipefail
recording=${1:?"usage: extensions.sh RECORDING"}
url=${OPENAI_BASE_URL:-http://localhost:8000/v1}

# --fail-with-body: if the answer is an error, print it and fail.
ask() {
  curl --silent --show-error --fail-with-body --header "Authorization: Bearer ${OPENAI_API_KEY:-none}" "$@"
}
transcribe() {
  ask "$url/audio/transcriptions" --form file=@"$recording" "$@"
}

echo '# what the models can do'
ask "$url/models"
echo
echo '# the language, and how it is known'
transcribe --form language=auto
echo
echo '# each channel by itself'
transcribe --form multichannel=true --form response_format=text
echo '# small subtitles, cue by cue'
transcribe --no-buffer --form stream=true --form response_format=vtt --form subtitle_characters=32 --form subtitle_lines=1
echo '# names that are likely to be said'
transcribe --form 'phrases[]=Elinor Dashwood' --form 'phrases[]=Willoughby' --form response_format=text
