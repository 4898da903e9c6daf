#!/usr/bin/env bash
# Set up edgespec in .venv: pinned packages, and the engine compiled once for this machine and tested on it.
# usage: scripts/setup.sh [run|dev]
# EDGESPEC_ENGINE=native|avx2|baseline chooses how the engine is built; without it the first of these that passes its self-test is used.
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

case $(uname -m) in
    x86_64 | amd64) levels=${EDGESPEC_ENGINE:-native avx2 baseline} ;;
    *) levels=${EDGESPEC_ENGINE:-native baseline} ;;
esac

# A wheel built here may crash elsewhere: it is keyed by source, build flags and what this CPU can do.
wheel_key() {
    { cat requirements/engine.txt scripts/*.cmake scripts/engine_*.cpp scripts/build_engine.sh
      echo "$1"
      uname -sm
      grep -m1 -E '^(flags|Features)' /proc/cpuinfo 2>/dev/null || sysctl -n machdep.cpu 2>/dev/null || true
    } | cksum | tr -d ' '
}

[ -x .venv/bin/python ] || "$(find_python)" -m venv .venv
stamp=.venv/.edgespec-$kind-$(cat requirements/*.txt pyproject.toml setup.py edgespec/engines/llamacpp/_*.[ch] | cksum | tr -d ' ')-$(wheel_key "$levels")
[ -e "$stamp" ] && exit 0

pip=(.venv/bin/python -m pip --disable-pip-version-check)
echo "installing pinned packages into .venv" >&2
"${pip[@]}" install -q --require-hashes -r requirements/build.txt
"${pip[@]}" install -q --require-hashes -r "requirements/$kind.txt"

"${pip[@]}" install -q --no-deps --no-build-isolation -e .

# Where a build fails its self-test the next is tried, which is for more CPUs and slower.
install_engine() {
    for level in $levels; do
        wheels=$cache/wheels/$(wheel_key "$level")
        ls "$wheels/$engine"*.whl >/dev/null 2>&1 || scripts/build_engine.sh "$wheels" "$level"
        "${pip[@]}" install -q --no-deps --force-reinstall "$wheels/$engine"*.whl
        .venv/bin/edgespec doctor --engine >&2 && return
        echo "the engine built for $level does not work on this machine" >&2
    done
    echo "no build of the engine works on this machine: report it with the log in $cache/wheels" >&2
    exit 6
}
install_engine

# The page is tested in a real browser; its tests are skipped, saying so, where there is none.
if [ "$kind" = dev ] && ! command -v chromium >/dev/null && command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    echo "installing chromium for the tests of the page" >&2
    apt-get install -y -q chromium >/dev/null 2>&1 || echo "chromium cannot be installed: the page is not tested" >&2
fi
touch "$stamp"
