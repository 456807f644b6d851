#!/bin/sh
# Prints the packages that this system needs: packages.sh build|test|portable|cross|arm64, or those whose text is in a binary:
# compiled-in, and compiled-in-portable. `build` is `core`, which builds with -DQUIRE_MODULES= too, and those of fleet, images, page and
# terminal; the other modules need none. The names differ between distributions; an unknown one is taken for the newest that is known.
# SYSTEM=debian-13 asks for another system's list.
# shellcheck disable=SC2086 # lists of words
set -eu
if [ -z "${SYSTEM:-}" ]; then
  # shellcheck disable=SC1091 # a file of the system
  SYSTEM=$(. /etc/os-release 2>/dev/null; echo "${ID:-debian}-${VERSION_ID:-13}")
fi
# Libraries whose text becomes part of the binary, though it links to no library of theirs.
headers="nlohmann-json3-dev libspdlog-dev libcli11-dev libexpected-dev"
page="libjs-marked node-dompurify libjs-highlight.js libjs-katex libjs-chart.js"
case $SYSTEM in
  debian-12)  # Boost 1.74, its usual version, has no Boost.URL
    boost=libboost1.81-dev compiler=12 checks="clang-format clang-tidy-16 chromium" ;;
  ubuntu-*)  # Chromium is no package there; the tests of the page skip by name
    boost="libboost-dev libboost-url-dev" compiler=13 checks="clang-format clang-tidy" ;;
  *)
    boost="libboost-dev libboost-url-dev" compiler=14 checks="clang-format clang-tidy chromium" ;;
esac
libraries="libssl-dev libyaml-cpp-dev libpcre2-dev libutf8proc-dev libxxhash-dev libnuma-dev zlib1g-dev"
fleet="libhiredis-dev libzmq3-dev cppzmq-dev"
images="libpng-dev libjpeg-dev libwebp-dev libgif-dev"
terminal="libedit-dev"
core="build-essential ca-certificates cmake ninja-build ccache pkg-config $boost $headers $libraries"
linked="$libraries $fleet $images $terminal"  # of the modules, those that are linked
portable="libsodium-dev libncurses-dev libbsd-dev libmd-dev"  # static libraries that others refer to
case ${1:-} in
  core) echo $core ;;
  fleet) echo $fleet ;;
  images) echo $images ;;
  page) echo $page ;;
  terminal) echo $terminal ;;
  build) echo $core $fleet $images $page $terminal ;;
  test) echo catch2 $checks file git curl procps openssl python3 systemd haproxy prometheus redis-server python3-zmq python3-msgpack \
    python3-jsonschema python3-yaml ;;
  portable) echo $portable ;;
  cross) echo g++-$compiler-aarch64-linux-gnu qemu-user-static ;;
  arm64) echo libc6-dev libstdc++-$compiler-dev $boost $headers $linked $portable catch2 ;;
  compiled-in) echo $boost $headers cppzmq-dev $page ;;
  compiled-in-portable) echo $boost $headers $linked $page $portable libfmt-dev libstdc++6 ;;
  *) echo "usage: packages.sh build|core|fleet|images|page|terminal|test|portable|cross|arm64|compiled-in|compiled-in-portable" >&2; exit 2 ;;
esac
