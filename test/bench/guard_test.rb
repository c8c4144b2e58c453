# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/made_up_result"
require_relative "../../bench/guard"

# bench/guard.rb, which compares ratios with the committed ones.
class BenchGuardTest < Minitest::Test
  include MadeUpResult

  NAME = "producers/rate/one/Penstock"

  def with_ratio(ratio, **options) = result({ "one" => { "C" => [1000.0], "Penstock" => [1000.0 * ratio] } }, **options)

  def compare(committed, *results, **options) = Bench::Guard.compare(results, committed, **options)

  def test_a_drop_of_more_than_fifteen_percent_fails
    committed = { "kafka" => { NAME => 1.0 } }
    assert_equal [true, true, false], ([1.2, 0.86, 0.84].map { |ratio| compare(committed, with_ratio(ratio)).ok? })
    assert_equal({ "kafka: #{NAME}" => [1.0, 0.84] }, compare(committed, with_ratio(0.84)).drops)
  end

  def test_the_tolerance_is_configurable
    assert_equal [false, true], ([0.05, 0.15].map do |tolerance|
                                   compare({ "kafka" => { NAME => 1.0 } }, with_ratio(0.9), tolerance:).ok?
                                 end)
  end

  def test_comparing_nothing_is_a_failure
    [compare({}, with_ratio(1)), compare({ "kafka" => { NAME => 1.0 } }),
     compare({ "embedded" => { NAME => 1.0 } }, with_ratio(1))].each do |none|
      refute_predicate none, :ok?
      assert_match(/nothing was compared\.\z/, none.to_s)
    end
  end

  def test_a_ratio_on_one_side_only_is_reported_and_is_no_failure
    committed = { "kafka" => { NAME => 1.0, "producers/rate/gone/Penstock" => 1.0 },
                  "embedded" => { NAME => 1.0, "idle/a/b/Penstock" => 1.0 } }
    found = compare(committed, with_ratio(1), with_ratio(1, scenario: "other"))
    assert_predicate found, :ok?
    assert_equal ["kafka: producers/rate/gone/Penstock", "embedded: #{NAME}", "embedded: idle/a/b/Penstock"], found.missing
    assert_equal ["kafka: other/rate/one/Penstock"], found.new
  end

  def test_ratios_are_kept_by_kind_of_cluster_and_not_by_version
    results = [with_ratio(0.5, cluster: "embedded cluster"), with_ratio(0.9, cluster: "Apache Kafka 5.0.0")]
    assert_equal({ "embedded" => { NAME => 0.5 }, "kafka" => { NAME => 0.9 } }, Bench::Guard.ratios(results))
  end

  def test_bars_to_another_side_or_case_are_kept_too
    rows = { "none" => { "C" => [4], "Penstock" => [2], "Java" => [8] },
             "many" => { "C" => [4], "Penstock" => [1], "Java" => [8] } }
    bars = [{ to: "Java" }, { to: "C" }, { of_case: "none" }, { to: "C", of_case: "none" }, { side: "Java", of_case: "none" },
            { to: "kafkajs" }]
           .map do |bar|
      { table: "rate", case: "many", side: "Penstock", least: 0.1, **bar }
    end
    assert_equal({ "producers/rate/none/Penstock" => 0.5, "producers/rate/many/Penstock" => 0.25,
                   "producers/rate/many/Penstock to Java" => 0.125, "producers/rate/many/Penstock to Penstock with none" => 0.5,
                   "producers/rate/many/Penstock to C with none" => 0.25 }, Bench::Guard.ratios([result(rows, bars:)])["kafka"])
  end

  def test_an_update_replaces_the_measured_ratios_and_keeps_the_others
    Dir.mktmpdir do |directory|
      file = File.join(directory, "ratios.json")
      Bench::Guard.update([with_ratio(0.5), with_ratio(0.7, scenario: "other"), with_ratio(1, cluster: "embedded")], file)
      Bench::Guard.update([with_ratio(0.9)], file)
      assert_equal({ "embedded" => { NAME => 1.0 }, "kafka" => { "other/rate/one/Penstock" => 0.7, NAME => 0.9 } },
                   Bench::Guard.read(file))
      assert_predicate compare(Bench::Guard.read(file), with_ratio(0.8)), :ok?
    end
  end
end
