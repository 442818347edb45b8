# Build:  docker build -t agentsup .
# Run:    docker run -d --name agentsup --restart unless-stopped -v agentsup:/data agentsup
# Chat:   docker exec -it agentsup agentsup chat
#
# --restart matters: exit code 42 asks whoever started the daemon to start it again. tini is process
# 1, so it reaps what engines leave behind and hands SIGTERM on. The API listens on loopback inside
# the container; see api.bind in the documentation before you publish it.

FROM python:3.13-slim AS build
WORKDIR /src
RUN python -m venv /opt/agentsup
COPY requirements/runtime.txt requirements/
RUN /opt/agentsup/bin/pip install --no-cache-dir --require-hashes -r requirements/runtime.txt
COPY pyproject.toml README.md LICENSE ./
COPY agentsup agentsup
RUN /opt/agentsup/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.13-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends tini \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 1000 --create-home agentsup \
    && install -d -o agentsup -g agentsup -m 700 /data
COPY --from=build /opt/agentsup /opt/agentsup
ENV PATH=/opt/agentsup/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    AGENTSUP_HOME=/data
USER agentsup
WORKDIR /data
VOLUME /data
STOPSIGNAL SIGTERM
# Readiness may take as long as main's start; afterwards a daemon that does no work is unhealthy.
HEALTHCHECK --interval=30s --timeout=10s --start-period=150s --retries=3 \
    CMD ["agentsup", "status"]
ENTRYPOINT ["tini", "--", "agentsup"]
CMD ["run"]
