# Quire as a container: built on Debian 12, shipped as one binary, the libraries it needs and the demo model, nothing else.
#   docker build -t quire .
#   docker run --read-only -p 8080:8080 -v /models:/models:ro quire --model /models/my.gguf
ARG BASE=debian:bookworm

FROM ${BASE} AS build
WORKDIR /src
COPY Makefile ./
COPY deploy/install-packages.sh deploy/heartbeat.sh deploy/
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends make && make packages
COPY . .
RUN make build && strip build/release/quire && deploy/container/collect-rootfs.sh build/release/quire /rootfs

FROM scratch
COPY --from=build /rootfs/ /
USER 65532:65532
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s CMD ["/usr/bin/quire", "probe", "http://127.0.0.1:8080/readyz"]
ENTRYPOINT ["/usr/bin/quire", "serve", "--host", "0.0.0.0"]
CMD ["--model", "/usr/share/quire/quire-demo.gguf"]
