# shellcheck shell=bash disable=SC2154
# The Debian testing system that bin/matrix runs tests in: what is in it, and how it is made. Meant to be sourced.

suite=forky
packages=(ruby3.3 ruby3.3-dev librdkafka-dev ruby-async ruby-io-event ruby-minitest rake rake-compiler ruby-msgpack
  python3-msgpack ruby-connection-pool rubocop gcc make pkg-config libc6-dev
  ruby-railties ruby-activerecord ruby-sqlite3 puma ruby-sidekiq redis-server)
experimental=(ruby3.4 ruby3.4-dev)
recipe=1 # raise it when make_root changes: an older root is then made again
root=$cache/matrix-$suite
keyring=/usr/share/keyrings/debian-archive-keyring.gpg # whose signatures debootstrap accepts; without one it ends
stamp="$recipe $suite ${packages[*]} ${experimental[*]}"

# The Debian mirror that this system's own package sources name.
mirror() {
  local found=${PENSTOCK_DEBIAN_MIRROR:-}
  [[ $found ]] || found=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources \
    /etc/apt/sources.list.d/* /etc/apt/mirrors/*.list 2>/dev/null | awk '/^[[:space:]]*#/ { next }
    { for (i = 1; i <= NF; i++) if ($i ~ /^https?:.*\/debian\/?$/) { print $i; exit } }') || true
  [[ $found ]] || die "apt's sources name no Debian mirror: set PENSTOCK_DEBIAN_MIRROR to the address of one"
  printf '%s\n' "$found"
}

# make_root: in a temporary folder, renamed when complete. The caller holds the lock, in a mount namespace of its own.
make_root() {
  local new=$root.new log=$cache/matrix.log from apt=(apt-get -o Acquire::Check-Valid-Until=false)
  PATH=$PATH:/usr/sbin:/sbin
  have debootstrap || die "needs debootstrap: run bin/setup --dev, or apt-get install debootstrap"
  [[ -r $keyring ]] || die "needs Debian's keys in $keyring: apt-get install debian-archive-keyring"
  from=$(mirror)
  rm -rf --one-file-system "$new"
  say "1/3 making a Debian $suite system in $new (debootstrap)"
  quietly "$log" debootstrap --keyring="$keyring" --force-check-gpg --variant=minbase \
    --include=ca-certificates "$suite" "$new" "$from" \
    /usr/share/debootstrap/scripts/sid || die "debootstrap failed"
  printf '127.0.0.1 localhost\n::1 localhost\n' >"$new/etc/hosts"
  printf '#!/bin/sh\nexit 101\n' >"$new/usr/sbin/policy-rc.d" # no package starts a daemon, such as Redis
  chmod +x "$new/usr/sbin/policy-rc.d"
  printf 'deb %s experimental main\n' "$from" >"$new/etc/apt/sources.list.d/experimental.list"
  mount -t proc proc "$new/proc"
  say "2/3 installing ${packages[*]}"
  quietly "$log" in_root "$new" "${apt[@]}" update || die "apt-get update failed in the new system"
  quietly "$log" in_root "$new" "${apt[@]}" install -y --no-install-recommends "${packages[@]}" ||
    die "the packages could not be installed"
  say "3/3 installing ${experimental[*]} from experimental"
  quietly "$log" in_root "$new" "${apt[@]}" install -y --no-install-recommends -t experimental \
    "${experimental[@]}" || die "the packages could not be installed"
  in_root "$new" apt-get clean
  umount "$new/proc"
  printf '%s\n' "$stamp" >"$new/etc/penstock-root"
  rm -rf --one-file-system "$root"
  mv "$new" "$root"
}
