# frozen_string_literal: true

require_relative "test_helper"
begin
  require "rbs"
rescue LoadError => e
  raise unless e.path == "rbs"
end

# The signatures in sig/ and the code agree: in names, in how methods may be called, and in the types of real values. And the
# checks find a signature that is wrong.
class SignaturesTest < PenstockTest
  def setup
    super
    skip "the library rbs is not installed" unless defined?(RBS)
    require "penstock/testing"
    require_relative "support/signature_checks"
  end

  def self.signatures = @signatures ||= Signatures.new

  # ---- names, ancestors and parameters ----

  # For each of Penstock's public constants. This one loads what is loaded on request only, and so needs a process of its own.
  def test_the_signatures_and_the_code_agree
    found = JSON.parse(ruby!(<<~RUBY))
      require "penstock/testing"
      require "penstock/message_pack/core_ext"
      require #{File.join(__dir__, "support/signature_checks").inspect}
      puts SignatureChecks.new(Signatures.new).call.to_json
    RUBY
    assert_empty found
  end

  def test_the_gem_has_the_signatures
    shipped = Gem::Specification.load(File.join(__dir__, "../penstock.gemspec")).files.grep(/\Asig/)
    assert_equal Dir.glob("**/*.rbs", base: Signatures::DIRECTORY).map { |file| "sig/#{file}" }.sort, shipped.sort
  end

  def test_keywords_that_a_signature_requires_although_they_have_a_default_are_required
    assert_raises(ArgumentError) { Penstock::Message.new }
    assert_raises(ArgumentError) { embedded_cluster.set_round_trip_time }
    assert_equal 2, SignatureChecks::CHECKED_KEYWORDS.size
  end

  def test_a_variant_sends_like_its_producer
    sending = self.class.signatures.own_methods("Penstock::Producer::Variant", :instance) &
              self.class.signatures.own_methods("Penstock::Producer", :instance) - %i[initialize inspect]
    assert_includes sending, :produce_sync
    types = %w[Penstock::Producer Penstock::Producer::Variant].map do |name|
      sending.map { |method| [method, self.class.signatures.methods_of(name, :instance)[method].method_types.map(&:to_s)] }
    end
    assert_equal(*types)
  end

  # Changes that make signatures wrong: the file, its text, another text in its place, and what is found.
  FAULTS = [
    # a method without a signature
    ["producer", "    def purge: () -> Integer\n", "", "Penstock::Producer#purge has no signature"],
    ["instrumentation", "    def self.instance: () -> Poller\n", "", "Penstock::Poller.instance has no signature"],
    ["config", "attr_accessor wait_backoff_on_queue_full", "attr_reader wait_backoff_on_queue_full",
     "Penstock::Config#wait_backoff_on_queue_full= has no signature"],
    ["delivery", "    attr_accessor unsent: Integer\n", "    attr_writer unsent: Integer\n",
     "Penstock::CloseReport#unsent has no signature"],
    ["listeners", "      def on_producer_closing: (Event event) -> untyped\n", "",
     "Penstock::Listeners::Logger#on_producer_closing has no signature"],
    # a signature without a public method
    ["consumer", "    def unsubscribe:", "    def resubscribe: () -> self\n\n    def unsubscribe:",
     "Penstock::Consumer#resubscribe does not exist"],
    ["consumer", "    def unsubscribe:", "    def poll_unless_closed: () -> self\n\n    def unsubscribe:",
     "Penstock::Consumer#poll_unless_closed does not exist"],
    ["testing", "    def close:", "    def self.error_codes: () -> untyped\n\n    def close:",
     "Penstock::EmbeddedCluster.error_codes does not exist"],
    # other arguments
    ["instrumentation", "add: (name name, ?name tag) -> self", "add: (name name) -> self",
     "Penstock::Tags#add: positional arguments: [1, 2], signature: [1, 1]"],
    ["message_pack", "write_ext: (Integer type, String payload)", "write_ext: (Integer type)",
     "Penstock::MessagePack::Packer#write_ext: positional arguments: [2, 2], signature: [1, 1]"],
    ["consumer", "position: (name topic, Integer partition)", "position: (name topic, ?Integer partition)",
     "Penstock::Consumer#position: positional arguments: [2, 2], signature: [1, 2]"],
    ["consumer", "?async: boolish", "?asynchronous: boolish",
     "Penstock::Consumer#commit: keywords: [:async, :timeout], signature: [:asynchronous, :timeout]"],
    ["consumer", "(name topic, Array[Integer] | Integer partitions, ?timeout:",
     "(name topic, Array[Integer] | Integer partitions, timeout:",
     "Penstock::Consumer#committed: required keywords: [], signature: [:timeout]"],
    ["testing", "set_round_trip_time: (seconds: Numeric", "set_round_trip_time: (?seconds: Numeric",
     "Penstock::EmbeddedCluster#set_round_trip_time: required keywords: [:seconds], signature: []"],
    ["connection_pool", "    def with: [T] () { (Producer producer) -> T } -> T", "    def with: () -> untyped",
     "Penstock::ConnectionPool#with: a block: true, signature: false"],
    ["producer", "def queue_size: () -> Integer", "def queue_size: () { () -> void } -> Integer",
     "Penstock::Producer#queue_size: a block: false, signature: true",
     "Penstock::Producer#queue_length: a block: false, signature: true"],
    # other ancestors
    ["errors", "class QueueFullError < ProduceError", "class QueueFullError < UsageError",
     "Penstock::QueueFullError: superclass \"Penstock::ProduceError\", signature: \"Penstock::UsageError\""],
    ["errors", "  class ConsumeTimeoutError < ConsumeError\n    include TimeoutError\n",
     "  class ConsumeTimeoutError < ConsumeError\n",
     "Penstock::ConsumeTimeoutError: included modules [\"Penstock::TimeoutError\"], signature: []"],
    ["producer", "    extend RequiresSuper\n", "",
     "Penstock::Producer: extending modules [\"Penstock::RequiresSuper\"], signature: []"],
    # other constants
    ["errors", "  class ForkedError < UsageError\n  end\n", "", "Penstock::ForkedError has no signature"],
    ["errors", "    ProducerUsedInParentProcess: singleton(Penstock::ForkedError)\n", "",
     "Penstock::Errors::ProducerUsedInParentProcess has no signature"],
    ["errors", "    ForkedError: singleton(Penstock::ForkedError)", "    ForkedError: singleton(Penstock::HookError)",
     "Penstock::Errors::ForkedError is no singleton(::Penstock::HookError)"],
    ["errors", "  class SignalTrapError", "  class HopeError < UsageError\n  end\n\n  class SignalTrapError",
     "Penstock::HopeError does not exist"],
    ["producer", "      TOPIC_SETTINGS: Array[Symbol]\n", "", "Penstock::Producer::Variant::TOPIC_SETTINGS has no signature"],
    ["producer", "MOST: Integer", "MOST: String", "Penstock::Producer::Variant::MOST is no ::String"]
  ].freeze

  def test_signatures_that_are_wrong_are_found
    Signatures.with_changes(FAULTS.map { |fault| fault.first(3) }) do |signatures|
      assert_equal FAULTS.flat_map { |fault| fault.drop(3) }.sort, SignatureChecks.new(signatures).call.sort
    end
  end

  def test_a_type_that_does_not_exist_is_found
    changes = [["producer", "def purge: () -> Integer", "def purge: () -> Intiger"],
               ["testing", "type failure = Symbol", "type failure = Simbol"]]
    Signatures.with_changes(changes) do |signatures|
      found = SignatureChecks.new(signatures).call
      assert_equal %w[Intiger Simbol], found.map { |line| line[/Could not find (?:::)?(\w+)/, 1] }.sort
    end
  end
end
