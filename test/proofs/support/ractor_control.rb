# frozen_string_literal: true

# Runs the load of the storm (ractor_storm.rb) without Penstock, to show whether Ruby by itself crashes or hangs under it.
#
#   ruby test/proofs/support/ractor_control.rb [RACTORS [ROUNDS [COMPACT: yes or no]]]

Warning[:experimental] = false
ractors, rounds, compact = ARGV

made = Array.new(Integer(ractors || 8)) do |number|
  Ractor.new(number, Integer(rounds || 5_000)) do |own, count|
    count.times do |i|
      message = { topic: "storm", payload: "#{own} #{i}#{" " * (i % 300)}", headers: { "ractor" => [own.to_s, i.to_s] } }
      message.to_h { |key, value| [key.to_s, value.dup] }
      "k#{i}".to_sym if (i % 10).zero?
      sleep 0.0002 if (i % 20).zero? # without the GVL
      begin
        raise ArgumentError, "now and then" if (i % 100).zero?
      rescue ArgumentError => e
        e.message
      end
    end
    count
  end
end
done = false
collected = 0
collecting = Thread.new do
  until done
    GC.start
    GC.compact unless compact == "no"
    collected += 1
    sleep 0.02
  end
end
sum = made.sum do |ractor|
  sleep 0.01 until ractor.inspect.end_with?(" terminated>") # polls like the storm, for the reason in ractor_wakeups.rb
  ractor.respond_to?(:value) ? ractor.value : ractor.take
end
done = true
collecting.join
puts "without Penstock: #{sum} rounds, #{collected} collections#{" with compaction" unless compact == "no"}, Ruby #{RUBY_VERSION}"
