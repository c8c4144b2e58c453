# frozen_string_literal: true

require "penstock"
require "penstock/testing"
require "rbs/test"
require_relative "signatures"

# Compares every call that a test file makes with sig/: its arguments, its block and its result.
#
#     ruby -Ilib -Itest -rsupport/signed test/consumer/batch_test.rb
#
# Prints each call that differs, and ends with status 1 if there is one. A call that raises may have any arguments, because tests
# make wrong calls on purpose. `rake test:signatures` does this with many files.
module Signed
  # Their writers accept anything: what is wrong raises when the client is made.
  UNCHECKED = /\APenstock::(?:\w*Config\b|OAuth\z|Middleware\z)/

  @calls = Thread::Queue.new
  @differences = Thread::Queue.new
  @process = Process.pid

  class << self
    attr_reader :calls, :differences

    # @param directory [String] with signatures
    def install(directory)
      RBS.logger_level = :error
      RBS::Test::Tester::MethodCallTester.prepend(Collecting)
      signatures = Signatures.new(directory)
      tester = RBS::Test::Tester.new(env: signatures.env)
      signatures.rooms.grep_v(UNCHECKED).select { |name| Object.const_defined?(name) }.each do |name|
        tester.install!(Object.const_get(name), sample_size: 10, unchecked_classes: [])
      end
      at_exit { report if Process.pid == @process }
    end

    private

    def report
      made = Array.new(calls.size) { calls.pop }
      found = Array.new(differences.size) { differences.pop }.tally
      puts "signatures: #{made.size} calls of #{made.uniq.size} methods, #{found.size} differences"
      puts(found.map { |difference, times| "#{times} times: #{difference}" })
      exit(false) if found.any?
    end
  end

  # Keeps the difference that RBS would raise as an error: a test could expect an error.
  module Collecting
    def call(receiver, trace)
      return if trace.method_call.exception?

      Signed.calls << [self_class, trace.method_name].freeze
      super
    rescue RBS::Test::Tester::TypeError => e
      Signed.differences << e.message
    end
  end
end

Signed.install(ENV.fetch("PENSTOCK_SIGNATURES", Signatures::DIRECTORY))
