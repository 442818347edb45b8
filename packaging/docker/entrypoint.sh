#!/bin/sh
# The entry of the image: makes the home at its first start, then becomes the given command.
set -eu
if [ "${1:-run}" = run ] && [ ! -e "$AGENTSUP_HOME/config.toml" ]; then
    agentsup init
fi
exec agentsup "$@"
