# frozen_string_literal: true

module Penstock
  module Doctor
    # Checks the clocks, and whether they ran at the same rate during the examination. It cannot check whether the time is right.
    # @api private
    class Clock
      SOURCE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
      SLOW = %w[hpet acpi_pm jiffies refined-jiffies].freeze
      JUMP = 0.01 # seconds
      private_constant :SOURCE, :SLOW, :JUMP

      # @param read [Proc] returns the time of the monotonic and the wall clock, in seconds
      # @param source [String, nil] the system's source of monotonic time
      def initialize(read: method(:read_both), source: File.exist?(SOURCE) ? File.read(SOURCE).chomp : nil)
        @read = read
        @source = source
        @start = read.call
      end

      # @return [Array<Fact>]
      def facts = [monotonic, wall]

      private

      def monotonic
        resolution = (Process.clock_getres(Process::CLOCK_MONOTONIC) * 1e9).round
        text = "#{@source || "source not known"}, resolution #{resolution} ns"
        return Fact.ok("monotonic clock", text) unless SLOW.include?(@source)

        Fact.note("monotonic clock", "#{text}: reading it asks the kernel, and takes far longer than tsc or a hypervisor's clock")
      end

      def wall
        passed, passed_on_wall = @read.call.zip(@start).map { |now, before| now - before }
        apart = passed_on_wall - passed
        over = format("over the %.1f s that this took", passed)
        if apart.abs < JUMP
          return Fact.ok("wall clock",
                         "no jump #{over} (#{format("%+.2f", apart * 1000)} ms); whether it is right cannot be seen here")
        end

        Fact.problem("wall clock", format("it was set by %+.0f ms, #{over}", apart * 1000),
                     "Let NTP steer it slowly: timestamps of messages, tokens and certificates go by it.")
      end

      # Of some tries the one with the least time between the two readings: a busy machine interrupts the others.
      def read_both
        Array.new(5) do
          before, wall, after = [Process::CLOCK_MONOTONIC, Process::CLOCK_REALTIME, Process::CLOCK_MONOTONIC].map do |clock|
            Process.clock_gettime(clock)
          end
          [after - before, [(before + after) / 2, wall]]
        end.min.last
      end
    end
  end
end
