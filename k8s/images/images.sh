#!/usr/bin/env bash
# Makes the container images from the programs of a finished build; `./run images` calls it.
#   images.sh build NAME...          NAME: worker, aggregator, redis, operator, worker-cuda
#   images.sh push REGISTRY [BUILDAH OPTION...]
# An image is programs, the shared libraries that they load, and a handful of files in /etc. They
# are gathered from this machine; workers also get a model. Nothing is downloaded and no daemon
# runs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export STORAGE_DRIVER=vfs

# Without root: a user namespace in which files can belong to root and to 65532.
if [ "$(id -u)" != 0 ]; then exec buildah unshare "$PWD/k8s/images/images.sh" "$@"; fi

readonly user=65532:65532 out=build/images aggregator_limit_mb=120
readonly cuda=${CUDA_HOME:-/usr/local/cuda}
version=$(sed -nE 's/^project\(allot VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)
readonly version

die() { echo "./run images: $*" >&2; exit 70; }
image_of() { echo "localhost/allot-$1:$version"; }
declare -A size  # of each image made, unpacked

# What goes away again however this ends.
container=
work=$(mktemp -d)
clean_up() {
  [ -z "$container" ] || buildah rm "$container" >/dev/null
  rm -rf "$work"
}
trap clean_up EXIT

mb() { awk -v bytes="$1" 'BEGIN { printf "%.1f MB", bytes / 1e6 }'; }

# skeleton ROOT: what every image has beside its program.
skeleton() {
  mkdir -p "$1"/{data,etc/ssl/certs,opt/allot/bin,tmp,usr/bin,usr/lib,usr/lib64}
  chmod 1777 "$1/tmp"
  ln -s usr/bin usr/lib usr/lib64 "$1/"
  printf 'root:x:0:0:root:/:\nallot:x:%s:allot:/opt/allot:\n' "$user" >"$1/etc/passwd"
  printf 'root:x:0:\nallot:x:%s:\n' "${user#*:}" >"$1/etc/group"
  echo 'hosts: files dns' >"$1/etc/nsswitch.conf"
  cp -L /etc/ssl/certs/ca-certificates.crt "$1/etc/ssl/certs/"
  cp -L /etc/debian_version "$1/etc/"
  cp -L /usr/lib/os-release "$1/etc/"
}

# add_program ROOT FILE TARGET: FILE, stripped, as TARGET of the image, and the libraries it needs.
add_program() {
  local root=$1 file=$2 target=$3 name path
  install -D -m 755 -s "$file" "$root$target"
  echo "$file" >>"$work/sources"
  while read -r name path; do
    case $name in
      linux-vdso.so.*) ;;
      libcuda.so.1) ;;  # the driver's: of the node
      /*) add_file "$name" "$root/usr$name" 755 ;;  # the loader
      *) [ "$path" != not\ found ] || die "$file needs $name, which is not on this machine"
         # One folder for all, under the names they are asked for, where the loader looks anyway.
         add_file "$path" "$root/usr/lib/$triplet/$name" 644 ;;
    esac
  done < <(LD_LIBRARY_PATH=$cuda/lib64 ldd "$file" | sed -E 's/^\s*//; s/ => / /; s/ \(0x.*//')
}

# add_file SOURCE TARGET MODE, and remembers whose it is.
add_file() {
  local source; source=$(readlink -f "$1")
  [ -e "$2" ] || install -D -m "$3" "$source" "$2"
  echo "$source" >>"$work/sources"
}
triplet=$(gcc -print-multiarch)

