# frozen_string_literal: true

class Runner
  # How busy this machine's processors are: with the tests, and with what else runs.
  class Processors
    # Shares of the processors' time, from 0 to 1.
    Shares = Struct.new(:idle, :tests)

    # @return [Shares, nil] since the call before; nil where it is not known
    def shares
      before = @times
      @times = read
      return unless before && @times

      idle, all, tests = @times.zip(before).map { |now, earlier| now - earlier }
      Shares.new(idle.to_f / all, tests.to_f / all) if all.positive?
    end

    private

    # @return [Array(Integer, Integer, Integer), nil] idle, whole time, and the tests' since the machine started, in ticks
    def read
      times = File.foreach("/proc/stat").first.split.drop(1).map(&:to_i)
      [times[3] + times[4], times.first(8).sum, tests] # without the time of guests, which is a part of the user's
    rescue SystemCallError
      nil
    end

    # What has run in this process's session, processes that have ended included.
    def tests
      session = nil
      Dir.glob("/proc/[0-9]*/stat").unshift("/proc/self/stat").sum do |file|
        fields = File.read(file).rpartition(")").last.split # the name before it may contain spaces
        session ||= fields[3]
        fields[3] == session && file != "/proc/self/stat" ? fields[11, 4].sum(&:to_i) : 0
      rescue SystemCallError
        0 # it has ended
      end
    end
  end
end
