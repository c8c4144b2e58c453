# frozen_string_literal: true

# What each client costs its process: memory, descriptors, librdkafka's threads; and Penstock's threads for all of them.
#
#   ruby -Ilib bench/footprint.rb [CLIENTS=50] [BOOTSTRAP_SERVERS]
#
# Each row is a process of its own. Without servers it starts an embedded cluster of one broker, also in a process of its own.
require "penstock"

# See above.
module Footprint
  module_function

  KINDS = {
    "a producer, connected" => lambda do |kafka|
      Penstock::Producer.new(**kafka).tap { |one| one.produce_sync(topic: "footprint", payload: "x") }
    end,
    "a consumer, assigned" => lambda do |kafka|
      consumer = Penstock::Consumer.new { |config| config.kafka = { **kafka, "group.id": "footprint" } }
      consumer.tap { |one| one.assign("footprint" => [0]) && one.poll(timeout: 1) }
    end,
    "an admin client, connected" => ->(kafka) { Penstock::Admin.new { |config| config.kafka = kafka }.tap(&:cluster) }
  }.freeze

  def usage
    names = Dir["/proc/self/task/*/comm"].map { |path| File.read(path).chomp }
    { kilobytes: File.read("/proc/self/status")[/^VmRSS:\s+(\d+)/, 1].to_i, descriptors: Dir.children("/proc/self/fd").size,
      librdkafkas: names.grep(/\Ardk:/).size, penstocks: names.grep(/\Apenstock/).tally }
  end

  # One client first: what the process has anyway is no client's.
  def measure(kind, count, servers)
    kafka = { "bootstrap.servers": servers }
    clients = [KINDS.fetch(kind).call(kafka)]
    settle
    before = usage
    count.times { clients << KINDS.fetch(kind).call(kafka) }
    settle
    after = usage
    each = %i[kilobytes librdkafkas descriptors].to_h { |what| [what, (after[what] - before[what]) / count.to_f] }
    threads = after[:penstocks].map { |name, number| "#{name} #{number}" }.join(", ")
    puts format("%-28<kind>s %9<kilobytes>.0f %14<descriptors>.1f %21<librdkafkas>.1f   %<threads>s", kind:, threads:, **each)
    $stdout.flush
    exit!(true)
  end

  def settle
    sleep 1.5 # connections of other brokers, and one-time work
    GC.start
  end

  def call(count, servers)
    cluster = IO.popen([RbConfig.ruby, "-I", $LOAD_PATH.first, __FILE__, "--cluster"], "r+") unless servers
    servers ||= cluster.gets.chomp
    puts format("%-28s %9s %14s %21s   %s", "each", "kilobytes", "descriptors", "librdkafka's threads", "Penstock's, of all")
    KINDS.each_key { |kind| Process.wait(fork { measure(kind, count, servers) }) }
  ensure
    cluster&.close
  end

  def run_cluster
    cluster = Penstock::EmbeddedCluster.new(brokers: 1)
    cluster.create_topic("footprint", partitions: 1)
    $stdout.syswrite("#{cluster.bootstrap_servers}\n")
    $stdin.read
  end
end

if ARGV == ["--cluster"]
  Footprint.run_cluster
else
  Footprint.call(Integer(ARGV.fetch(0, "50")), ARGV[1])
end
