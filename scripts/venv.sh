#!/bin/sh
# Creates .venv with the best Python found, and says plainly what is missing if it cannot.
# Usage: scripts/venv.sh [python]
set -eu
venv=.venv

if [ -x "$venv/bin/python" ] && "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    exit 0
fi

fits() { command -v "$1" >/dev/null 2>&1 && "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

python=
for candidate in ${1:+"$1"} python3.13 python3.12 python3.11 python3.14 python3 python; do
    if fits "$candidate"; then python=$candidate; break; fi
done
if [ -z "$python" ]; then
    echo "setup: no Python 3.11 or newer found; install one (Debian: apt-get install python3 python3-venv)" >&2
    echo "setup: or name it: make setup PYTHON=/path/to/python3" >&2
    exit 1
fi

if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "setup: installing the Debian package python$version-venv"
        apt-get install -y -q "python$version-venv" >/dev/null 2>&1 ||
            { apt-get update -q >/dev/null && apt-get install -y -q "python$version-venv" >/dev/null; } ||
            { echo "setup: apt-get could not install python$version-venv" >&2; exit 1; }
    else
        echo "setup: $python cannot create virtual environments; run as root: apt-get install python$version-venv" >&2
        exit 1
    fi
fi

echo "setup: creating $venv with $("$python" --version)"
"$python" -m venv --clear "$venv"
