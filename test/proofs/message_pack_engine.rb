# frozen_string_literal: true

require_relative "../support/native_program"

# The engines of Penstock::MessagePack without Ruby, under AddressSanitizer and UndefinedBehaviorSanitizer:
#
# ruby test/proofs/message_pack_engine.rb [SECONDS] for each timed part of test/message_pack/c/parts.c
module MessagePackEngine
  ENGINES = "message_pack/engine_*.c"
  PARTS = %w[borders limits documents beginnings mutants noise].freeze
  CORPUS = File.join(NativeProgram::ROOT, "test/message_pack/corpus")

  module_function

  # @return [NativeProgram::Result]
  def parts(seconds) = program("parts").run(seconds, within: 60 + (seconds * PARTS.size))

  # @return [NativeProgram::Result] of the inputs that the fuzzer has kept, run without the fuzzer
  def replay = program("fuzz").run(*corpus)

  # @return [Array<String>]
  def corpus = Dir[File.join(CORPUS, "*")].sort

  def program(name) = NativeProgram.new("test/message_pack/c/#{name}.c", "address,undefined", alone: ENGINES)

  def call(seconds)
    results = [parts(seconds), replay]
    results.reject(&:passed?).each { |result| puts result.output[-20_000..] || result.output }
    rounds = results.first.output.scan(/^(?:#{PARTS.join("|")}) (\d+)/).flatten.sum(&:to_i)
    puts "msgpack engine: #{rounds} rounds of #{PARTS.size} parts, #{corpus.size} inputs of the corpus, " \
         "#{results.count { |result| !result.passed? }} failed"
    results.all?(&:passed?)
  end
end

exit MessagePackEngine.call(Integer(ARGV.fetch(0, "20"))) if $PROGRAM_NAME == __FILE__
