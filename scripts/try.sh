#!/usr/bin/env bash
# From a fresh clone to an answer: set up, make a target of about 1 GB, and run it inside 600 MiB.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh run
cache=${EDGESPEC_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/edgespec}
mkdir -p "$cache"
for role in target:1000MB drafter:80MB; do
    file=$cache/inflated-${role%:*}-${role#*:}.gguf
    [ -e "$file" ] || .venv/bin/python -m edgespec.bench.inflate "models/edgespec-${role%:*}.gguf" "$file" --size "${role#*:}"
done
exec .venv/bin/edgespec run "${1:-What is edgespec?}" --budget 600MiB --context 1024 \
    --target "$cache/inflated-target-1000MB.gguf" --drafter "$cache/inflated-drafter-80MB.gguf"
