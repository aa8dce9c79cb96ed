#!/usr/bin/env bash
# Proves that examples/quickstart.sh and tests/run.sh work from nothing: makes a minimal Debian 12
# in a folder, puts the last commit into it, and runs both there, twice, from another directory and
# in a path with a space. Needs root, debootstrap, git and Debian's archive.
#
#   bare_debian.sh FOLDER      FOLDER is made where missing; remove it for a start from nothing
#
# DEBIAN_MIRROR names another archive. Not a part of the tests: it takes root and a while.
set -euo pipefail
(($# == 1)) || { echo "usage: bare_debian.sh FOLDER" >&2; exit 2; }
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bare=$(realpath -m "$1")
((EUID == 0)) || { echo "bare_debian.sh: needs root, for debootstrap and chroot" >&2; exit 4; }
for program in debootstrap git; do
  command -v "$program" >/dev/null || { echo "bare_debian.sh: needs $program" >&2; exit 4; }
done

if [[ ! -e "$bare/etc/debian_version" ]]; then
  debootstrap --variant=minbase bookworm "$bare" "${DEBIAN_MIRROR:-http://deb.debian.org/debian}"
fi
# The way to the archive is the host's.
apt-config dump Acquire | grep -E '^Acquire::(https?|Check)[-:A-Za-z0-9.]* ".+";$' \
  >"$bare/etc/apt/apt.conf.d/99host" || true
cp /etc/resolv.conf /etc/hosts "$bare/etc/"

copy="/root/zero sim"
rm -rf "${bare:?}$copy"
mkdir -p "$bare$copy"
git -C "$root" archive HEAD | tar -x -C "$bare$copy"

mounted=()
unmount() {
  for ((i = ${#mounted[@]} - 1; i >= 0; i--)); do umount "${mounted[i]}"; done
}
trap unmount EXIT
for folder in proc dev; do
  mount --bind "/$folder" "$bare/$folder"
  mounted+=("$bare/$folder")
done

times=()
inside() {
  local start=$SECONDS
  echo "== $*"
  chroot "$bare" env -i HOME=/root LANG=C.UTF-8 CI=true \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    bash -c 'cd /; exec bash "$@"' bash "$@" </dev/null
  times+=("$(printf '%5d s  %s' $((SECONDS - start)) "${*##*/}")")
}
inside "$copy/examples/quickstart.sh"
inside "$copy/examples/quickstart.sh"
inside "$copy/tests/run.sh"
inside "$copy/tests/run.sh"
printf '%s\n' "${times[@]}"
