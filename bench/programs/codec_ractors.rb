# frozen_string_literal: true

# Round trips of a document in several Ractors, or processes, in parallel:
# ruby codec_ractors.rb SERVERS TOPIC DOCUMENT RACTORS|PROCESSES COUNT ROUND_TRIPS [SETTING=VALUE...].

require_relative "program"
require "penstock/message_pack" # at once, as only the main Ractor can load it
include BenchProgram # rubocop:disable Style/MixinUsage -- a program

Warning[:experimental] = false
NAME, KIND, *rest = ARGUMENTS
COUNT, ROUND_TRIPS = rest.map { |number| Integer(number) }
NUMBERS = { "integers" => Array.new(500) { |i| i * 1_001 }, "floats" => Array.new(500) { |i| i * 1.1 } }.freeze
DOCUMENT = { "user" => { "id" => 1, "name" => "Bob", "tags" => %w[a b c] }, "readings" => Array.new(40) { |i| i * 1_001 },
             "comment" => "x" * 200 }.freeze
DOCUMENTS = Ractor.make_shareable({ "numbers" => NUMBERS, "document" => DOCUMENT })

# The objects of the document, created by Ruby alone.
def literals(count)
  count.times do
    { "user" => { "id" => 1, "name" => +"Bob", "tags" => [+"a", +"b", +"c"] },
      "readings" => [*0..39], "comment" => "x" * 200 }
  end
end

# The work of each.
def round_trips(document, count)
  return literals(count) unless document

  packed = Penstock::MessagePack.pack(document)
  count.times { packed = Penstock::MessagePack.pack(Penstock::MessagePack.unpack(packed)) }
end

def in_ractors
  ractors = Array.new(COUNT) do
    Ractor.new(DOCUMENTS[NAME], ROUND_TRIPS) { |document, count| round_trips(document, count) }
  end
  ractors.each { |ractor| ractor.respond_to?(:value) ? ractor.value : ractor.take }
end

def in_processes
  pids = Array.new(COUNT) do
    fork do
      round_trips(DOCUMENTS[NAME], ROUND_TRIPS)
      exit!(0)
    end
  end
  pids.each { |pid| Process.wait2(pid).last.success? or abort "a process failed" }
end

rounds(COUNT * ROUND_TRIPS, ", #{KIND}") do
  KIND == "ractors" ? in_ractors : in_processes
  {}
end
