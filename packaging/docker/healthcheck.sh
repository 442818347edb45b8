#!/bin/bash
# Asks the daemon whether it takes work, without a new interpreter every 30 seconds.
set -eu
port=${AGENTSUP_API__PORT:-8799}
exec 3<>"/dev/tcp/127.0.0.1/$port"
printf 'GET /readyz HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nConnection: close\r\n\r\n' "$port" >&3
read -r -t 5 _ code _ <&3
[ "$code" = 200 ]
