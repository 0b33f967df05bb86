# Tidelog in a container: docker build -t tidelog . && docker run -p 127.0.0.1:9092:9092 tidelog
# Clients are told to use localhost; from elsewhere, run it with -e TIDELOG_ADVERTISED_HOST=their name for it.
# Every version, with its hash, comes from requirements.lock, as everywhere else.
ARG PYTHON_IMAGE=python:3.13-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
WORKDIR /src
COPY requirements.lock ./
RUN awk '/^uv==/ {on=1} on {print} on && !/\\$/ {exit}' requirements.lock > /tmp/uv.lock \
 && pip install --no-cache-dir --disable-pip-version-check --require-hashes -r /tmp/uv.lock \
 && uv venv /opt/build \
 && uv pip install --no-cache --python /opt/build --constraint requirements.lock hatchling
COPY pyproject.toml README.md LICENSE ./
COPY protocol protocol
COPY broker broker
COPY client client
COPY pipeline pipeline
COPY cli cli
RUN /opt/build/bin/python -m hatchling build -t wheel -d /dist \
 && uv venv /opt/tidelog \
 && uv pip install --no-cache --python /opt/tidelog --compile-bytecode --constraint requirements.lock /dist/*.whl

FROM ${PYTHON_IMAGE}
RUN groupadd --gid 10001 tidelog \
 && useradd --uid 10001 --gid tidelog --no-create-home --home-dir /var/lib/tidelog --shell /usr/sbin/nologin tidelog \
 && install -d -o tidelog -g tidelog -m 0750 /var/lib/tidelog
COPY --from=build /opt/tidelog /opt/tidelog
ENV PATH=/opt/tidelog/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    TIDELOG_ADVERTISED_HOST=localhost \
    TIDELOG_DATA_DIR=/var/lib/tidelog
USER tidelog
WORKDIR /var/lib/tidelog
VOLUME /var/lib/tidelog
# Clients on the host, clients in the container's network (compose), metrics and health.
EXPOSE 9092 29092 9644
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=15s --retries=3 \
    CMD ["/opt/tidelog/bin/python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:9644/readyz', timeout=2)"]
ENTRYPOINT ["tidelog", "serve", "--host", "0.0.0.0"]
