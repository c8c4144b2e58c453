# frozen_string_literal: true

class Runner
  # How busy this machine's processors are, whoever uses them.
  class Processors
    # @return [Float] the share of time that they have been idle since the call before, from 0 to 1; 0 where it is not known
    def idle
      before = @times
      @times = read
      return 0.0 unless before && @times

      idle, all = @times.zip(before).map { |now, earlier| now - earlier }
      all.positive? ? idle.to_f / all : 0.0
    end

    private

    # @return [Array(Integer, Integer), nil] idle and whole time since the machine started
    def read
      times = File.foreach("/proc/stat").first.split.drop(1).map(&:to_i)
      [times[3] + times[4], times.first(8).sum] # without the time of guests, which is a part of the user's
    rescue SystemCallError
      nil
    end
  end
end
