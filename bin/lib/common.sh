# shellcheck shell=bash
# What bin/setup, bin/kafka and bin/matrix share. Meant to be sourced, not run.

cache=${XDG_CACHE_HOME:-~/.cache}/penstock # all that is downloaded or built outside the tree
quiet=

say() { [[ $quiet ]] || printf '==> %s\n' "$*" >&2; }
die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }
is_root() { [[ $EUID == 0 ]]; }

# lock FILE: one run at a time; held (as descriptor 9) until the script ends. Without flock there is no lock.
lock() {
  have flock || return 0
  mkdir -p "$(dirname "$1")"
  exec 9>"$1"
  flock -n 9 && return
  say "waiting for another run of ${0##*/} to finish"
  flock -w 3600 9 || die "$1 is still locked after an hour: end the other run first"
}

# quietly LOG COMMAND...: keep the command's output in LOG, and show its end when the command fails.
quietly() {
  local log=$1
  shift
  mkdir -p "$(dirname "$log")"
  "$@" >"$log" 2>&1 </dev/null && return
  printf '%s\n' "--- failed: $*" "--- the end of $log:" >&2
  tail -n 60 "$log" >&2
  return 1
}

# Debian's package names and their names elsewhere (gem:NAME is a gem, - means that nothing need be installed).
package_names() {
  cat <<'TABLE'
apt                   apk                     dnf                           brew
ruby                  ruby                    ruby                          ruby
ruby-dev              ruby-dev                ruby-devel                    -
librdkafka-dev        librdkafka-dev          librdkafka-devel              librdkafka
pkg-config            pkgconf                 pkgconf-pkg-config            pkgconf
gcc                   gcc                     gcc                           -
make                  make                    make                          -
libc6-dev             musl-dev                glibc-devel                   -
rake                  ruby-rake               rubygem-rake                  gem:rake
rake-compiler         gem:rake-compiler       gem:rake-compiler             gem:rake-compiler
ruby-minitest         ruby-minitest           rubygem-minitest              gem:minitest
shellcheck            shellcheck              ShellCheck                    shellcheck
rubocop               gem:rubocop             gem:rubocop                   gem:rubocop
yard                  gem:yard                gem:yard                      gem:yard
ruby-async            gem:async               gem:async                     gem:async
ruby-msgpack          gem:msgpack             gem:msgpack                   gem:msgpack
ruby-connection-pool  gem:connection_pool     gem:connection_pool           gem:connection_pool
python3-msgpack       py3-msgpack             python3-msgpack               -
clang                 clang                   clang                         llvm
libclang-rt-14-dev    compiler-rt             compiler-rt                   -
debootstrap           -                       -                             -
openssl               openssl                 openssl                       openssl
maven                 maven                   maven                         maven
default-jre-headless  openjdk17-jre-headless  java-latest-openjdk-headless  openjdk
TABLE
}

# install_line MANAGER PACKAGE...: the command that installs Debian's PACKAGEs with apt, apk, dnf or brew.
install_line() {
  local manager=$1 names gems
  shift
  names=$(package_names | awk -v manager="$manager" -v wanted=" $* " '
    NR == 1 { for (i = 1; i <= NF; i++) if ($i == manager) column = i }
    NR > 1 && index(wanted, " " $1 " ") && $column != "-" { print $column }')
  gems=$(sed -n 's/^gem://p' <<<"$names" | xargs)
  names=$(grep -v '^gem:' <<<"$names" | xargs) || true
  case $manager in
    apt) names="sudo apt-get install -y $*" ;; # also those with a version in their name
    apk) names=${names:+apk add $names} ;;
    *) names=${names:+$manager install $names} ;;
  esac
  printf '%s\n' "$names${names:+${gems:+ && }}${gems:+gem install $gems}"
}

# need_packages PACKAGE...: install them (Debian or Ubuntu, as root), or say how to and end the script.
need_packages() {
  if ! have apt-get || ! is_root; then
    printf '%s\n' "${0##*/}: please install what is missing, then run this again:" >&2
    local manager
    for manager in apt apk dnf brew; do
      if ! have apt-get || [[ $manager == apt ]]; then
        printf '  %-5s %s\n' "$manager:" "$(install_line "$manager" "$@")" >&2
      fi
    done
    exit 1
  fi
  say "installing with apt-get: $*"
  export DEBIAN_FRONTEND=noninteractive
  quietly "$cache/apt.log" apt-get -o DPkg::Lock::Timeout=300 update ||
    say "apt-get update failed; trying with the package lists that are here"
  quietly "$cache/apt.log" apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$@" ||
    die "apt-get could not install: $*"
}

# find_java: print the first Java 17 or newer among JAVA_HOME, PATH and the usual places.
find_java() {
  local java version
  for java in "${JAVA_HOME:-}/bin/java" "$(command -v java || true)" /usr/lib/jvm/*/bin/java \
    /opt/homebrew/opt/openjdk/bin/java; do
    [[ -x $java ]] || continue
    version=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p') || continue
    if ((${version:-0} >= 17)); then
      printf '%s\n' "$java"
      return
    fi
  done
  return 1
}
