# Quire as a container: built on Debian 12, shipped as one binary, the libraries it needs and the demo model, nothing else.
#   docker build -t quire .
#   docker run --read-only -p 8080:8080 -v /models:/models:ro quire --model /models/my.gguf
# For both kinds of machine, cross-built, without emulation: docker build --platform linux/amd64,linux/arm64 -t quire .
ARG BASE=debian:bookworm

FROM --platform=$BUILDPLATFORM ${BASE} AS build
ARG TARGETARCH
WORKDIR /src
COPY Makefile ./
COPY deploy/install-packages.sh deploy/packages.sh deploy/heartbeat.sh deploy/
COPY deploy/arm64 deploy/arm64
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends make && make packages-for TARGETARCH=$TARGETARCH
COPY . .
RUN make rootfs TARGETARCH=$TARGETARCH ROOTFS=/rootfs

# The same with the CUDA backend: docker build --target cuda -t quire:cuda . && docker run --gpus all -p 8080:8080 quire:cuda
# It serves on the processor where there is no GPU.
FROM build AS build-cuda
ARG CUDA
ARG CUDA_REPOSITORY
RUN deploy/install-cuda.sh
RUN make build-cuda && strip build/cuda/quire && deploy/container/collect-rootfs.sh build/cuda/quire /rootfs-cuda

FROM scratch AS cuda
COPY --from=build-cuda /rootfs-cuda/ /
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 65532:65532
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s CMD ["/usr/bin/quire", "probe", "http://127.0.0.1:8080/readyz"]
ENTRYPOINT ["/usr/bin/quire", "serve", "--host", "0.0.0.0"]
CMD ["--model", "/usr/share/quire/quire-demo.gguf"]

FROM scratch
COPY --from=build /rootfs/ /
USER 65532:65532
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s CMD ["/usr/bin/quire", "probe", "http://127.0.0.1:8080/readyz"]
ENTRYPOINT ["/usr/bin/quire", "serve", "--host", "0.0.0.0"]
CMD ["--model", "/usr/share/quire/quire-demo.gguf"]
