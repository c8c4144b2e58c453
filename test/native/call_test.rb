# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/slow_calls"
require "tmpdir"

# Calls that a fiber makes on a separate thread. The fiber may be interrupted or collected before its call ends.
class CallTest < PenstockTest
  include SlowCalls

  LEAVING = <<~'RUBY'
    require ARGV.shift
    require "timeout"
    from, how = ARGV
    CLUSTER = Penstock::EmbeddedCluster.new
    File.write(from, "")

    def resident_mib = Integer(File.read("/proc/self/statm").split[1]) / 256

    class Forgetful < PlainScheduler
      def close = nil
    end

    # An interrupt reaches a fiber that waits for its call at once. The fiber still waits until the call ends.
    def interrupt
      Thread.new do
        scheduler = PlainScheduler.new
        Fiber.set_scheduler(scheduler)
        waiting = scheduler.fiber do
          CLUSTER.bootstrap_servers
          abort "it was not interrupted"
        rescue Interrupt
          nil
        end
        scheduler.interrupt(waiting, Interrupt)
      end.join
    end

    # The thread and its fibers end in the middle of their calls.
    def drop
      Thread.new do
        Fiber.set_scheduler(scheduler = Forgetful.new)
        fiber = Fiber.new(blocking: false) { CLUSTER.bootstrap_servers }
        fiber.resume
        abort "it does not wait" unless scheduler.waiting?(fiber)
      end.join
      GC.start
    end

    3.times { send(how) }
    before = resident_mib
    20.times { send(how) }
    sleep 0.05 until Dir["/proc/self/task/*/comm"].none? { |file| (File.read(file) rescue "").start_with?("penstock.call") }
    10.times { Thread.new { Array.new(200) { Fiber.new { 100.times.map(&:to_s) }.resume } }.join && GC.start }
    puts resident_mib - before
  RUBY

  # The result of a call has 4 MiB.
  { "interrupt" => "is_interrupted", "drop" => "is_dropped_by_its_scheduler" }.each do |how, what|
    define_method("test_the_result_of_a_call_whose_fiber_#{what}_is_freed") do
      Dir.mktmpdir do |path|
        scheduler = File.expand_path("../support/plain_scheduler.rb", __dir__)
        grown = slow!(LEAVING, scheduler, File.join(path, "slow"), how, bootstraps_ms: 30, from: File.join(path, "slow"))
        assert_operator Integer(grown), :<, 40, "MiB of the 80 MiB that 20 results take"
      end
    end
  end
end
