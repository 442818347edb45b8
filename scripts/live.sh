#!/bin/sh
# Puts the real parts of live tests in place: `live.sh synapse`, `browser`, `tmux`, `clis`.
# Says plainly what is missing if it cannot.
set -eu
cd "$(dirname "$0")/.."

debian() { # debian COMMAND PACKAGE: install PACKAGE unless COMMAND is there
    command -v "$1" >/dev/null 2>&1 && return
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
        echo "live: $1 is missing; run as root: apt-get install $2" >&2
        exit 1
    fi
    echo "live: installing the Debian package $2"
    DEBIAN_FRONTEND=noninteractive
    export DEBIAN_FRONTEND
    apt-get install -y -q --no-install-recommends "$2" >/dev/null 2>&1 ||
        { apt-get update -q >/dev/null &&
            apt-get install -y -q --no-install-recommends "$2" >/dev/null; } ||
        { echo "live: apt-get could not install $2" >&2; exit 1; }
}

case ${1:-} in
synapse)
    venv=.venv-synapse
    echo "live: installing Synapse into $venv"
    .venv/bin/python -m venv --clear "$venv"
    "$venv/bin/python" -m pip --disable-pip-version-check install --quiet \
        --require-hashes -r requirements/synapse.txt
    ;;
browser)
    debian chromium chromium
    debian npm npm
    echo "live: installing axe-core"
    npm ci --prefix requirements/browser --silent --no-audit --no-fund --ignore-scripts
    ;;
tmux)
    # One test types in it and is skipped without it; all others need no terminal of their own.
    (debian tmux tmux) || echo "live: without tmux the script of the new user is skipped" >&2
    ;;
clis)
    # Nothing of a package runs when it is installed; the programs that tests start are in it as is.
    debian npm npm
    echo "live: installing command line agents"
    npm ci --prefix requirements/clis --silent --no-audit --no-fund --ignore-scripts
    ;;
*)
    echo "usage: scripts/live.sh synapse|browser|tmux|clis" >&2
    exit 2
    ;;
esac
