# Tidelog in a container:
#   docker build -t tidelog . && docker run -p 127.0.0.1:9092:9092 -v tidelog-data:/var/lib/tidelog tidelog
# Without a volume of that name a new container begins empty. A folder of the host in its place must belong to
# 10001. Clients are told to use localhost; from elsewhere, run it with
#   -e TIDELOG_ADVERTISED_LISTENERS=PLAINTEXT://their.name.for.it:9092
# Every version, with its hash, comes from requirements.lock, as everywhere else.
ARG PYTHON_IMAGE=python:3.13-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
WORKDIR /src
COPY requirements.lock ./
RUN awk '/^uv==/ {on=1} on {print} on && !/\\$/ {exit}' requirements.lock > /tmp/uv.lock \
 && pip install --no-cache-dir --disable-pip-version-check --require-hashes -r /tmp/uv.lock \
 && uv venv /opt/build \
 && uv pip install --no-cache --python /opt/build --constraint requirements.lock hatchling
# What changes with every edit comes behind what is downloaded.
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
# `docker stop` kills after 10 s, by when the broker must have answered, flushed and left its marker.
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
# bash asks in 5 ms; another Python every 5 s would cost more than an idle broker. After a crash with much to
# recover the broker is not ready for a while, which must not count against it.
HEALTHCHECK --interval=5s --timeout=3s --start-period=5m --retries=3 \
    CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/${TIDELOG_HTTP_PORT:-9644} && printf 'GET /readyz HTTP/1.0\\r\\n\\r\\n' >&3 && read -r answer <&3 && [[ $answer == *' 200 '* ]]"]
ENTRYPOINT ["tidelog", "serve"]
