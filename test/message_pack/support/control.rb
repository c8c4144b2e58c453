# frozen_string_literal: true

# Runs the load of storm.rb with Marshal in place of Penstock, to show whether Ruby by itself crashes under it, or
# returns wrong values. A few dozen short runs show more than a long one.
#
#   ruby test/message_pack/support/control.rb [RACTORS [ROUND TRIPS OF EACH [COMPACT: yes or no]]]

Warning[:experimental] = false
module Penstock
  module MessagePack
    ExtensionValue = Struct.new(:type, :payload)
  end
end
require_relative "random"

ractors, size, compact = ARGV
made = Array.new(Integer(ractors || 8)) do |number|
  Ractor.new(number, Integer(size || 2_000)) do |seed, count|
    random = MessagePackRandom.new(seed, exact: true)
    values = Array.new(300) { random.object(3) }
    dumped = values.map { |value| Marshal.dump(value) }
    (0...count).count do |i|
      GC.start(full_mark: false) if (i % 997).zero?
      Marshal.load(dumped[i % 300]) != values[i % 300] # rubocop:disable Security/MarshalLoad -- our own
    end
  end
end
done = false
collected = 0
collecting = Thread.new do
  until done
    GC.start
    GC.compact unless compact == "no"
    Array.new(10_000) { |i| "garbage #{i}" }
    collected += 1
    sleep 0.02
  end
end
wrong = made.sum do |ractor|
  sleep 0.01 until ractor.inspect.end_with?(" terminated>") # polls like the storm, for the reason in ractor_wakeups.rb
  ractor.respond_to?(:value) ? ractor.value : ractor.take
end
done = true
collecting.join
puts "without Penstock: #{wrong} mismatches, #{collected} collections, compaction: #{compact || "yes"}, Ruby #{RUBY_VERSION}"
exit wrong.zero?
