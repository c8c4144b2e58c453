# frozen_string_literal: true

# Without Penstock: Ractors end while the main Ractor waits for them, has other threads, and the GC runs. With "take", which a
# Ractor's end wakes, Ruby 3.3 and 3.4 hang within seconds. With "look", which polls, they do not, so the tests poll for Ractors.
#
#   timeout 60 ruby test/support/ractor_wakeups.rb take|look [SECONDS]
#
# A thread of the main Ractor that returns from a sleep holds the lock of its Ractor's scheduler. Meanwhile it waits for the GC,
# which waits for all running Ractors. The ending Ractor is among them, and waits for that lock in order to wake the main Ractor.

Warning[:experimental] = false
how, seconds = ARGV
2.times { Thread.new { loop { sleep 0.0001 } } }
Ractor.new do
  loop do
    GC.start(full_mark: false)
    sleep 0.001
  end
end
deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + Integer(seconds || 20)
rounds = 0
while Process.clock_gettime(Process::CLOCK_MONOTONIC) < deadline
  made = Array.new(3) { Ractor.new { sleep 0.0001 } }
  made.each { |ractor| sleep 0.0005 until ractor.inspect.end_with?(" terminated>") } if how == "look"
  made.each { |ractor| ractor.respond_to?(:value) ? ractor.value : ractor.take }
  rounds += 1
end
puts "#{how}: #{rounds} rounds, #{GC.count} collections, Ruby #{RUBY_VERSION}"
$stdout.flush
exit!(true) # a Ractor does not end
