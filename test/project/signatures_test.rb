# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/limited"
begin
  require_relative "../support/signatures"
rescue LoadError => e
  raise unless e.path == "rbs"
end

# The signatures in sig/ and the code agree in names and in how methods may be called. And the checks find a signature that is
# wrong. The checks run in processes of their own: one loads what programs load on request only, and the parser of RBS does not
# survive a compaction of Ruby's heap.
class SignaturesTest < PenstockTest
  DIRECTORY = File.expand_path("../../sig", __dir__)

  def setup
    super
    skip "the library rbs is not installed" unless defined?(RBS)
  end

  # @param changes [Array<Array(String, String, String)>] see Signatures.with_changes
  # @return [Array<String>] findings
  def findings(changes = [])
    JSON.parse(ruby!(<<~RUBY, changes.to_json))
      require "json"
      require "penstock/testing"
      require "penstock/app"
      require "penstock/message_pack/core_ext"
      require #{File.join(__dir__, "../support/signature_checks").inspect}
      Signatures.with_changes(JSON.parse(ARGV[0])) { |signatures| puts SignatureChecks.new(signatures).call.to_json }
    RUBY
  end

  thorough def test_the_signatures_and_the_code_agree
    assert_empty findings
  end

  def test_the_gem_has_the_signatures
    shipped = Gem::Specification.load(File.join(__dir__, "../../penstock.gemspec")).files.grep(/\Asig/)
    assert_equal Dir.glob("**/*.rbs", base: DIRECTORY).map { |file| "sig/#{file}" }.sort, shipped.sort
  end

  # The checks believe the signatures of these two, as their default only leads to an error that helps.
  def test_keywords_that_a_signature_requires_although_they_have_a_default_are_required
    assert_raises(ArgumentError) { Penstock::Message.new }
    assert_raises(ArgumentError) { embedded_cluster.set_round_trip_time }
  end

  # One change of each kind that makes signatures wrong: the file, its text, another text in its place, and what is found.
  FAULTS = [
    ["producer", "    def purge: () -> Integer\n", "", "Penstock::Producer#purge has no signature"],
    ["instrumentation", "    def self.instance: () -> Poller\n", "", "Penstock::Poller.instance has no signature"],
    ["consumer", "    def unsubscribe:", "    def resubscribe: () -> self\n\n    def unsubscribe:",
     "Penstock::Consumer#resubscribe does not exist"],
    ["instrumentation", "add: (name name, ?name tag) -> self", "add: (name name) -> self",
     "Penstock::Tags#add: positional arguments: [1, 2], signature: [1, 1]"],
    ["consumer", "?async: boolish", "?asynchronous: boolish",
     "Penstock::Consumer#commit: keywords: [:async, :timeout], signature: [:asynchronous, :timeout]"],
    ["consumer", "close: (?timeout: timeout)", "close: (timeout: timeout)",
     "Penstock::Consumer#close: required keywords: [], signature: [:timeout]"],
    ["connection_pool", "    def with: [T] () { (Producer producer) -> T } -> T", "    def with: () -> untyped",
     "Penstock::ConnectionPool#with: a block: true, signature: false"],
    ["errors", "class QueueFullError < ProduceError", "class QueueFullError < UsageError",
     "Penstock::QueueFullError: superclass \"Penstock::ProduceError\", signature: \"Penstock::UsageError\""],
    ["producer", "    extend RequiresSuper\n", "",
     "Penstock::Producer: extending modules [\"Penstock::RequiresSuper\"], signature: []"],
    ["errors", "    ProducerUsedInParentProcess: singleton(Penstock::ForkedError)\n", "",
     "Penstock::Errors::ProducerUsedInParentProcess has no signature"],
    ["errors", "    ForkedError: singleton(Penstock::ForkedError)", "    ForkedError: singleton(Penstock::HookError)",
     "Penstock::Errors::ForkedError is no singleton(::Penstock::HookError)"],
    ["errors", "  class SignalTrapError", "  class HopeError < UsageError\n  end\n\n  class SignalTrapError",
     "Penstock::HopeError does not exist"]
  ].freeze

  slow def test_signatures_that_are_wrong_are_found
    assert_equal FAULTS.flat_map { |fault| fault.drop(3) }.sort, findings(FAULTS.map { |fault| fault.first(3) }).sort
  end

  slow def test_a_type_that_does_not_exist_is_found
    found = findings([["producer", "def purge: () -> Integer", "def purge: () -> Intiger"],
                      ["testing", "type failure = Symbol", "type failure = Simbol"]])
    assert_equal %w[Intiger Simbol], found.map { |line| line[/Could not find (?:::)?(\w+)/, 1] }.sort
  end

  # ---- arguments, blocks and results ----

  # @param directory [String] with signatures
  # @return [Array(String, Process::Status)]
  def signed(*arguments, directory: DIRECTORY)
    root = File.expand_path("../..", __dir__)
    command = [{ "PENSTOCK_SIGNATURES" => directory }, RbConfig.ruby, "-Ilib", "-Itest", "-rsupport/signed", *arguments]
    Limited.capture2e(*command, chdir: root)
  end

  # `rake test:signatures` does the same with more files.
  thorough slow def test_calls_of_other_tests_have_the_types_of_the_signatures
    files = %w[instrumentation/tags instrumentation/monitor consumer/message_new consumer/mark testing/clients_buffered]
            .map { |name| "test/#{name}_test.rb" }
    output, status = signed("-e", "ARGV.each { |file| require File.expand_path(file) }", *files)
    assert_predicate status, :success?, output
    assert_operator output[/signatures: (\d+) calls/, 1].to_i, :>, 1_000
  end

  CHANGES = [["instrumentation", "def to_a: () -> Array[String]", "def to_a: () -> Array[Symbol]"],
             ["instrumentation", "def include?: (name tag)", "def include?: (Integer tag)"],
             ["message_pack", "def packer: [T] () { (Packer packer)", "def packer: [T] () { (Unpacker packer)"],
             ["consumer", "def key: () -> String?", "def key: () -> String"]].freeze

  slow def test_calls_with_other_types_are_found
    Signatures.changed(CHANGES) do |directory|
      output, status = signed("-e", <<~RUBY, directory:)
        tags = Penstock::Tags.new.add(:a)
        tags.to_a
        tags.include?(:a)
        Penstock::MessagePack::Factory.new.pool.packer { nil }
        [Penstock::Message.new(topic: "t").key, Penstock::Message.new(topic: "t").payload]
      RUBY
      refute_predicate status, :success?
      %w[Tags#to_a Tags#include? Pool#packer Message#key].each { |name| assert_includes output, "#{name}]" }
      refute_includes output, "Message#payload"
    end
  end
end
