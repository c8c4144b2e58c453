# frozen_string_literal: true

require "tmpdir"
require_relative "../test_helper"
require "penstock/cli"
require "securerandom"

# `penstock topics` on a real Kafka.
class TopicsCommandTest < PenstockTest
  SERVERS = ENV.fetch("PENSTOCK_KAFKA") { abort "test/integration needs a Kafka: run bin/test, or set PENSTOCK_KAFKA" }

  def setup
    super
    @one, @two = Array.new(2) { "penstock-command-#{SecureRandom.hex(6)}" }
  end

  def teardown
    admin = Penstock::Admin.new("bootstrap.servers": SERVERS)
    admin.delete_topics(@one, @two)
    admin.close
    super
  end

  # @return [Array(Integer, Array<String>, String)] the status, lines of stdout, stderr
  def cli(action, file, *more, name: "topics.yml")
    Dir.mktmpdir do |directory|
      File.write(path = File.join(directory, name), file)
      out = StringIO.new
      err = StringIO.new
      status = Penstock::CLI.start(["topics", action, path, *more], out:, err:)
      [status, out.string.lines(chomp: true), err.string]
    end
  end

  BROKERS = ["-b", SERVERS].freeze

  def test_plan_and_apply_a_file
    file = "#{@one}:\n  partitions: 2\n  config:\n    retention.ms: 60000\n#{@two}:\n"
    planned = ["create #{@one}: 2 partitions, retention.ms 60000", "create #{@two}"]
    assert_equal [4, planned, ""], cli("plan", file, *BROKERS)
    assert_equal [4, planned, ""], cli("apply", file, *BROKERS)
    eventually { cli("plan", file, *BROKERS) == [0, ["nothing to change"], ""] }
    assert_equal [0, ["nothing to change"], ""], cli("apply", file, *BROKERS)
    more = file.sub("partitions: 2", "partitions: 3").sub("60000", "70000")
    assert_equal [4, ["#{@one}: from 2 to 3 partitions", "#{@one}: set retention.ms to 70000 (is 60000)"], ""],
                 cli("apply", more, *BROKERS)
  end

  def test_what_cannot_be_done_fails
    cli("apply", "#{@one}:\n  partitions: 2\n", *BROKERS)
    fewer = "#{@one}:\n  partitions: 1\n#{@two}:\n  partitions: 1\n"
    status, lines, = cli("plan", fewer, *BROKERS)
    impossible = "IMPOSSIBLE #{@one}: has 2 partitions, declared: 1; Kafka cannot remove partitions"
    assert_equal [1, ["create #{@two}: 1 partition", impossible]], [status, lines]
    status, lines, err = cli("apply", fewer, *BROKERS)
    assert_equal [1, []], [status, lines]
    assert_match(/cannot be changed.*Nothing was changed/, err)
    status, lines, = cli("apply", fewer, *BROKERS, "--skip-impossible")
    assert_equal [1, "create #{@two}: 1 partition"], [status, lines.first]
    assert_match(/IMPOSSIBLE #{@one}/, lines.last)
  end

  def test_a_topic_that_the_cluster_rejects_fails
    status, lines, err = cli("apply", "#{@one}:\n  config:\n    retention.ms: tomorrow\n#{@two}:\n  partitions: 1\n", *BROKERS)
    assert_equal [1, ""], [status, err]
    assert_equal "create #{@two}: 1 partition", lines.first
    assert_match(/\AFAILED #{@one}: .*invalid_config/, lines.last)
  end

  def test_an_application_and_json
    app = <<~RUBY
      require "penstock/app"
      Penstock.app do |app|
        app.kafka = { "bootstrap.servers": #{SERVERS.inspect} }
        app.topics { |declare| declare.topic #{@one.inspect}, partitions: 2 }
        app.group("billing") { |group| group.topic #{@one.inspect}, to: ->(_) {} }
      end
    RUBY
    status, lines, = cli("apply", app, "--json", name: "app.rb")
    assert_equal 4, status
    assert_equal [{ "topic" => @one, "kind" => "create", "setting" => nil, "from" => nil, "to" => "2 partitions" }],
                 JSON.parse(lines.join).fetch("changes")
    eventually { cli("plan", app, name: "app.rb").first.zero? }
  end
end
