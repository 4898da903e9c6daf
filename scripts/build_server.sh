#!/usr/bin/env bash
# Compile llama.cpp's own server from the engine's source archive, for `edgespec bench` to compare with; prints its path.
# Its defaults are kept, its own speculative decoding too; only AMX is left out, which crashes with many compilers (no_amx.cmake). About 10 minutes on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${EDGESPEC_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/edgespec}
out=$cache/server/$( { cat requirements/engine.txt scripts/build_server.sh scripts/no_amx.cmake; uname -sm
    grep -m1 -E '^(flags|Features)' /proc/cpuinfo 2>/dev/null || true; } | cksum | tr -d ' ')
server=$out/build/bin/llama-server
if [ ! -x "$server" ]; then
    [ -x .venv/bin/python ] || { echo "run scripts/setup.sh first" >&2; exit 1; }
    PATH="$PWD/.venv/bin:$PATH"
    mkdir -p "$out"
    echo "compiling llama.cpp's server; log: $out/build.log" >&2
    {
        python -m pip --disable-pip-version-check download --no-deps --no-build-isolation --no-binary :all: \
            --require-hashes -r requirements/engine.txt -d "$out"
        tar -xzf "$out"/llama_cpp_python-*.tar.gz -C "$out"
        cmake -S "$out"/llama_cpp_python-*/vendor/llama.cpp -B "$out/build" -DCMAKE_BUILD_TYPE=Release -DLLAMA_BUILD_TESTS=OFF \
            -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TOOLS=ON -DLLAMA_BUILD_SERVER=ON -DLLAMA_BUILD_UI=OFF \
            -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_CURL=OFF \
            -DCMAKE_PROJECT_llama.cpp_INCLUDE="$PWD/scripts/no_amx.cmake"
        cmake --build "$out/build" --target llama-server --parallel "$(getconf _NPROCESSORS_ONLN)"
    } > "$out/build.log" 2>&1 || { tail -n 20 "$out/build.log" >&2; exit 1; }
fi
echo "$server"
