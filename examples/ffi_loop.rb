# frozen_string_literal: true

# Looks for a defect of some ffi versions below 1.17, in the installed ffi: the field Hash of a struct's layout is freed
# while it is in use, because it was stored without a write barrier. Ruby then calls the object that takes its place:
# "undefined method 'default' for an instance of String", or Ruby crashes.
#
#   ruby examples/ffi_loop.rb [PROCESSES [SECONDS]]    the status is 1 if the defect occurred
#   gem install ffi -v 1.16.3 && ruby -e 'gem "ffi", "1.16.3"; load "examples/ffi_loop.rb"' 20 10
#
# It may take many processes: the garbage collector must begin at the moment in which a layout is filled. So a run without the
# defect proves little.

require "open3"
require "rbconfig"

begin
  require "ffi"
rescue LoadError
  warn "ffi is not installed: gem install ffi -v VERSION"
  exit 2
end

# The work of one process: four threads make struct classes, keep them for a while, and use them later.
module Churn
  FIELDS = { id: :long, size: :int, data: :pointer, next: :pointer }.freeze
  KEPT = 200

  def self.struct = Class.new(FFI::Struct) { layout(**FIELDS) }

  def self.thread(ends)
    kept = Array.new(KEPT) { struct }
    strings = Array.new(20_000)
    until Process.clock_gettime(Process::CLOCK_MONOTONIC) > ends
      i = rand(KEPT)
      found = FIELDS.keys.map { |name| kept[i].layout[name]&.name }
      raise "another object: #{found.inspect}" unless found == FIELDS.keys

      kept[i] = struct
      30.times { strings[rand(strings.size)] = "g" * 100 }
    end
  end

  def self.run(seconds)
    ends = Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds
    threads = Array.new(4) { Thread.new { thread(ends) } }
    threads.each { |thread| thread.report_on_exception = false }.each(&:join)
  end
end

if ENV["FFI_LOOP_CHILD"]
  Churn.run(Float(ARGV.fetch(0)))
  exit
end

processes = Integer(ARGV[0] || 20)
seconds = Float(ARGV[1] || 5)
program = %(gem("ffi", #{FFI::VERSION.dump}) if defined?(Gem); load(#{File.expand_path(__FILE__).dump}))
failed = Array.new(processes) do
  output, status = Open3.capture2e({ "FFI_LOOP_CHILD" => "1" }, RbConfig.ruby, "-e", program, seconds.to_s, rlimit_core: 0)
  puts output[/.*(\[BUG\]|Error).*/] || "#{status}: #{output.lines.first}" unless status.success?
  status.success? ? 0 : 1
end.sum
puts "ffi #{FFI::VERSION}: #{failed} of #{processes} processes saw another object"
exit(failed.zero? ? 0 : 1)
