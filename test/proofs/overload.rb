# frozen_string_literal: true

require "tmpdir"
require "penstock"
require_relative "support/overload"
require_relative "../support/reader"

# The long versions of test/proofs/overload_test.rb. Each ends with a line of its figures.
#
#   rake test:overload [PART=queue,payloads,handles,idle,spin,names] [MINUTES=10]
parts = ENV.fetch("PART", "queue,payloads,handles,idle,spin,names").split(",")
minutes = Float(ENV.fetch("MINUTES", "10"))
$stdout.sync = true
cluster = Penstock::EmbeddedCluster.new(brokers: 1)
overload = Overload.new(cluster.bootstrap_servers)
topic = ->(part, partitions = 1) { "overload-#{part}".tap { |name| cluster.create_topic(name, partitions:) } }
figures = {
  "queue" => lambda do
    Dir.mktmpdir do |dir|
      counts = overload.run(Overload::QUEUE, topic["queue"], 20_000, "#{dir}/delivered", seconds: 600)
      stored = Reader.new(cluster.bootstrap_servers).read("overload-queue").map(&:payload).grep_v(/first/)
      delivered = %w[wait raise drop].flat_map { |policy| File.readlines("#{dir}/delivered.#{policy}", chomp: true) }
      abort "queue: #{delivered.size} were reported as delivered, #{stored.size} are stored" unless delivered.sort == stored.sort
      "queue of 50, 4 threads, 20,000 messages with each policy: #{counts.map { |pair| pair.join(" ") }.join(", ")}; each " \
        "message reported as delivered is stored once, and no other"
    end
  end,
  "payloads" => lambda do
    found = overload.run(Overload::PAYLOADS, topic["payloads"], 500, 6, seconds: 1_200)
    format("%<messages>s payloads of 1 MB: resident memory grew by %<grown_kb>s kB in phases of 500, peak %<peak_kb>s kB", found)
  end,
  "handles" => lambda do
    found = overload.run(Overload::HANDLES, topic["handles"], 100_000, 5, seconds: 1_200)
    format("%<messages>s handles without a waiter: resident memory grew by %<grown_kb>s kB in phases of 100,000; " \
           "%<left>s handles left", found)
  end,
  "idle" => lambda do
    found = overload.run(Overload::IDLE, topic["idle"], 100, 30, (minutes * 2).to_i, seconds: (minutes * 60) + 300)
    format("%<seconds>s s idle with statistics each 100 ms and debug: all, without a listener: %<events>s events, resident " \
           "memory %<resident_kb>s kB, in the second half %<slope_kb_per_minute>s kB a minute (%<grown_kb>s)", found)
  end,
  "spin" => lambda do
    found = overload.run(Overload::SPIN, topic["spin", 4], 60, seconds: 180)
    format("a thread polled four consumers %<polls>s times in %<seconds>s s and never slept: four producers delivered " \
           "%<delivered>s messages meanwhile, with no gap above %<stall_s>s s, and it consumed %<consumed>s, with none above " \
           "%<reading_stall_s>s s", found)
  end,
  "names" => lambda do
    found = overload.run(Overload::NAMES, topic["names"], 1_000, 10_000, 99, seconds: 1_200)
    format("%<topics>s topics and messages of %<fibers>s fibers: in the second half of 100 rounds there were %<half_objects>s " \
           "more objects, and %<half_kb>s kB more of memory; %<clients>s clients left", found)
  end
}
begin
  parts.each { |part| puts "overload #{part}: #{figures.fetch(part).call}" }
ensure
  cluster.close
end
puts "Ruby #{RUBY_VERSION}, librdkafka #{Penstock.librdkafka_version}"
