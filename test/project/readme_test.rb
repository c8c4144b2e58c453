# frozen_string_literal: true

require_relative "../test_helper"

class ReadmeTest < PenstockTest
  ROOT = File.expand_path("../..", __dir__)
  README = File.read(File.join(ROOT, "README.md"))

  # Each runs as a separate program. "localhost:9092" becomes an embedded cluster.
  SNIPPETS = README.scan(/^```ruby\n(.*?)^```/m).flatten.freeze
  CLUSTER = "require \"penstock\"\ncluster = Penstock::EmbeddedCluster.new\n"

  # @return [String] the output of the snippet between these lines
  def output_of(number, before: CLUSTER, after: "")
    ruby!([before, SNIPPETS.fetch(number).gsub('"localhost:9092"', "cluster.bootstrap_servers"), after].join("\n"))
  end

  def test_the_quick_start_sends_its_messages
    assert_match(/\Astored at offset 0 of partition \d\npersisted\n1000 delivered\n\z/, output_of(0))
  end

  slow def test_the_application_processes_and_stops_at_a_signal
    before = <<~RUBY
      #{CLUSTER}
      producer = Penstock::Producer.new("bootstrap.servers": cluster.bootstrap_servers)
      producer.produce_many_sync(Array.new(3) { |i| { topic: "events", key: "k", payload: "message \#{i}", partition: 0 } })
      def puts(text)
        $stdout.puts text
        Process.kill("TERM", Process.pid) if text.end_with?("2")
      end
    RUBY
    assert_equal [0, 1, 2].map { |i| "events/0/#{i}: message #{i}" }, output_of(1, before:).lines(chomp: true)
  end

  slow def test_the_consumer_processes_commits_and_stops_at_a_signal
    before = <<~RUBY
      #{CLUSTER}
      producer = Penstock::Producer.new("bootstrap.servers": cluster.bootstrap_servers)
      producer.produce_many_sync(Array.new(3) { |i| { topic: "events", payload: "message \#{i}", partition: 0 } })
      $processed = []
      def process(message)
        $processed << message.payload
        Process.kill("TERM", Process.pid) if $processed.size == 3
      end
    RUBY
    after = <<~RUBY
      puts $processed, consumer.closed?
      again = Penstock::Consumer.new("bootstrap.servers": cluster.bootstrap_servers, "group.id": "billing")
      puts again.committed("events", 0)[0]
    RUBY
    assert_equal ["message 0", "message 1", "message 2", "true", "3"], output_of(2, before:, after:).lines(chomp: true)
  end

  slow def test_the_rails_initializer_makes_a_producer_that_delivers
    before = "#{CLUSTER}ENV[\"KAFKA\"] = cluster.bootstrap_servers"
    after = "puts PRODUCER.produce_sync(topic: \"events\", payload: \"x\").persisted?"
    assert_equal "true\n", output_of(3, before:, after:)
  end

  slow def test_the_embedded_cluster_needs_nothing_else
    assert_equal "read hello\n", output_of(4, before: "")
  end

  README.scan(%r{bin/\w+}).uniq.each do |command|
    define_method(:"test_#{command.tr("/", "_")}_exists_and_prints_its_usage") do
      output, status = Limited.capture2e(File.join(ROOT, command), "--help")
      assert_predicate status, :success?, output
      assert_match(/\Ausage: #{command}/i, output)
    end
  end

  thorough slow def test_bin_demo_delivers_everything_and_ends_with_its_figures_as_json
    output, errors, status = Limited.capture3(File.join(ROOT, "bin/demo"), "--rounds", "2", "--json")
    assert_predicate status, :success?, errors
    figures = JSON.parse(output.lines.last)
    assert_equal [25, 50_000, 50_000, 0, 50_000, 0],
                 figures.values_at("producers", "messages", "delivered", "failed", "read", "lag")
    assert_operator figures.fetch("sync_latency_ms"), :>, 0
    assert_equal [0, 1, 0], figures.values_at("ruby_threads_added", "native_pollers", "missed_wakeups")
  end

  thorough slow def test_bin_demo_app_loses_nothing_and_keeps_the_order
    output, errors, status = Limited.capture3(File.join(ROOT, "bin/demo"), "--app", "--seconds", "10", "--rate", "100", "--json")
    assert_predicate status, :success?, "#{output}#{errors}"
    figures = JSON.parse(output.lines.last)
    assert_equal [0, 10, 0], figures.values_at("lost", "dead", "out_of_order")
    assert_operator figures.fetch("sent"), :>=, 1_000
  end

  # With the embedded cluster in place of the one that the commands name.
  def test_the_penstock_commands_run_and_find_no_problem
    commands = README.scan(/^penstock (.+)$/).flatten.map { |line| line.sub(/ +#.*/, "").split }
    refute_empty commands
    commands.each do |arguments|
      arguments.map! { |one| one == "kafka.example:9092" ? embedded_cluster.bootstrap_servers.split(",").first : one }
      command = [{ "BUNDLE_GEMFILE" => nil }, RbConfig.ruby, "-w", "-I", File.join(ROOT, "lib"), File.join(ROOT, "exe/penstock")]
      output, status = Limited.capture2e(*command, *arguments, chdir: File.join(ROOT, "docs")) # a directory without a bundle
      assert_predicate status, :success?, output
    end
  end
end
