# Build:  docker build -t agentsup .                      the daemon
#         docker build -t agentsup-clis --target clis .   with coding agents as engines
# Run:    docker compose up -d    (compose.yaml: one port of this machine, least rights)
#
# tini is process 1, so it reaps what engines leave behind and hands SIGTERM on. In the container the
# API listens on all addresses; compose.yaml publishes it to this machine alone.

ARG BASE=python:3.13-slim

FROM ${BASE} AS build
WORKDIR /src
RUN python -m venv /opt/agentsup
COPY requirements/runtime.txt requirements/
RUN /opt/agentsup/bin/pip install --no-cache-dir --require-hashes -r requirements/runtime.txt
COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY agentsup agentsup
RUN /opt/agentsup/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM ${BASE} AS daemon
RUN apt-get update \
    && apt-get install -y --no-install-recommends tini \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 1000 --create-home agentsup \
    && install -d -o agentsup -g agentsup -m 700 /data
COPY --from=build /opt/agentsup /opt/agentsup
COPY packaging/docker/entrypoint.sh packaging/docker/healthcheck.sh /opt/agentsup/bin/
ENV PATH=/opt/agentsup/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    AGENTSUP_HOME=/data \
    AGENTSUP_API__BIND=0.0.0.0
USER agentsup
WORKDIR /data
VOLUME /data
EXPOSE 8799
STOPSIGNAL SIGTERM
# Readiness may take as long as main's start; afterwards a daemon that does no work is unhealthy.
HEALTHCHECK --interval=30s --timeout=10s --start-period=150s --retries=3 CMD ["healthcheck.sh"]
ENTRYPOINT ["tini", "--", "entrypoint.sh"]
CMD ["run"]

FROM daemon AS clis
USER root
RUN apt-get update \
    && apt-get install -y --no-install-recommends npm \
    && rm -rf /var/lib/apt/lists/*
COPY requirements/clis/package.json requirements/clis/package-lock.json /opt/clis/
RUN npm ci --prefix /opt/clis --no-audit --no-fund --ignore-scripts
ENV PATH=/opt/clis/node_modules/.bin:$PATH
USER agentsup

FROM daemon
