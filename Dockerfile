# The server, and the demonstration that asks it the first question.
#
#   docker build --tag shardcall:dev .
#   docker run --rm --init --publish 127.0.0.1:8470:8470 --env SHARDCALL_TOKEN="$(openssl rand -hex 32)" \
#       shardcall:dev serve --host 0.0.0.0 --insecure-allow-remote
#
# It runs as a user without rights, and writes to /tmp, /var/cache/shardcall (compiled programs) and /var/lib/shardcall
# (tokens): with --read-only, give it --tmpfs /tmp and a volume for each of the others. With TLS and a token file, as for
# other machines: docker-compose.yml.
#
# For NVIDIA GPUs, which needs the NVIDIA container toolkit (this image has been built, and not yet run):
#
#   docker build --build-arg JAX=cuda13 --tag shardcall:cuda13 .
#   docker run --rm --init --gpus all ... shardcall:cuda13 serve --platform gpu ...

FROM python:3.11-slim-bookworm AS dependencies
# JAX for CPUs, or cuda13.
ARG JAX=
COPY requirements/server.txt requirements/server-cuda13.txt ./
RUN python -m venv --without-pip /opt/shardcall && \
    python -m pip --python /opt/shardcall/bin/python install --no-cache-dir --require-hashes \
        --requirement "server${JAX:+-$JAX}.txt"

FROM python:3.11-slim-bookworm AS build
WORKDIR /src
COPY requirements/build.txt .
RUN python -m pip install --no-cache-dir --require-hashes --requirement build.txt
COPY pyproject.toml README.md LICENSE ./
COPY client client
COPY server server
RUN python -m hatchling build --target wheel --directory /wheel

FROM python:3.11-slim-bookworm
RUN groupadd --gid 10001 shardcall && \
    useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin shardcall
COPY --from=dependencies /opt/shardcall /opt/shardcall
COPY --from=build /wheel /wheel
RUN python -m pip --python /opt/shardcall/bin/python install --no-cache-dir --no-deps --no-index /wheel/*.whl
COPY examples /app/examples
# What is mounted there belongs to this user too: volumes begin as copies of these folders.
RUN install --directory --owner 10001 --group 10001 --mode 0700 /trust/authority /trust/server /trust/client \
        /trust/hosts /trust/tokens /var/cache/shardcall /var/lib/shardcall
ENV PATH=/opt/shardcall/bin:$PATH \
    XDG_CACHE_HOME=/var/cache \
    XDG_STATE_HOME=/var/lib \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
WORKDIR /app
USER 10001:10001
EXPOSE 8470 8471
HEALTHCHECK --interval=10s --timeout=10s --start-period=60s --retries=3 CMD ["shardcall", "health"]
ENTRYPOINT ["shardcall"]
# On the container's own loopback: who lets others in says so, as in the command above.
CMD ["serve"]
