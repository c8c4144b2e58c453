# frozen_string_literal: true

require_relative "../test_helper"
require "securerandom"

# Declared topics, compared with a cluster and applied to it.
class AdminPlanTest < PenstockTest
  SERVERS = ENV.fetch("PENSTOCK_KAFKA") { abort "test/integration needs a Kafka: run bin/test, or set PENSTOCK_KAFKA" }

  def setup
    super
    @admin = Penstock::Admin.new("bootstrap.servers": SERVERS)
    @one, @two = Array.new(2) { "penstock-plan-#{SecureRandom.hex(6)}" }
  end

  def teardown
    @admin.delete_topics(@one, @two)
    @admin.close
    super
  end

  def catalog(&block) = Penstock::Admin::TopicCatalog.new(&block)

  def test_applies_what_is_declared_and_then_nothing_more
    declared = catalog do |declare|
      declare.topic @one, partitions: 2, replication_factor: 1, config: { "retention.ms" => 60_000 }
      declare.topic @two
    end
    assert_equal [[@one, :create], [@two, :create]], kinds(@admin.plan(declared))
    assert_predicate @admin.topics(@one).errors.fetch(@one), :itself, "a plan changes nothing"

    assert_equal [@one, @two], @admin.apply(declared).raise!.keys
    assert_equal 2, @admin.topic(@one).partitions.size
    eventually { @admin.plan(declared).empty? } # a broker reads settings from its own copy of the metadata
    assert_predicate @admin.apply(declared), :empty?
  end

  def test_changes_what_differs
    @admin.create_topic(@one, partitions: 1, config: { "retention.ms" => 1_000, "cleanup.policy" => "compact" })
    declared = catalog { |declare| declare.topic @one, partitions: 3, config: { "retention.ms": 2_000, "cleanup.policy": nil } }

    expected = [[@one, :add_partitions], [@one, :set], [@one, :unset]]
    plan = eventually { @admin.plan(declared).then { |one| one if kinds(one) == expected } }
    assert_match(/from 1 to 3 partitions/, plan.to_s)
    @admin.apply(declared).raise!
    eventually { @admin.topic(@one).partitions.size == 3 } # as above
    eventually { @admin.plan(declared).empty? }
  end

  # Brokers write these values in another form.
  def test_values_in_any_form_are_applied_once
    declared = catalog do |declare|
      declare.topic @one, config: { "min.cleanable.dirty.ratio": 1, "cleanup.policy": "compact, delete", "preallocate" => "FALSE",
                                    "flush.ms" => "0070" }
    end
    @admin.apply(declared).raise!
    eventually { @admin.topic_config(@one)["min.cleanable.dirty.ratio"].source == :topic }
    assert_equal "nothing to change", @admin.plan(declared).to_s
  end

  def test_leaves_alone_what_is_not_declared_unless_the_declaration_is_exact
    @admin.create_topic(@one, partitions: 1, config: { "retention.ms" => 1_000 })
    assert_predicate @admin.plan(catalog { |declare| declare.topic @one }), :empty?

    exact = catalog { |declare| declare.topic @one, exact: true }
    eventually { kinds(@admin.plan(exact)) == [[@one, :unset]] }
    @admin.apply(exact).raise!
    eventually { @admin.plan(exact).empty? } # as above
  end

  def test_what_cannot_be_done_changes_nothing
    @admin.create_topic(@one, partitions: 3)
    declared = catalog do |declare|
      declare.topic @one, partitions: 2, replication_factor: 2
      declare.topic @two, partitions: 1
    end
    assert_equal %i[fewer_partitions replication_factor], @admin.plan(declared).impossible.map(&:kind)
    error = assert_raises(Penstock::AdminError) { @admin.apply(declared) }
    assert_equal :impossible, error.code
    assert_equal [@two], @admin.topics(@one, @two).errors.keys

    assert_equal [@two], @admin.apply(declared, skip_impossible: true).raise!.keys
  end

  def test_several_may_apply_the_same_at_once
    declared = catalog do |declare|
      declare.topic @one, partitions: 2, config: { "retention.ms" => 5_000 }
      declare.topic @two, partitions: 4
    end
    @admin.create_topic(@one, partitions: 1)
    results = Array.new(4) { Thread.new { @admin.apply(declared) } }.map(&:value)
    assert_empty results.flat_map { |result| result.errors.to_a }
    assert_predicate @admin.plan(declared), :empty?
  end

  private

  def kinds(plan) = plan.changes.map { |change| [change.topic, change.kind] }
end
