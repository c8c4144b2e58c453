# frozen_string_literal: true

require "tmpdir"
require_relative "../test_helper"
require "penstock/cli"

# `penstock server` and `penstock routes`.
class CLIAppTest < PenstockTest
  FILE = <<~RUBY
    require "penstock/app"
    Penstock.app do |app|
      app.kafka = { "bootstrap.servers": ENV.fetch("SERVERS"), "sasl.password": "s3cret" }
      app.threads = 7
      app.producer_kafka = { "linger.ms": 5 }
      app.group "billing", kafka: { "session.timeout.ms": 6_000 } do |group|
        group.topic ENV.fetch("TOPIC"), to: ->(record) { puts record.payload }, order: :key
      end
      app.group("audit") { |group| group.topic(/audit-.+/, to: "Nowhere", retry: { times: 3 }, dead_letter: "dead") }
    end
  RUBY

  def setup
    super
    @before = %w[SERVERS TOPIC].to_h { |name| [name, ENV[name]] }
    ENV.update("SERVERS" => cluster.bootstrap_servers, "TOPIC" => "orders")
  end

  def teardown
    ENV.update(@before)
    super
  end

  # @return [Array(Integer, String, String)] the status, stdout and stderr
  def cli(*arguments, file: FILE)
    Dir.mktmpdir do |directory|
      path = File.join(directory, "app.rb")
      File.write(path, file)
      out = StringIO.new
      err = StringIO.new
      [Penstock::CLI.start(arguments.map { |argument| argument.sub("FILE", path) }, out:, err:), out.string, err.string]
    end
  end

  def test_routes_prints_every_option_and_no_secret
    status, out, err = cli("routes", "-r", "FILE")
    assert_equal [0, ""], [status, err]
    refute_includes out, "s3cret"
    assert_equal <<~TEXT, out.gsub(%r{[^ (]*/app\.rb:}, "app.rb:").sub(/to Proc.* \(/, "to Proc (")
      application
        threads: 7 (app.rb:4)
        commit_interval: 5 (default)
        drain_timeout: 30 (default)
        shutdown_timeout: 25 (default)
        stall_after: 300 (default)
        memory: nil (default)
        probe: nil (default)
        logger: nil (default)
        monitor: Penstock::Monitor (default)
        producer: nil (default)
        producer_kafka: linger.ms (app.rb:5)
      group billing, 1 connection
        kafka: bootstrap.servers, sasl.password, session.timeout.ms
        "orders" to Proc (app.rb:7)
          order: :key
          in_flight: 1000 (default)
          value: nil (default)
          key: nil (default)
          batch: nil (default)
          filter: nil (default)
          delay: nil (default)
          expire: nil (default)
          throttle: nil (default)
          tick: nil (default)
          offsets: :automatic (default)
          uncommitted: messages: 20000, bytes: 67108864 (default)
          retry: times: nil, from: 1, to: 60, topics: [] (default)
          dead_letter: nil (default)
          after_retries: :block (default)
          fatal: [] (default)
      group audit, 1 connection
        kafka: bootstrap.servers, sasl.password
        /audit-.+/ to Nowhere (app.rb:9)
          order: :partition (default)
          in_flight: 1000 (default)
          value: nil (default)
          key: nil (default)
          batch: nil (default)
          filter: nil (default)
          delay: nil (default)
          expire: nil (default)
          throttle: nil (default)
          tick: nil (default)
          offsets: :automatic (default)
          uncommitted: messages: 20000, bytes: 67108864 (default)
          retry: times: 3, from: 1, to: 60, topics: []
          dead_letter: "dead"
          after_retries: :dead_letter (default)
          fatal: [] (default)
    TEXT
  end

  def test_only_some_groups
    { %w[--only billing] => %w[billing], %w[--except billing] => %w[audit],
      %w[--only audit,billing] => %w[billing audit] }.each do |more, ids|
      assert_equal ids, cli("routes", "-r", "FILE", *more)[1].scan(/^group (\w+)/).flatten
    end
  end

  def test_wrong_usage_is_named
    none = ""
    two = "require 'penstock/app'; 2.times { Penstock.app { |app| app.group('g') { |group| group.topic('t', to: ->(_) {}) } } }"
    { ["there is no group biling (did you mean \"billing\"?)", FILE] => %w[--only biling],
      ["exclude each other", FILE] => %w[--only billing --except audit], ["leaves no group", FILE] => %w[--except billing,audit],
      ["app.rb must make one application with Penstock.app, not 0", none] => [],
      ["app.rb must make one application with Penstock.app, not 2", two] => [],
      ["cannot be loaded", "require 'not/there'"] => [], ["accepts only options", FILE] => %w[more] }.each do |(text, file), more|
      status, out, err = cli("routes", "-r", "FILE", *more, file:)
      assert_equal [2, ""], [status, out], text
      assert_includes err, text
    end
    assert_includes cli("server", "-r", "not-there.rb")[2], "there is no file not-there.rb"
    assert_includes cli("server", "--hlep")[2], "--hlep"
  end

  # @return [String] a file with such an application
  def file_with(setting) = %(require "penstock/app"\nPenstock.app do |app|\n  #{setting}\nend\n)

  def test_what_is_invalid_in_the_file_is_named_with_its_line_and_no_trace
    { "app.threads = 0" => "app.threads must be", "app.logger = 'log'" => "app.logger must be a Logger or nil, not String",
      "app.monitor = nil" => "app.monitor must be a Penstock::Monitor", "app.probe = 'ftp://a'" => "app.probe must be",
      "app.monitor.subscribe('app.runing') {}" => "did you mean \"app.running\"",
      "app.group('g') { |group| group.topic('a b', to: ->(_) {}) }" => "A topic must have a name of 1 to 249",
      "app.group('g') { |group| group.topic('t', to: ->(_) {}, ordr: :key) }" => "did you mean :order?" }.each do |setting, text|
      [%w[routes -r FILE], %w[server -r FILE], %w[topics plan FILE], %w[doctor -r FILE]].each do |arguments|
        status, out, err = cli(*arguments, file: file_with(setting))
        assert_equal [2, "", 1], [status, out, err.lines.size], err
        assert_match(%r{\Apenstock: /.*app\.rb:\d: .*#{Regexp.escape(text)}}, err)
      end
    end
  end

  def test_what_the_file_raises_is_shown_with_its_own_lines
    { "app.kafka = { 'a' => ENV.fetch('NOT_THERE') }" => "KeyError", "app.thread = 3" => "NoMethodError",
      "end" => "SyntaxError" }.each do |setting, name|
      [%w[routes -r FILE], %w[server -r FILE], %w[topics plan FILE], %w[doctor -r FILE]].each do |arguments|
        status, out, err = cli(*arguments, file: file_with(setting))
        assert_equal [1, ""], [status, out], err
        assert_match(%r{\Apenstock: /.*app\.rb cannot be loaded: .*\(#{name}\)}m, err)
        assert_match(%r{^    /.*app\.rb:3:}, err) unless name == "SyntaxError"
        refute_includes err, "lib/penstock"
      end
    end
  end

  def test_what_the_server_cannot_start_with_is_named_without_a_trace
    topic = "app.group('g') { |group| group.topic('t', to: ->(_) {}) }"
    kafka = "app.kafka = { 'bootstrap.servers': 'a:1', 'sesion.timeout.ms': 6 }; #{topic}"
    { topic.sub("->(_) {}", "'Nowhere'") => 'The processor "Nowhere" does not exist',
      topic => 'requires "bootstrap.servers"', kafka => 'did you mean "session.timeout.ms"?',
      "app.probe = 'file:/none/probe'; #{topic}" => "app.probe cannot be opened: No such file" }.each do |setting, text|
      status, _, err = cli("server", "-r", "FILE", file: file_with(setting))
      assert_equal [2, 1], [status, err.lines.size], err
      assert_match(/\Apenstock: .*#{Regexp.escape(text)}/, err)
    end
  end

  def test_help_describes_the_commands
    %w[server routes].each { |command| assert_match(/--only GROUPS/, cli(command, "--help")[1]) }
  end

  slow def test_server_runs_until_a_signal
    name = topic(partitions: 1)
    ENV["TOPIC"] = name
    producer.produce_sync(topic: name, payload: "hello", partition: 0)
    lib = File.expand_path("../../lib", __dir__)
    Dir.mktmpdir do |directory|
      File.write(File.join(directory, "app.rb"), FILE.sub("app.group \"billing\"", "app.group \"billing-\#{Process.pid}\"")
                                                     .sub(/, "sasl.password.*"/, "").sub(/^  app.group\("audit.*$/, "")
                                                     .sub("6_000 }", "6_000, \"auto.offset.reset\": \"earliest\" }"))
      command = [RbConfig.ruby, "-w", "-I", lib, File.expand_path("../../exe/penstock", __dir__), "server", "-r", "app.rb"]
      IO.popen(command, chdir: directory) do |io|
        assert_match(/1 group; Ctrl-C/, io.gets)
        assert_equal "hello\n", io.gets
        Process.kill(:TERM, io.pid)
        assert_nil io.gets
      end
      assert_equal 0, $?.exitstatus
    end
  end
end
