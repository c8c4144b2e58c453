# frozen_string_literal: true

require_relative "../support/native_program"

# The core without Ruby under a sanitizer, for longer than the tests take:
# ruby test/proofs/native.rb thread|undefined|address [SECONDS]
# Each part has so many seconds, and so has each kind of storm.
module Native
  # All arguments of core_storm but its seconds.
  STORMS = [[0, 4, 16, 0, 0], [100_000, 4, 8, 1, 0], [100_000, 4, 8, 1, 1]].freeze

  module_function

  def call(sanitizer, seconds)
    within = 100 + (seconds * 25) # there are 18 parts, and the sanitizer slows down their ends
    results = [NativeProgram.new("core_parts", sanitizer).run(seconds, within:)]
    results += STORMS.map do |slice, clients, threads, *rest|
      NativeProgram.new("core_storm", sanitizer).run(slice, clients, threads, seconds, *rest, within:)
    end
    results.reject(&:passed?).each { |result| puts result.output[-20_000..] || result.output, *result.reports }
    puts "#{sanitizer} sanitizer: #{results.sum { |result| rounds(result) }} rounds of the parts and #{STORMS.size} storms, " \
         "#{results.sum { |result| result.reports.size }} reports, #{results.count { |result| !result.status.success? }} failed"
    results.all?(&:passed?)
  end

  def rounds(result) = result.output.scan(/^(?:[a-z]+|batches) (\d+)/).flatten.sum(&:to_i)
end

exit Native.call(ARGV.fetch(0), Integer(ARGV.fetch(1, "20"))) if $PROGRAM_NAME == __FILE__
