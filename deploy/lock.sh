#!/bin/sh
# Writes requirements/bundle.txt again: everything that a site installs, with the versions of ci.txt and flare.txt and the
# SHA-256 of every file of these versions on the index, for all kinds of machines. Needs uv:  deploy/lock.sh
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
pins=$(mktemp)
trap 'rm -f "$pins"' EXIT
grep -hv '^#' "$root/requirements/ci.txt" "$root/requirements/flare.txt" > "$pins"
cd "$root"
{
    echo "# What a site installs beside Zerosum, with FLARE and the page, pinned with digests. Made by deploy/lock.sh:"
    echo "#   pip install --require-hashes -r requirements/bundle.txt"
    uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
        --constraint "$pins" --extra nvflare --extra watch pyproject.toml
} > requirements/bundle.txt.new
mv requirements/bundle.txt.new requirements/bundle.txt
echo "$(grep -c '==' requirements/bundle.txt) packages"
