# frozen_string_literal: true

require "open3"

# docs/evidence/safety.md, "The garbage collector".
namespace :test do
  desc "The tests of the garbage collector at each of its levels (PENSTOCK_GC)"
  task gc: :compile do
    # Those of the garbage collector put native classes under stress themselves.
    all = FileList["test/proofs/gc*_test.rb"]
    files = { "normal" => all, "compact" => all,
              "young" => FileList["test/producer/{delivery_handle,message}_test.rb", "test/errors/error_test.rb"] }
    counts = Hash.new(0)
    files.each do |level, tests|
      puts "---- PENSTOCK_GC=#{level}"
      output, status = Open3.capture2e({ "PENSTOCK_GC" => level }, "ruby", "test/run.rb", *tests)
      puts output
      abort "gc: level #{level} failed" unless status.success?

      output.scan(/(\d+) (runs|assertions|skips)/) { |count, what| counts[what] += count.to_i }
    end
    librdkafka = `ruby -Ilib -rpenstock -e 'print Penstock.librdkafka_version'`
    puts "gc: #{counts["runs"]} tests and #{counts["assertions"]} assertions at levels #{files.keys.join(", ")}, 0 failures, " \
         "#{counts["skips"]} skips; Ruby #{RUBY_VERSION}, librdkafka #{librdkafka}"
  end
end
