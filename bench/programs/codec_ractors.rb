# frozen_string_literal: true

# Round trips of a document in so many Ractors at once: ruby codec_ractors.rb SERVERS TOPIC RACTORS [SETTING=VALUE...].

require_relative "program"
include BenchProgram # rubocop:disable Style/MixinUsage -- a program

Warning[:experimental] = false
RACTORS = Integer(ARGUMENTS[0])
ROUND_TRIPS = 200_000

DOCUMENT = Ractor.make_shareable({ "user" => { "id" => 1, "name" => "Bob", "tags" => %w[a b c] },
                                   "readings" => Array.new(40) { |i| i * 1_001 }, "comment" => "x" * 200 })

# What one Ractor does.
def round_trips(count)
  packed = Penstock::MessagePack.pack(DOCUMENT)
  count.times { packed = Penstock::MessagePack.pack(Penstock::MessagePack.unpack(packed)) }
  packed.bytesize
end

rounds(RACTORS * ROUND_TRIPS, ", #{RACTORS} Ractors") do
  ractors = Array.new(RACTORS) { Ractor.new(ROUND_TRIPS) { |count| round_trips(count) } }
  ractors.each { |ractor| ractor.respond_to?(:value) ? ractor.value : ractor.take }
  {}
end
