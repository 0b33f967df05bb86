# Tidelog in a container:
#   docker build -t tidelog . && docker run -p 127.0.0.1:9092:9092 -v tidelog-data:/var/lib/tidelog tidelog
# Without a volume, a new container begins empty. A folder of the host, instead of a volume, must belong to user 10001.
# The broker advertises localhost. For clients on other machines, set the name that they use for it:
#   -e TIDELOG_ADVERTISED_LISTENERS=PLAINTEXT://broker.example.org:9092
# With the jobs of tidelog pipeline, Spark and Java:
#   docker build --build-arg EXTRA=pipeline -t tidelog:pipeline .
# All versions of Python packages come from requirements.lock.
ARG DEBIAN_IMAGE=debian:13-slim

FROM ${DEBIAN_IMAGE} AS python
# ca-certificates brings openssl, with which deploy/secure makes its certificates.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates python3 tzdata \
 && rm -rf /var/lib/apt/lists/* /var/cache/* /var/log/*

FROM python AS build
RUN apt-get update && apt-get install --yes --no-install-recommends binutils python3-venv
WORKDIR /src
COPY requirements.lock ./
# uv trusts what the image trusts, also where a proxy answers for the registry.
ENV UV_NATIVE_TLS=1 UV_NO_CACHE=1 UV_COMPILE_BYTECODE=1
RUN awk '/^uv==/ {on=1} on {print} on && !/\\$/ {exit}' requirements.lock > /tmp/uv.lock \
 && python3 -m venv /opt/uv \
 && /opt/uv/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r /tmp/uv.lock \
 && ln -s /opt/uv/bin/uv /usr/local/bin/uv \
 && uv venv /opt/build \
 && uv pip install --python /opt/build --constraint requirements.lock hatchling
# The code comes after the downloads, so a change of the code repeats no download.
COPY pyproject.toml ./
ARG EXTRA=
RUN uv venv /opt/tidelog \
 && uv pip install --python /opt/tidelog --constraint requirements.lock --requirements pyproject.toml ${EXTRA:+--extra $EXTRA}
COPY README.md LICENSE ./
COPY tidelog tidelog
RUN /opt/build/bin/python -m hatchling build -t wheel -d /dist \
 && uv pip install --offline --no-deps --python /opt/tidelog /dist/*.whl
# Debug symbols are a third of the packages. fastavro reads without its compiled half, and the broker uses only the other.
RUN cd /opt/tidelog && rm -rf .lock .gitignore CACHEDIR.TAG bin/*activate* bin/pydoc.bat lib/python*/site-packages/fastavro/*.so \
 && find . -name '*.so' -exec strip --strip-unneeded {} +

# Nothing is installed in a container that runs: the packages that install others go, with perl, which only they use.
# gconv has character sets of C programs; Python has its own.
FROM python AS system
RUN groupadd --gid 10001 tidelog \
 && useradd --uid 10001 --gid tidelog --no-create-home --home-dir /var/lib/tidelog --shell /usr/sbin/nologin tidelog \
 && install -d -o tidelog -g tidelog -m 0750 /var/lib/tidelog /etc/tidelog \
 && dpkg --purge --force-remove-essential --force-remove-protected --force-depends \
    apt debconf debian-archive-keyring libapt-pkg7.0 perl-base sqv \
 && rm -rf /etc/apt /var/lib/apt /var/cache/* /var/log/* /usr/lib/*/gconv /usr/lib/python3*/test

# One layer, so that what was removed takes no place.
FROM scratch
COPY --from=system / /
COPY --from=build /opt/tidelog /opt/tidelog
# `docker stop` kills after 10 s. Before that, the broker must answer, flush and write its snapshots.
ENV PATH=/opt/tidelog/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    TIDELOG_LISTENERS=PLAINTEXT://0.0.0.0:9092 \
    TIDELOG_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092 \
    TIDELOG_DATA_DIR=/var/lib/tidelog \
    TIDELOG_SHUTDOWN_TIMEOUT_MS=5000
ARG REVISION=
LABEL org.opencontainers.image.title=Tidelog \
      org.opencontainers.image.description="A broker with Kafka's protocol that stores each acknowledged record once and in order" \
      org.opencontainers.image.version=0.1.0 \
      org.opencontainers.image.revision=$REVISION \
      org.opencontainers.image.licenses=Apache-2.0 \
      org.opencontainers.image.base.name=docker.io/library/debian:13-slim
USER 10001:10001
WORKDIR /var/lib/tidelog
VOLUME /var/lib/tidelog
# Clients on the host, clients in the container's network (compose), metrics and health.
EXPOSE 9092 29092 9644
STOPSIGNAL SIGTERM
# A start is seen after one interval; each check takes about 50 ms of the engine and 5 ms of bash. The start period is
# long because a broker that recovers many logs after a crash is not ready for a while.
HEALTHCHECK --interval=2s --timeout=3s --start-period=5m --retries=3 \
    CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/${TIDELOG_HTTP_PORT:-9644} && printf 'GET /readyz HTTP/1.0\\r\\n\\r\\n' >&3 && read -r answer <&3 && [[ $answer == *' 200 '* ]]"]
ENTRYPOINT ["tidelog"]
CMD ["serve"]
