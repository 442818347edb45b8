#!/bin/sh
# Writes the lock files: every package with its hashes, for all platforms, without any index address.
set -eu
cd "$(dirname "$0")/.."

uv=.venv/bin/uv
[ -x "$uv" ] || uv=$(command -v uv) || {
    echo "lock: uv is needed and was not found; see https://docs.astral.sh/uv/" >&2
    exit 1
}

compile() { # compile OUTPUT ARGUMENTS...
    output=$1
    shift
    "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes \
        --no-header --no-annotate --output-file "$output" "$@"
    if grep -nE '://|^--|^ *-[ief] ' "$output"; then
        echo "lock: $output names an address or an option (above); it must hold names and hashes only" >&2
        exit 1
    fi
}

mkdir -p requirements
compile requirements/runtime.txt --extra all --group build pyproject.toml
compile requirements/dev.txt --extra all --group build --group dev \
    --constraint requirements/runtime.txt pyproject.toml
compile requirements/synapse.txt --group pyproject.toml:synapse
compile requirements/docs.txt --group pyproject.toml:docs
