#!/usr/bin/env bash
# Make wheels that run on other machines: scripts/wheels.sh [FOLDER], by default dist; prints their paths.
# edgespec is for every Python from 3.11 on, the engine for every x86-64 CPU with AVX2, FMA, F16C and BMI2. Both need the glibc of
# their names (manylinux_2_34 is glibc 2.34), as this machine's compiler decides: for older systems make them on an older one.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-dist}
level=avx2
cache=${EDGESPEC_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/edgespec}
[ "$(uname -sm)" = "Linux x86_64" ] || { echo "wheels for other machines are made by Linux on x86-64: use one" >&2; exit 1; }
[ -x .venv/bin/python ] || { echo "run scripts/setup.sh first" >&2; exit 1; }
pip=(-m pip --disable-pip-version-check)
work=$(mktemp -d)
log=$work/log
trap 'status=$?; [ $status = 0 ] || cat "$log" >&2; rm -rf "$work"' EXIT
touch "$log"

# What this CPU can do does not matter to the engine made here, so it is not in the key.
key=$({ cat requirements/engine.txt requirements/build.txt scripts/*.cmake scripts/engine_*.cpp scripts/build_engine.sh
        echo "$level"; c++ --version; ldd --version; } | cksum | tr -d ' ')
built=$cache/wheels/$key
ls "$built"/llama_cpp_python-*.whl >/dev/null 2>&1 || scripts/build_engine.sh "$built" "$level"

# A version of its own, so that nobody takes it for the stock one. Of every library the one name stays by which it is loaded:
# wheels hold copies where the build made links, and a second copy in a process would have a state of its own.
label_engine() {
    local folder version labelled
    .venv/bin/python -m wheel unpack -d "$work" "$built"/llama_cpp_python-*.whl
    folder=$(echo "$work"/llama_cpp_python-*)
    version=${folder##*-}
    labelled=$version+edgespec.$level
    rm -rf "$folder"/{bin,include,lib}
    find "$folder/llama_cpp/lib" -name '*.so*' ! -name libllama.so ! -name 'libggml*.so.0' -delete
    sed -i "s/^__version__ = .*/__version__ = \"$labelled\"/" "$folder/llama_cpp/__init__.py"
    sed -i "0,/^Version: .*/s//Version: $labelled/" "$folder/llama_cpp_python-$version.dist-info/METADATA"
    mv "$folder/llama_cpp_python-$version.dist-info" "$folder/llama_cpp_python-$labelled.dist-info"
    .venv/bin/python -m wheel pack -d "$work" "$folder"
}

# By way of a source archive, so that nothing gets in that an earlier build left behind.
build_edgespec() {
    .venv/bin/python -c 'import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])' "$work"
    .venv/bin/python "${pip[@]}" wheel --no-deps --no-index --no-build-isolation -w "$work" "$work"/edgespec-*.tar.gz
}

# What a system may lack is put inside: libgomp (GPL with GCC's runtime exception), whose release the wheel's sboms/ names.
repair() {
    .venv/bin/python -m venv "$work/tools"
    "$work/tools/bin/python" "${pip[@]}" install --require-hashes -r requirements/wheels.txt
    PATH="$work/tools/bin:$PATH" auditwheel repair -w "$work/repaired" "$work"/*.whl
}

for step in label_engine build_edgespec repair; do
    "$step" >"$log" 2>&1
done
mkdir -p "$out"
rm -f "$out"/edgespec-*.whl "$out"/llama_cpp_python-*.whl
mv "$work"/repaired/*.whl "$out/"
ls "$out"/edgespec-*.whl "$out"/llama_cpp_python-*.whl
floor=$(ls "$out" | grep -o 'manylinux_[0-9]*_[0-9]*' | sort -V | tail -n 1)
floor=${floor#manylinux_}
echo "for Linux on x86-64 with AVX2, FMA, F16C and BMI2, and glibc ${floor/_/.} or newer" >&2
