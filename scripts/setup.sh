#!/usr/bin/env bash
# Set up edgespec in .venv: pinned packages, and the engine compiled once for this machine.
# usage: scripts/setup.sh [run|dev]
set -euo pipefail
cd "$(dirname "$0")/.."
kind=${1:-run}
engine=llama_cpp_python-0.3.36
cache=${EDGESPEC_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/edgespec}

find_python() {
    for name in python3.13 python3.12 python3.11 python3; do
        if "$name" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$name"
            return
        fi
    done
    echo "edgespec needs Python 3.11 or newer with venv: install it, for example with apt-get install python3-venv" >&2
    exit 1
}

# A wheel built here may crash elsewhere: it is keyed by source, build flags and what this CPU can do.
wheel_key() {
    { cat requirements/engine.txt scripts/engine.cmake scripts/engine_sgemm.cpp scripts/build_engine.sh
      uname -sm
      grep -m1 -E '^(flags|Features)' /proc/cpuinfo 2>/dev/null || sysctl -n machdep.cpu 2>/dev/null || true
    } | cksum | tr -d ' '
}

[ -x .venv/bin/python ] || "$(find_python)" -m venv .venv
stamp=.venv/.edgespec-$kind-$(cat requirements/*.txt pyproject.toml edgespec/engines/llamacpp/_filter.c | cksum | tr -d ' ')-$(wheel_key)
[ -e "$stamp" ] && exit 0

pip=(.venv/bin/python -m pip --disable-pip-version-check)
echo "installing pinned packages into .venv" >&2
"${pip[@]}" install -q --require-hashes -r requirements/build.txt
"${pip[@]}" install -q --require-hashes -r "requirements/$kind.txt"

wheels=$cache/wheels/$(wheel_key)
if ! ls "$wheels/$engine"*.whl >/dev/null 2>&1; then
    scripts/build_engine.sh "$wheels"
fi
"${pip[@]}" install -q --no-deps --force-reinstall "$wheels/$engine"*.whl
"${pip[@]}" install -q --no-deps --no-build-isolation -e .

# The page is tested in a real browser; its tests are skipped, saying so, where there is none.
if [ "$kind" = dev ] && ! command -v chromium >/dev/null && command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    echo "installing chromium for the tests of the page" >&2
    apt-get install -y -q chromium >/dev/null 2>&1 || echo "chromium cannot be installed: the page is not tested" >&2
fi
touch "$stamp"
