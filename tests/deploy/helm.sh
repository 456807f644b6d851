#!/bin/sh
# The Helm chart, rendered with several sets of values: its objects are looked at and its configuration is given to the daemon.
# By helm lint too where helm is there; Debian has none, so that the rendering is done by Go's templates with Sprig (helm/render.go).
# Exit 77: go, sprig or node is absent. Usage: helm.sh QUIRE_BINARY
set -eu
quire=$(realpath "$1")
here=$(realpath "$(dirname "$0")")
chart=$(realpath "$here/../../deploy/helm/quire")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if command -v helm >/dev/null; then
  helm lint --strict "$chart"
  helm template test "$chart" --set autoscaling.enabled=true --set serviceMonitor.enabled=true > /dev/null
fi
gocode=/usr/share/gocode
command -v go >/dev/null && command -v node >/dev/null && [ -d $gocode/src/github.com/Masterminds/sprig ] && [ -d $gocode/src/github.com/ghodss/yaml ] ||
  { echo "skipped: go, node or sprig is absent (Debian packages golang-go golang-github-masterminds-sprig-dev golang-github-ghodss-yaml-dev nodejs)"; exit 77; }
GO111MODULE=off GOPATH=$gocode GOCACHE="${GOCACHE:-$work/go-cache}" CGO_ENABLED=0 go build -o "$work/render" "$here/helm/render.go"
QUIRE_MODEL=$(realpath "$here/../../deploy/demo-model/quire-demo.gguf") node "$here/helm/chart.mjs" "$work/render" "$chart" "$work" "$quire"
