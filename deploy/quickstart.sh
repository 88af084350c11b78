#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a fresh clone on Debian 12 to a streamed answer: installs what is missing, builds, fetches a
# small real model, and serves it from two ranks that share it (tensor parallelism).
#
#   deploy/quickstart.sh                      serve in the foreground until Ctrl-C
#   deploy/quickstart.sh --once "question"    ask one question, print the streamed answer, exit
#
# Everything after -- goes to `cohort up` (deploy/quickstart.sh -- --replicas 2).
set -euo pipefail
cd "$(dirname "$0")/.."

question=""
port="${COHORT_PORT:-8000}"
usage() { sed -n '3,9s/^# \{0,1\}//p' "$0"; }
while (($#)); do
  case "$1" in
    --once) question="${2:?--once needs a question}"; shift 2 ;;
    --help | -h) usage; exit 0 ;;
    --) shift; break ;;
    *) usage >&2; exit 64 ;;
  esac
done

source deploy/packages.sh
install_packages "${build_packages[@]}"

build=build/cpu
if [[ ! -f $build/build.ninja ]]; then
  echo "configuring $build"
  cmake --preset cpu >"/tmp/cohort-configure.$$" || { cat "/tmp/cohort-configure.$$"; exit 1; }
  rm -f "/tmp/cohort-configure.$$"
fi
echo "building (the first time takes some minutes)"
cmake --build --preset cpu --target cohort cohort-coordinator cohort-worker

up=("$build/bin/cohort" up --model smollm2 --tp 2 --http "127.0.0.1:$port"
    --grpc "127.0.0.1:$((port + 1000))" --log-level warning "$@")
if [[ -z "$question" ]]; then
  cat <<EOF
when the line 'ready:' appears, ask from another terminal:
  curl -N http://127.0.0.1:$port/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{"messages": [{"role": "system", "content": "You are a helpful AI assistant."},
                      {"role": "user", "content": "What is the capital of France?"}],
         "temperature": 0, "stream": true}'
or:
  $build/bin/cohort chat --address 127.0.0.1:$port
EOF
  exec "${up[@]}"
fi

ready="$(mktemp)"
"${up[@]}" >"$ready" &
cluster=$!
stop() {
  kill -TERM "$cluster" 2>/dev/null || true
  wait "$cluster" 2>/dev/null || true
  rm -f "$ready"
}
trap stop EXIT
until grep -q '^ready: ' "$ready"; do
  kill -0 "$cluster" 2>/dev/null || { echo "the cluster ended before it was ready" >&2; exit 1; }
  sleep 0.1
done
"$build/bin/cohort" chat --address "127.0.0.1:$port" --temperature 0 --max-tokens 128 --once "$question"
