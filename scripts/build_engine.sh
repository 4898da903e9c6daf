#!/usr/bin/env bash
# Compile llama-cpp-python's source archive into a wheel: scripts/build_engine.sh FOLDER [native|avx2|baseline]
# native: for this CPU alone; avx2: for every x86-64 CPU with AVX2, FMA and F16C; baseline: for every CPU of this architecture.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$1
case ${2:-native} in
    native) flags="-DGGML_NATIVE=ON" ;;
    avx2) flags="-DGGML_NATIVE=OFF" ;;  # the engine's own default for a build that is not native
    baseline) flags="-DGGML_NATIVE=OFF -DGGML_SSE42=OFF -DGGML_AVX=OFF -DGGML_AVX2=OFF -DGGML_FMA=OFF -DGGML_F16C=OFF -DGGML_BMI2=OFF" ;;
    *) echo "$2 is no level: native, avx2 or baseline" >&2; exit 2 ;;
esac
command -v c++ >/dev/null || { echo "a C++ compiler is missing: install one, for example with apt-get install g++" >&2; exit 1; }
mkdir -p "$out"
log=$out/build.log
echo "compiling the engine once, about 5 to 10 minutes on two cores; log: $log" >&2
PATH="$PWD/.venv/bin:$PATH"
export PATH
export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(getconf _NPROCESSORS_ONLN)}
# engine.cmake lets only those of llamafile's kernels in that compute a row of a wide pass exactly as a pass of its own would,
# so matrix products give a tree what they give plain decoding, to the last bit; attention is summed so that the order of cells
# does not matter.
export CMAKE_ARGS="$flags -DLLAVA_BUILD=OFF -DGGML_LLAMAFILE=ON -DCMAKE_PROJECT_llama.cpp_INCLUDE=$PWD/scripts/engine.cmake"
# pip would reuse a wheel it built with other flags: no cache of its own.
partial=$(mktemp -d "$out/partial.XXXXXX")
trap 'rm -rf "$partial"' EXIT
show() { # a counter on a terminal, a line for every tenth file elsewhere
    while IFS= read -r line; do
        case $line in
            *"["[0-9]*/[0-9]*"] "*)
                step=${line#*[}
                step=${step%%]*}
                if [ -t 2 ]; then
                    printf '\rcompiling %s ' "$step" >&2
                else
                    case $step in *0/*) echo "compiling $step" >&2 ;; esac
                fi ;;
        esac
    done
    if [ -t 2 ]; then echo >&2; fi
}
if ! python -m pip --disable-pip-version-check --no-cache-dir wheel -v --no-deps --no-build-isolation --no-binary :all: \
        --require-hashes -r requirements/engine.txt -w "$partial" 2>&1 | tee "$log" | show; then
    tail -n 30 "$log" >&2
    echo "the engine did not compile: see $log" >&2
    exit 1
fi
mv "$partial"/*.whl "$out/"
