# Two commands do everything on a fresh Debian 12: `make run` and `make test`. Each installs what is missing, then builds.
PACKAGES := build-essential cmake ninja-build ccache pkg-config libboost1.81-dev libssl-dev nlohmann-json3-dev libspdlog-dev \
  libcli11-dev libyaml-cpp-dev libpcre2-dev libutf8proc-dev libxxhash-dev libexpected-dev libnuma-dev prometheus-cpp-dev zlib1g-dev
TEST_PACKAGES := catch2 clang-format clang-tidy nodejs npm curl
