# frozen_string_literal: true

# Prints how many messages a topic got in a range of time, by key, and how far it is. Without brokers it makes a cluster inside
# this process. (That one does not search by time, so the example then counts all messages.)
#
#   ruby examples/read_range.rb TOPIC [MINUTES] [BROKERS]
require "penstock"

topic = ARGV.fetch(0, "events")
since = Time.now - (Integer(ARGV.fetch(1, "60")) * 60)
servers = ARGV[2]
unless servers
  cluster = Penstock::EmbeddedCluster.new
  cluster.create_topic(topic, partitions: 3)
  producer = Penstock::Producer.new("bootstrap.servers": servers = cluster.bootstrap_servers)
  producer.produce_many_sync(Array.new(9_000) { |i| { topic:, key: "key-#{i % 3}", payload: i.to_s } })
  producer.close
end

told = 0.0
tell = lambda do |progress|
  next if progress.ratio - told < 0.1 && !progress.done?

  told = progress.ratio
  warn format("%3d %% of %d offsets", told * 100, progress.total)
end
from = cluster ? :beginning : since
counts = Penstock.read(topic, from:, progress: tell, "bootstrap.servers": servers).map(&:key).tally
counts.sort_by { |_, count| -count }.first(10).each { |key, count| puts "#{key.inspect} #{count}" }
cluster&.close
