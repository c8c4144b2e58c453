# frozen_string_literal: true

require "tmpdir"
require_relative "../test_helper"
require "penstock/cli"

# `penstock topics`, without a real Kafka: integration/topics_command_test.rb has one.
class CLITopicsTest < PenstockTest
  YAML = "orders:\n  partitions: 3\n"
  SECRET = "geheim-4711"
  APP = <<~RUBY
    require "penstock/app"
    Penstock.app do |app|
      app.kafka = { "bootstrap.servers": "127.0.0.1:1" }
      app.topics { |declare| declare.topic "orders", partitions: 3 }
      app.group("billing") { |group| group.topic "orders", to: ->(_) {} }
    end
  RUBY

  # @return [Array(Integer, String, String)] the status, stdout and stderr
  def cli(*arguments, file: YAML, name: "topics.yml")
    Dir.mktmpdir do |directory|
      path = File.join(directory, name)
      File.write(path, file)
      out = StringIO.new
      err = StringIO.new
      status = Penstock::CLI.start(["topics", *arguments.map { |argument| argument.sub("FILE", path) }], out:, err:)
      [status, out.string, err.string]
    end
  end

  def cluster_with(partitions)
    own_cluster.tap { |own| own.create_topic("orders", partitions:) }.bootstrap_servers
  end

  def test_wrong_usage_is_named
    {
      [] => /requires plan or apply/, %w[look FILE] => /requires plan or apply/, %w[plan FILE more] => /one file/,
      %w[plan FILE] => /no cluster is named: use --bootstrap/, %w[plan /not/there.yml -b a:1] => /no file/,
      %w[plan FILE -b a:1 --timeout 0] => /--timeout must be/, %w[plan FILE -b a:1 --timeout 4000] => /--timeout must be/,
      %w[plan FILE -b a:1 --timeout soon] => /--timeout/, %w[plan FILE --nonsense] => /--nonsense/,
      %w[plan FILE -b a:1 -X acks] => /-X: expected NAME=VALUE/
    }.each do |arguments, text|
      status, out, err = cli(*arguments)
      assert_equal [2, ""], [status, out], arguments.inspect
      assert_match text, err
    end
  end

  def test_an_invalid_file_is_named
    status, out, err = cli("plan", "FILE", "-b", "127.0.0.1:1", file: "orders:\n  partitions: 0\n")
    assert_equal [2, ""], [status, out]
    assert_match(/topics\.yml: topic "orders": partitions must be/, err)
  end

  def test_a_kafka_that_is_away_is_a_failure_and_soon
    [%w[plan FILE -b 127.0.0.1:1], %w[apply FILE -b 127.0.0.1:1]].each do |arguments|
      status, out, err = nil
      elapsed = seconds_of { status, out, err = cli(*arguments) }
      assert_equal [1, ""], [status, out]
      assert_match(/\Apenstock: No broker could be reached/, err)
      assert_took(GCLevel.slow? ? 30 : 8, elapsed)
    end
  end

  def test_an_application_declares_topics_and_names_its_cluster
    status, _, err = cli("plan", "FILE", file: APP, name: "app.rb")
    assert_equal 1, status
    assert_match(/127\.0\.0\.1:1/, err)
    assert_match(/brokers 127\.0\.0\.1:1\b/, cli("plan", "-r", "FILE", file: APP, name: "app.rb")[2]) # as of `penstock server`
    status, _, err = cli("plan", "FILE", "-b", "127.0.0.1:2", file: APP, name: "app.rb")
    assert_equal 1, status
    assert_match(/127\.0\.0\.1:2/, err)
    # As with `-b "$KAFKA"` where the variable is not set: another cluster must not be changed.
    assert_match(/--bootstrap is empty/, cli("apply", "FILE", "-b", "", file: APP, name: "app.rb")[2])
    status, _, err = cli("plan", "FILE", file: APP.sub(/^  app\.topics.*\n/, ""), name: "app.rb")
    assert_equal 2, status
    assert_match(/declares no topics/, err)
    assert_match(/one application with Penstock.app, not 0/, cli("plan", "FILE", file: "", name: "app.rb")[2])
  end

  def test_no_secret_is_printed
    [["-X", "sasl.password=#{SECRET}", "-X", "security.protocol=nonsense"], ["-X", "sasl.pasword=#{SECRET}"],
     ["-X", "sasl.password=#{SECRET}", "-X", "sasl.username=u", "-X", "sasl.mechanism=PLAIN", "-X",
      "security.protocol=sasl_plaintext"], ["--password=#{SECRET}"], ["--timeout", SECRET], ["-X", SECRET]].each do |settings|
      status, out, err = cli("plan", "FILE", "-b", "127.0.0.1:1", "--timeout", "1", *settings)
      refute_equal 0, status
      refute_includes out + err, SECRET, settings.inspect
    end
  end

  # The embedded cluster describes topics, and no settings. Without topics that exist, none are asked for.
  def test_a_plan_is_printed_for_people_and_programs
    servers = own_cluster.bootstrap_servers
    assert_equal [4, "create orders: 3 partitions\n", ""], cli("plan", "FILE", "-b", servers)
    status, out, = cli("plan", "FILE", "-b", servers, "--json")
    assert_equal 4, status
    assert_equal [{ "topic" => "orders", "kind" => "create", "setting" => nil, "from" => nil, "to" => "3 partitions" }],
                 JSON.parse(out).fetch("changes")
  end
end
