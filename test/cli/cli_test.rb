# frozen_string_literal: true

require "tmpdir"
require_relative "../test_helper"
require "penstock/cli"

class CLITest < PenstockTest
  ROOT = File.expand_path("../..", __dir__)

  # @return [Array(Integer, String, String)] the status, stdout and stderr
  def cli(*arguments)
    out = StringIO.new
    err = StringIO.new
    [Penstock::CLI.start(arguments, out:, err:), out.string, err.string]
  end

  # Runs the executable itself, in a folder without a Gemfile.
  def executable(*arguments, **options)
    Dir.mktmpdir do |directory|
      command = [{ "BUNDLE_GEMFILE" => nil, "RUBYOPT" => nil }, RbConfig.ruby, "-w", "-I", File.join(ROOT, "lib"),
                 File.join(ROOT, "exe/penstock"), *arguments]
      out, err, status = Limited.capture3(*command, chdir: directory, **options)
      [status.exitstatus, out, err]
    end
  end

  def first_server = embedded_cluster.bootstrap_servers.split(",").first

  # ---- help, version, usage ----

  def test_help_is_printed_on_request_and_without_a_command
    [%w[--help], %w[-h], %w[help]].each do |arguments|
      status, out, err = cli(*arguments)
      assert_equal [0, ""], [status, err]
      assert_match(/\AUsage: penstock COMMAND/, out)
      Penstock::CLI::COMMANDS.each_key { |name| assert_match(/^  #{name} /, out) }
    end
    status, out, err = cli
    assert_equal [2, ""], [status, out]
    assert_match(/\AUsage: penstock COMMAND/, err)
  end

  # `| head -1` reads a line and closes the pipe. Here the pipe is closed before anything is written.
  def test_a_closed_output_pipe_is_no_failure
    doctor = ["doctor", "--bootstrap", first_server]
    [%w[--version], doctor, [*doctor, "--json"]].each do |arguments|
      reader, writer = IO.pipe
      reader.close
      pid = spawn(RbConfig.ruby, "-w", "-I", File.join(ROOT, "lib"), File.join(ROOT, "exe/penstock"), *arguments,
                  out: writer, err: File::NULL)
      writer.close
      assert_equal 0, Process.wait2(pid).last.exitstatus, arguments.inspect
    end
  end

  def test_version_prints_the_version
    %w[--version -v version].each { |argument| assert_equal [0, "penstock #{Penstock::VERSION}\n", ""], cli(argument) }
  end

  def test_unknown_commands_and_options_are_rejected_in_one_line_with_a_suggestion
    assert_equal [2, "", "penstock: unknown command; did you mean doctor?\n"], cli("docter")
    assert_equal [2, "", "penstock: unknown command; see penstock --help\n"], cli("xyz")
    assert_equal [2, "", "penstock: unknown option --nonsense; see penstock --help\n"], cli("--nonsense")
  end

  def test_each_command_has_help
    Penstock::CLI::COMMANDS.each_key do |name|
      [[name, "--help"], ["help", name]].each do |arguments|
        status, out, err = cli(*arguments)
        assert_equal [0, ""], [status, err]
        assert_match(/\AUsage: penstock #{name}/, out)
      end
    end
  end

  def test_the_gem_has_the_executable_and_all_files_it_needs
    specification = Gem::Specification.load(File.join(ROOT, "penstock.gemspec"))
    assert_equal [["penstock"], "exe"], [specification.executables, specification.bindir]
    assert_includes specification.files, "exe/penstock"
    assert File.executable?(File.join(ROOT, "exe/penstock"))
  end

  def test_the_executable_exits_quietly_if_its_output_pipe_is_closed
    reader, writer = IO.pipe
    reader.close
    command = [RbConfig.ruby, "-I", File.join(ROOT, "lib"), File.join(ROOT, "exe/penstock"), "doctor"]
    pid = spawn(*command, out: writer, err: File::NULL)
    writer.close
    assert_equal 0, Process.wait2(pid).last.exitstatus
  end

  # ---- doctor ----

  def test_doctor_prints_aligned_facts_and_exits_with_0_if_nothing_is_wrong
    status, out, err = executable("doctor", "--bootstrap", first_server)
    assert_equal [0, ""], [status, err], out
    assert_match(/^ {9}ruby +CRuby #{Regexp.escape(RUBY_VERSION)}/, out)
    assert_match(/^ {9}#{first_server} kafka +cluster /, out)
    assert_equal "nothing is wrong", out.lines(chomp: true).last
  end

  def test_doctor_reports_problems_in_its_json_and_its_exit_status
    status, out, err = executable("doctor", "-b", "127.0.0.1:1", "--json", "--timeout", "5")
    assert_equal [1, ""], [status, err]
    report = JSON.parse(out)
    problem = report.fetch("facts").find { |fact| fact["status"] == "problem" }
    assert_equal [1, "127.0.0.1:1 tcp"], [report["problems"], problem["name"]]
    assert_match(/a broker listens/, problem["advice"])
  end

  def test_doctor_reads_settings_from_a_file_and_from_the_command_line
    Dir.mktmpdir do |directory|
      file = File.join(directory, "client.properties")
      File.write(file, "# ours\n\nbootstrap.servers = #{first_server}\nclient.id=one=two\nsecurity.protocol=ssl\n")
      _, out, = cli("doctor", "--config", file, "-X", "security.protocol=plaintext")
      assert_match(/#{first_server} kafka +cluster /, out)
    end
  end

  SECRET = "geheim-4711"

  slow def test_doctor_never_prints_a_secret
    settings = %W[security.protocol=sasl_plaintext sasl.mechanism=PLAIN sasl.username=u sasl.password=#{SECRET}]
    [settings, settings.drop(1), ["sasl.password:#{SECRET}"], ["sasl.pasword=#{SECRET}"], ["=#{SECRET}"]].each do |given|
      [[], ["--json"]].each do |format|
        status, out, err = cli("doctor", "-b", first_server, "--timeout", "3", *given.flat_map { |one| ["-X", one] }, *format)
        refute_equal 0, status
        refute_includes out + err, SECRET
      end
    end
  end

  def test_doctor_suggests_the_setting_nearest_to_a_misspelt_one
    _, out, = cli("doctor", "-b", first_server, "-X", "sasl.passwrd=#{SECRET}")
    assert_match(/^PROBLEM +settings .*has no setting "sasl\.passwrd" \(did you mean "sasl\.password"\?\)/, out)
    refute_includes out, SECRET
  end

  def test_doctor_reports_invalid_usage_in_one_line
    Dir.mktmpdir do |directory|
      file = File.join(directory, "broken")
      File.write(file, "fine=1\nsasl.password #{SECRET}\n")
      { ["--nonsense"] => /invalid option: --nonsense/, ["more"] => /doctor accepts only options/,
        ["-X", "a"] => /-X: expected NAME/,
        ["-b", "a,a:b"] => /--bootstrap: broker 2 has a port that is not a number from 1 to 65535, after the host$/,
        ["-b", "kafka+ssl://a:9092"] => %r{broker 1 is a URL \(kafka\+ssl://\): write host:port, and set security.protocol},
        ["--timeout", "0"] => /--timeout must/,
        ["--timeout", "soon"] => /invalid argument: --timeout$/,
        ["--config", "/no/such"] => /--config: No such file/,
        ["--config", file] => /--config, line 2: expected/, ["-r", "no_such_file"] => /--require: it cannot be loaded/ }
        .each do |arguments, message|
          status, out, err = cli("doctor", *arguments)
          assert_equal [2, "", 1], [status, out, err.lines.size], err
          assert_match(/\Apenstock: /, err)
          assert_match message, err
          refute_includes err, SECRET
        end
    end
  end

  # A user may have put a secret anywhere on the command line, so errors repeat only names of options.
  def test_usage_errors_repeat_no_value
    values = [SECRET, "a=#{SECRET}", "sasl.password:#{SECRET}==", "sasl.password=#{SECRET}", "#{SECRET} b=c",
              "user:#{SECRET}@host", "\xFF#{SECRET}"]
    options = lambda do |value|
      [["--password=#{value}"], ["--password", value], ["-p#{value}"], ["-Z", value], ["--json=#{value}"], [value]]
    end
    usage = values.flat_map do |value|
      [*options.call(value), *options.call(value).map { |given| ["doctor", *given] }, ["doctor", "--boot=#{value}"],
       *["-b", "--bootstrap", "--config", "--timeout", "-r"].map { |option| ["doctor", option, value] },
       *["--config=", "--timeout=", "--require=", "--bootstrap=#{SECRET}:"].map { |option| ["doctor", "#{option}#{value}"] }]
    end
    usage += [["doctor", "-X", SECRET], ["doctor", "-X#{SECRET}"], ["doctor", "-X", "sasl.password:#{SECRET}=="]]
    usage.each do |arguments|
      status, _, err = cli(*arguments)
      refute_equal 0, status, arguments.inspect
      refute_includes err, SECRET, arguments.inspect
      assert_predicate err, :valid_encoding?
    end
    assert_equal "penstock: invalid option: --password\n", cli("doctor", "--password=#{SECRET}").last
    assert_equal "penstock: unknown option --password; see penstock --help\n", cli("--password=#{SECRET}").last
  end

  def test_doctor_examines_the_files_that_it_is_asked_to_load
    Dir.mktmpdir do |directory|
      file = File.join(directory, "application.rb")
      File.write(file, 'Gem.loaded_specs["rdkafka"] = Gem::Specification.new("rdkafka", "0.16.0")')
      status, out, = executable("doctor", "-r", file)
      assert_equal 1, status
      assert_match(/^PROBLEM  rdkafka +0\.16\.0, in this process/, out)
    end
  end

  def test_doctor_reports_an_extension_that_cannot_be_loaded
    Dir.mktmpdir do |directory|
      FileUtils.mkdir_p(File.join(directory, "penstock"))
      File.write(File.join(directory, "penstock/penstock.rb"), "raise LoadError, 'librdkafka.so.1: cannot open shared object'")
      FileUtils.cp_r(File.join(ROOT, "lib"), directory)
      FileUtils.rm_f(Dir[File.join(directory, "lib/penstock/penstock.{so,bundle}")])
      out, err, status = Limited.capture3(RbConfig.ruby, "-I", File.join(directory, "lib"), "-I", directory,
                                          File.join(ROOT, "exe/penstock"), "doctor", chdir: directory)
      assert_equal [1, ""], [status.exitstatus, err]
      assert_match(/^PROBLEM  penstock +the extension cannot be loaded: librdkafka\.so\.1.*Install librdkafka/, out)
      assert_match(/^ +ruby /, out)
    end
  end
end