# add_notices ROOT: of every Debian package that gave a file its licence, and its description where
# image scanners look for it.
add_notices() {
  local root=$1 list package
  mkdir -p "$root/var/lib/dpkg/status.d"
  # Packages name files below /lib or below /usr/lib, which are the same folder.
  sed 'p; s#^/usr##' "$work/sources" >"$work/paths"
  while read -r list; do
    package=$(basename "${list%.list}")
    install -D -m 644 "$(readlink -f "/usr/share/doc/${package%:*}/copyright")" \
      "$root/usr/share/doc/${package%:*}/copyright"
    dpkg-query -s "$package" >"$root/var/lib/dpkg/status.d/${package%:*}"
  done < <(grep -lxFf "$work/paths" /var/lib/dpkg/info/*.list)
}

# gather NAME ROOT
gather() {
  local root=$2 preset=release
  : >"$work/sources"  # the files of this machine that go into the image
  skeleton "$root"
  case $1 in
    aggregator)
      add_program "$root" build/release/bin/allot-aggregator /opt/allot/bin/allot-aggregator
      add_program "$root" build/release/bin/allot /opt/allot/bin/allot ;;
    operator) add_program "$root" build/release/bin/allot-operator /opt/allot/bin/allot-operator ;;
    worker | worker-cuda)
      [ "$1" = worker ] || preset=cuda
      add_program "$root" "build/$preset/bin/allot-worker" /opt/allot/bin/allot-worker
      mkdir -p "$root/opt/allot/experiments/models"
      cp -r experiments/models/recall-7m "$root/opt/allot/experiments/models/" ;;
    redis)
      add_program "$root" "$(readlink -f "$(command -v redis-server)")" /usr/bin/redis-server
      add_program "$root" "$(command -v redis-cli)" /usr/bin/redis-cli
      add_program "$root" /bin/dash /usr/bin/dash
      ln -s dash "$root/usr/bin/sh" ;;
    *) die "no image '$1': worker, aggregator, redis, operator, worker-cuda" ;;
  esac
  [ "$1" != worker-cuda ] || install -m 644 -t "$root/usr/lib/$triplet" "$cuda"/lib64/libcudart.so.*
  add_notices "$root"
  chmod -R u+rwX,go+rX,go-w "$root/etc" "$root/opt" "$root/usr" "$root/var"
}

# write_sbom NAME ROOT: the image's bill of materials, beside its archive.
write_sbom() {
  local headers=()
  case $1 in
    aggregator) headers=(libboost-dev libcli11-dev libexpected-dev libjs-chart.js libspdlog-dev nlohmann-json3-dev) ;;
    operator | worker*) headers=(libboost-dev libcli11-dev libexpected-dev libspdlog-dev nlohmann-json3-dev) ;;
  esac
  k8s/images/sbom.py "$1" "$version" "$(git describe --always --dirty --abbrev=10 --exclude='*' 2>/dev/null || echo unknown)" \
    "$2" "${headers[@]}" >"$work/sbom"
  mv "$work/sbom" "$out/allot-$1.cdx.json"
}

description_of() {
  case $1 in
    worker) echo "Decodes with stochastic sparse attention and grades the answers (CPU)" ;;
    worker-cuda) echo "Decodes with stochastic sparse attention and grades the answers (CUDA build)" ;;
    aggregator) echo "Learns an experiment's schedule and shows it; with the command allot" ;;
    operator) echo "Runs the Experiments of a cluster" ;;
    redis) echo "The store of an experiment: Debian's Redis" ;;
  esac
}

# build_image NAME
build_image() {
  local name=$1 image before root
  image=$(image_of "$name")
  root=$work/$name
  gather "$name" "$root"
  write_sbom "$name" "$root"
  before=$(buildah images -q "$image" 2>/dev/null || true)
  # The same files make the same image, whenever and wherever: all times are 0.
  buildah bud --quiet --isolation chroot --timestamp 0 -f "k8s/images/$name.Containerfile" \
    --label org.opencontainers.image.title="allot-$name" \
    --label org.opencontainers.image.description="$(description_of "$name")" \
    --label org.opencontainers.image.version="$version" \
    --label org.opencontainers.image.base.name=scratch \
    -t "$image" "$root" >/dev/null
  [ -z "$before" ] || [ "$before" = "$(buildah images -q "$image")" ] || buildah rmi "$before" >/dev/null
  rm -f "$out/allot-$name.tar"
  buildah push --quiet "$image" "oci-archive:$out/allot-$name.tar:$image"
  rm -rf "$root"
  check_image "$name"
}

# check_image NAME: its program starts as the image's user on a root that nobody can write to.
check_image() {
  local name=$1 root entry
  container=$(buildah from --quiet "$(image_of "$name")")
  [ "$(buildah inspect --format '{{.OCIv1.Config.User}}' "$container")" = "$user" ] ||
    die "allot-$name does not say that it runs as $user"
  root=$(buildah mount "$container")
  cp experiments/recall-layer-budget/experiment.yaml "$root/tmp/"
  entry=$(buildah inspect --format '{{index .OCIv1.Config.Entrypoint 0}}' "$container")
  case $name in
    worker*) set -- "$entry" --check /tmp/experiment.yaml --kv-memory 64 \
               --model /opt/allot/experiments/models/recall-7m ;;  # loads the model
    aggregator) set -- "$entry" --help ; start_in "$root" /opt/allot/bin/allot --version ;;
    operator) set -- "$entry" --help ;;
    redis) set -- "$entry" --version ; start_in "$root" /bin/sh -c 'redis-cli --version' ;;
  esac
  start_in "$root" "$@"
  size[$name]=$(du -sb "$root" | cut -f 1)
  if [ "$name" = aggregator ] && [ "${size[$name]}" -ge $((aggregator_limit_mb * 1000000)) ]; then
    die "allot-aggregator is $(mb "${size[$name]}"): it must stay below $aggregator_limit_mb MB"
  fi
  buildah rm "$container" >/dev/null
  container=
}

# start_in ROOT COMMAND...
start_in() {
  local root=$1; shift
  mkdir -p "$root/proc" "$root/sys"
  # shellcheck disable=SC2016
  unshare --mount sh -c 'root=$1 user=$2 && shift 2 && mount --bind "$root" "$root" &&
    mount --rbind /proc "$root/proc" && mount --rbind /sys "$root/sys" &&
    mount -o remount,bind,ro "$root" && exec chroot --userspec="$user" --groups= "$root" "$@"' \
    sh "$root" "$user" "$@" >"$work/log" 2>&1 ||
    { cat "$work/log" >&2; die "$1 does not start in its image"; }
}

cmd_build() {
  local name
  mkdir -p "$out"
  for name in "$@"; do
    printf '%s ... ' "$(image_of "$name")"
    build_image "$name"
    echo "starts as $user on a read-only root"
  done
  printf '\n%-34s  %10s  %10s  %s\n' image unpacked packed archive
  for name in "$@"; do
    printf '%-34s  %10s  %10s  %s\n' "$(image_of "$name")" "$(mb "${size[$name]}")" \
      "$(mb "$(stat -c %s "$out/allot-$name.tar")")" "$out/allot-$name.tar"
  done
}

# What k8s/operator takes its image from. The digest, not the tag, so that every node runs exactly what was pushed.
readonly operator=k8s/operator/kustomization.yaml
cmd_push() {
  local registry=${1:?./run images push: which registry? for example registry.example.org/team} name line pushed=
  shift
  for name in worker aggregator redis operator worker-cuda; do
    [ -n "$(buildah images -q "$(image_of "$name")" 2>/dev/null)" ] || continue
    echo "pushing $registry/allot-$name:$version"
    buildah push --quiet "$@" --digestfile "$work/digest" "$(image_of "$name")" \
      "docker://$registry/allot-$name:$version"
    pushed=1
    [ "$name" = operator ] || continue
    line="- {name: allot-operator, newName: $registry/allot-operator, newTag: $version, digest: \"$(cat "$work/digest")\"}"
    line=$line awk 'index($0, "- {name: allot-operator,") == 1 { print ENVIRON["line"]; next } { print }' \
      "$operator" >"$work/operator.yaml"
    cat "$work/operator.yaml" >"$operator"
    echo "$operator names it"
  done
  [ -n "$pushed" ] || die "there are no images of version $version: run ./run images first"
  printf '\nfor allot render and the operator: --registry %s --tag %s\n' "$registry" "$version"
}

case ${1:-} in
  build | push) "cmd_$1" "${@:2}" ;;
  *) echo "images.sh: build NAME... or push REGISTRY" >&2; exit 64 ;;
esac
