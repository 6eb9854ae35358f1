#!/bin/sh
# All wheels for a machine without a network, of this system's kind and Python: deploy/bundle.sh [FOLDER]
# There:  python3 -m venv /opt/zerosum && /opt/zerosum/bin/pip install --no-index --find-links FOLDER 'zerosum[nvflare]'
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
out=${1:-$root/build/bundle}
python=${PYTHON:-python3}
rm -rf "$out" "$root"/build/lib* "$root"/build/bdist.*  # what an older build left would be packed too
mkdir -p "$out"
pins=$(mktemp)
trap 'rm -f "$pins"' EXIT
grep -hv '^#' "$root/requirements/ci.txt" "$root/requirements/flare.txt" > "$pins"
# `wheel` and not `download`: pyhocon, which FLARE needs, comes as source only and is built here.
"$python" -m pip wheel --quiet --disable-pip-version-check --constraint "$pins" --wheel-dir "$out" "$root[nvflare,watch]"
(cd "$out" && sha256sum -- *.whl > SHA256SUMS)
echo "$(ls "$out" | grep -c '\.whl$') wheels in $out"
