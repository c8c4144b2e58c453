# frozen_string_literal: true

require "open3"
require "tempfile"
require_relative "protocol"

# A peer, see bench/README.md: Apache Kafka's own producer performance tool, with the jars of bin/kafka. Each round runs the tool
# in a new Java process. The figures are those of what it calls its steady state, after warm-up records.
module JavaPeer
  KAFKA = File.expand_path("../../bin/kafka", __dir__)
  # Enough warm-up records for Java's compiler to be done (it is no faster with 1,000,000), and few enough not to keep the
  # broker's disk busy.
  WARM_UP = { records: 200_000, bytes: 50_000_000 }.freeze
  DIFFERS = ["one payload for all messages",
             "Kafka's ProducerPerformance: a callback for each message, which counts it",
             "its time begins while the last warm-up records are still in flight"].freeze
  RESULT = %r{^(?<records>\d+) steady state records sent, (?<rate>[\d.]+) records/sec}

  module_function

  def run
    options = Bench::Protocol.options(ARGV)
    Bench::Protocol.no_such_workload unless options.workload == "async"
    differs = [*DIFFERS, *("no keys" if options.key), *("no headers" if options.headers)]
    Tempfile.create("payload") do |payload|
      payload.write("x" * options.bytes)
      payload.flush
      tool(options, payload, records: 1, warm_up: 0)
      Bench::Protocol.serve(versions, differs) { round(options, payload) }
    end
  end

  def round(options, payload)
    warm_up = [WARM_UP[:records], WARM_UP[:bytes] / options.bytes].min
    output = tool(options, payload, records: options.messages, warm_up:)
    result = RESULT.match(output) or abort "no result:\n#{output}"
    delivered = Integer(result[:records])
    { seconds: options.messages / Float(result[:rate]), delivered:, failed: options.messages - delivered }
  end

  def tool(options, payload, records:, warm_up:)
    settings = options.set.map { |pair| pair.join("=") }
    # bin/kafka makes Java start fast. Here Java should run fast. Messages about failures go to stderr, which is inherited.
    output, status = Open3.capture2(KAFKA, "java", "-XX:TieredStopAtLevel=4", "org.apache.kafka.tools.ProducerPerformance",
                                    "--bootstrap-server", options.bootstrap, "--topic", options.topic, "--throughput", "-1",
                                    "--num-records", (records + warm_up).to_s, "--warmup-records", warm_up.to_s,
                                    "--payload-file", payload.path, "--command-property", "client.id=bench", *settings)
    status.success? or abort "the tool failed:\n#{output}"
    output
  end

  def versions
    jars, = Open3.capture2(KAFKA, "jars")
    java, = Open3.capture2e(KAFKA, "java", "-version")
    "Apache Kafka #{jars[/jars-([\d.]+)/, 1]}, Java #{java[/version "([^"]+)/, 1]}"
  end
end

JavaPeer.run
