#!/bin/sh
# All wheels for a machine without a network, of this system's kind and Python: deploy/bundle.sh [FOLDER]
# There:  python3 -m venv /opt/zerosum
#         /opt/zerosum/bin/pip install --no-index --find-links FOLDER --require-hashes -r FOLDER/requirements.txt
# FOLDER/sbom.json lists what is in it (CycloneDX).
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
out=${1:-$root/build/bundle}
python=${PYTHON:-python3}
rm -rf "$out" "$root"/build/lib* "$root"/build/bdist.*  # what an older build left would be packed too
mkdir -p "$out"
# `wheel` and not `download`: pyhocon, which FLARE needs, comes as source only and is built here. Every file from the
# index must have a digest of the lock.
"$python" -m pip wheel --quiet --disable-pip-version-check --require-hashes --wheel-dir "$out" \
    -r "$root/requirements/bundle.txt"
"$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$out" "$root"
"$python" "$root/deploy/sbom.py" "$out"
(cd "$out" && sha256sum -- *.whl requirements.txt sbom.json > SHA256SUMS)
echo "$(ls "$out" | grep -c '\.whl$') wheels in $out"
