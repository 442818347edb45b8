#!/bin/sh
# Builds wheel and sdist: `dist.sh FOLDER`. The same commit gives the same bytes on every machine.
#
# Times in the archives are that of the commit. What git does not track is left out, whatever lies
# about in the folder. Without git, as in an unpacked sdist, everything that is not ignored goes in.
set -eu
cd "$(dirname "$0")/.."

mkdir -p "${1:?usage: scripts/dist.sh FOLDER}"
folder=$(cd "$1" && pwd)
python=$PWD/.venv/bin/python
[ -x "$python" ] || python=${PYTHON:-python3}

# The folder may belong to somebody else, as in a container; it is only read.
ours() { git -c safe.directory="$PWD" "$@"; }

if [ "$(ours rev-parse --show-toplevel 2>/dev/null || :)" = "$(pwd -P)" ]; then
    : "${SOURCE_DATE_EPOCH:=$(ours log -1 --format=%ct)}"
    copy=$(mktemp -d)
    trap 'rm -rf "$copy"' EXIT
    ours ls-files -z | tar -c --null --files-from=- | tar -x -C "$copy"
    cd "$copy"
fi
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-1580601600}"  # as hatchling has it without one
# Nothing of this machine's settings for Python or hatchling.
env -u PYTHONPATH -u PYTHONHOME PYTHONDONTWRITEBYTECODE=1 \
    "$python" -m hatchling build --directory "$folder"
