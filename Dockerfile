# Tidelog in a container:
#   docker build -t tidelog . && docker run -p 127.0.0.1:9092:9092 -v tidelog-data:/var/lib/tidelog tidelog
# Without a volume, a new container begins empty. A folder of the host, instead of a volume, must belong to user 10001.
# The broker advertises localhost. For clients on other machines, set the name that they use for it:
#   -e TIDELOG_ADVERTISED_LISTENERS=PLAINTEXT://broker.example.org:9092
# All versions of Python packages come from requirements.lock.
ARG PYTHON_IMAGE=python:3.13-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
WORKDIR /src
COPY requirements.lock ./
RUN awk '/^uv==/ {on=1} on {print} on && !/\\$/ {exit}' requirements.lock > /tmp/uv.lock \
 && pip install --no-cache-dir --disable-pip-version-check --require-hashes -r /tmp/uv.lock \
 && uv venv /opt/build \
 && uv pip install --no-cache --python /opt/build --constraint requirements.lock hatchling
# The code comes after the downloads, so a change of the code repeats no download.
COPY pyproject.toml ./
RUN uv venv /opt/tidelog \
 && uv pip install --no-cache --python /opt/tidelog --compile-bytecode --constraint requirements.lock \
    --requirements pyproject.toml
COPY README.md LICENSE ./
COPY protocol protocol
COPY broker broker
COPY client client
COPY pipeline pipeline
COPY cli cli
COPY tidelog tidelog
RUN /opt/build/bin/python -m hatchling build -t wheel -d /dist \
 && uv pip install --offline --no-cache --no-deps --python /opt/tidelog --compile-bytecode /dist/*.whl

FROM ${PYTHON_IMAGE}
RUN groupadd --gid 10001 tidelog \
 && useradd --uid 10001 --gid tidelog --no-create-home --home-dir /var/lib/tidelog --shell /usr/sbin/nologin tidelog \
 && install -d -o tidelog -g tidelog -m 0750 /var/lib/tidelog
COPY --from=build /opt/tidelog /opt/tidelog
# `docker stop` kills after 10 s. Before that, the broker must answer, flush and write its snapshots.
ENV PATH=/opt/tidelog/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    TIDELOG_LISTENERS=PLAINTEXT://0.0.0.0:9092 \
    TIDELOG_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092 \
    TIDELOG_DATA_DIR=/var/lib/tidelog \
    TIDELOG_SHUTDOWN_TIMEOUT_MS=5000
USER 10001:10001
WORKDIR /var/lib/tidelog
VOLUME /var/lib/tidelog
# Clients on the host, clients in the container's network (compose), metrics and health.
EXPOSE 9092 29092 9644
STOPSIGNAL SIGTERM
# bash needs 5 ms for this; a Python process every 5 s would take more than an idle broker. The start period is
# long because a broker that recovers many logs after a crash is not ready for a while.
HEALTHCHECK --interval=5s --timeout=3s --start-period=5m --retries=3 \
    CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/${TIDELOG_HTTP_PORT:-9644} && printf 'GET /readyz HTTP/1.0\\r\\n\\r\\n' >&3 && read -r answer <&3 && [[ $answer == *' 200 '* ]]"]
ENTRYPOINT ["tidelog", "serve"]
