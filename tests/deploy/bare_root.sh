#!/bin/sh
# Makes a bare root of a distribution in a folder, unless it is there, and mounts what programs need: bare_root.sh SYSTEM FOLDER
# [PACKAGE...]. bare_root.sh --end FOLDER unmounts. Needs root, debootstrap and the network. ARCH=arm64 makes one of another architecture,
# whose programs the kernel runs by qemu-user-static; that stays registered (as it is where systemd or binfmt-support runs).
set -eu
if [ "$1" = --end ]; then
  for folder in proc sys dev; do ! mountpoint -q "$2/$folder" || umount -lR "$2/$folder"; done
  exit 0
fi
system=$1
root=$2
shift 2
case $system in
  debian-11) suite=bullseye ;;
  debian-12) suite=bookworm ;;
  debian-13) suite=trixie ;;
  ubuntu-22.04) suite=jammy ;;
  ubuntu-24.04) suite=noble ;;
  *) echo "no root of $system can be made: debian-11, -12, -13, ubuntu-22.04 and -24.04 are known" >&2; exit 2 ;;
esac
here=$(dpkg --print-architecture)
arch=${ARCH:-$here}
if [ "$arch" != "$here" ]; then
  [ "$arch" = arm64 ] || { echo "no root of $arch can be made on $here" >&2; exit 2; }
  programs=/proc/sys/fs/binfmt_misc
  [ -e $programs/register ] || mount -t binfmt_misc binfmt_misc $programs
  [ -e $programs/qemu-aarch64 ] || cat /usr/lib/binfmt.d/qemu-aarch64.conf > $programs/register
fi
if [ ! -e "$root/etc/os-release" ]; then
  mkdir -p "$root"
  debootstrap --arch="$arch" --variant=minbase --include="$(echo ca-certificates "$@" | tr ' ' ,)" "$suite" "$root"
fi
for folder in proc sys dev; do
  mountpoint -q "$root/$folder" || { mount --rbind "/$folder" "$root/$folder"; mount --make-rslave "$root/$folder"; }
done
# Names and authorities that this machine's network needs, a proxy's for example.
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
mkdir -p "$root/etc/ssl/certs"
cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
