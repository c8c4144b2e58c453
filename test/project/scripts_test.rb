# frozen_string_literal: true

require_relative "../test_helper"
require "digest"
require "fileutils"
require "open3"
require "tmpdir"

# How bin/ treats keys, passwords and downloads. The tests need no network, and start no Kafka.
class ScriptsTest < PenstockTest
  ROOT = File.expand_path("../..", __dir__)
  PINNED = File.join(ROOT, "bin/lib/kafka-jars.sha256")
  VERSION = File.read(File.join(ROOT, "bin/kafka"))[/^kafka_version=(\S+)/, 1]

  # Kafka's launcher, which records its command line as other processes see it. It can format a storage, and start nothing.
  JAVA = <<~'SH'
    #!/bin/sh
    [ "$1" != -version ] || { echo 'openjdk version "17.0.1"' >&2; exit 0; }
    tr '\0' ' ' <"/proc/$$/cmdline" >>"$SEEN"
    for argument; do case $argument in @*) ls -l "${argument#@}" >>"$SEEN.files"; cat "${argument#@}" >>"$SEEN.files" ;; esac; done
    case $* in *kafka.Kafka*) exit 1 ;; esac
  SH

  def setup
    super
    @cache = Dir.mktmpdir("penstock-scripts")
    @jars = File.join(@cache, "penstock/kafka/jars-#{VERSION}")
    FileUtils.mkdir_p(@jars)
    File.write(File.join(@jars, "pom.xml"), run!("bash", "-euc", <<~SH))
      eval "$(grep -E '^(kafka|log4j)_version=' bin/kafka)"
      . bin/lib/kafka-files.sh
      pom
    SH
  end

  def teardown
    FileUtils.rm_rf(@cache)
    super
  end

  def run!(*command, **variables)
    output, status = Open3.capture2e(variables.transform_keys(&:to_s), *command, chdir: ROOT)
    assert_predicate status, :success?, output
    output
  end

  def pinned = File.readlines(PINNED).grep_v(/^#/).to_h { |line| line.split.reverse }

  def test_each_jar_has_a_pinned_checksum_and_is_downloaded_only_with_it
    assert_operator pinned.size, :>, 50
    assert pinned.values.all?(/\A\h{64}\z/)
    assert_includes pinned.keys, "kafka-clients-#{VERSION}.jar"
    assert_match(/mvn .*--strict-checksums/, File.read(File.join(ROOT, "bin/kafka")))
  end

  # @return [String] the directory of a copy of bin/ that expects exactly these jars
  def copy_that_expects(jars)
    tree = File.join(@cache, "tree")
    FileUtils.mkdir_p(tree)
    FileUtils.cp_r(File.join(ROOT, "bin"), tree)
    jars.each { |name, content| File.write(File.join(@jars, name), content) }
    lines = jars.map { |name, content| "#{Digest::SHA256.hexdigest(content)}  #{name}\n" }
    File.write(File.join(tree, "bin/lib/kafka-jars.sha256"), "# a comment\n#{lines.sort_by { |line| line.split.last }.join}")
    tree
  end

  def jars_of(tree) = Open3.capture2e({ "XDG_CACHE_HOME" => @cache }, "bin/kafka", "jars", chdir: tree)

  def test_jars_that_match_their_checksums_are_used
    output, status = jars_of(copy_that_expects("a.jar" => "a", "b.jar" => "b"))
    assert_predicate status, :success?, output
    assert_equal "#{@jars}\n", output
  end

  { "changed" => { "b.jar" => "B" }, "more" => { "c.jar" => "c" }, "missing" => { "b.jar" => nil } }.each do |what, changes|
    define_method("test_a_jar_that_is_#{what}_is_named_in_the_error") do
      tree = copy_that_expects("a.jar" => "a", "b.jar" => "b")
      changes.each do |name, content|
        file = File.join(@jars, name)
        content ? File.write(file, content) : File.delete(file)
      end
      output, status = jars_of(tree)
      refute_predicate status, :success?
      assert_match(%r{not those of bin/lib/kafka-jars\.sha256.*: #{changes.keys.first}$.*bin/kafka pin}m, output)
    end
  end

  slow def test_no_password_is_on_a_command_line_and_only_the_user_can_read_secrets
    skip "needs /proc, and openssl" unless File.exist?("/proc/self/cmdline") && system("openssl version >/dev/null 2>&1")

    tree = copy_that_expects("a.jar" => "a")
    java = File.join(@cache, "java/bin/java")
    FileUtils.mkdir_p(File.dirname(java))
    File.write(java, JAVA)
    File.chmod(0o755, java)
    seen = File.join(@cache, "seen")
    output, = Open3.capture2e({ "XDG_CACHE_HOME" => @cache, "JAVA_HOME" => File.join(@cache, "java"), "SEEN" => seen },
                              "bin/kafka", "up", "--name", "scripts", "--secure", chdir: tree)
    lines = File.read(seen)
    assert_match(/StorageTool format .*@/, lines, output)
    refute_match(/-secret|password/, lines)
    files = File.read("#{seen}.files")
    assert_match(/\A-rw-------/, files)
    assert_match(/SCRAM-SHA-256=\[name=penstock,password=/, files)
    refute_path_exists File.join(@cache, "penstock/kafka/run/scripts"), "the written files are removed"
  end

  # debootstrap and install do the actual work. A bad keyring was tried by hand: it ends with "The specified keyring may be
  # incorrect or out of date".
  def test_the_matrix_checks_signatures_and_copies_keys_that_only_it_can_read
    root = File.read(File.join(ROOT, "bin/lib/matrix-root.sh"))
    assert_match(/debootstrap --keyring="\$keyring" --force-check-gpg/, root)
    refute_match(/no-check-gpg|allow-unauthenticated|trusted=yes/i, root + File.read(File.join(ROOT, "bin/matrix")))
  end

  # in_root with a chroot that prints its arguments.
  def test_the_matrix_passes_values_in_the_environment_and_on_no_command_line
    function = File.read(File.join(ROOT, "bin/matrix"))[/^in_root\(\) \(.*?^\)$/m]
    output = run!("bash", "-euc", <<~SH, PENSTOCK_OTHER: "other-secret", http_proxy: "http://me:proxy-secret@127.0.0.1:1")
      chroot=#{@cache}/chroot
      printf '%s\\n' '#!/bin/sh' 'echo "arguments: $*"; env' >"$chroot"
      chmod +x "$chroot"
      #{function}
      in_root /root PENSTOCK_KAFKA_PASSWORD=my-secret true
    SH
    assert_equal "arguments: /root true", output.lines.first.chomp
    assert_includes output, "PENSTOCK_KAFKA_PASSWORD=my-secret"
    assert_includes output, "http_proxy=http://me:proxy-secret"
    refute_includes output, "other-secret"
  end
end
