# frozen_string_literal: true

require "rexml/document"
require_relative "../test_helper"
require_relative "../support/made_up_result"
require_relative "../../bench/report"
require_relative "../../bench/table"

# How bench/result.rb summarizes the rounds of a scenario and stores them.
class BenchResultTest < Minitest::Test
  include MadeUpResult

  def bar(result) = result.bars.first.values_at("ratio", "met")

  def test_low_is_the_minimum_if_more_is_better
    figure = result({ "one" => { "C" => [3, 1, 2] } }).table("rate").figure("one", "C")
    assert_equal({ "median" => 2, "low" => 1, "high" => 3, "rounds" => [3, 1, 2] }, figure)
  end

  def test_low_is_the_maximum_if_less_is_better
    figure = result({ "one" => { "C" => [3.5, 1, 2, 9] } }, better: "less").table("rate").figure("one", "C")
    assert_equal [2.75, 9, 1], figure.values_at("median", "low", "high")
  end

  def test_a_ratio_above_one_is_better_whether_more_or_less_is_better
    rows = { "one" => { "C" => [100], "Penstock" => [80] } }
    assert_equal [0.8, 1.25], %w[more less].map { |better| result(rows, better:).table("rate").ratio("one", "Penstock") }
  end

  def test_ratios_have_three_digits_and_the_reference_has_no_ratio
    table = result({ "one" => { "C" => [3000], "Penstock" => [40] } }).table("rate")
    assert_equal [0.0133, nil], [table.ratio("one", "Penstock"), table.ratio("one", "C")]
  end

  def test_a_figure_may_be_missing
    table = result({ "one" => { "C" => [], "Penstock" => [1] }, "two" => { "C" => [1], "Penstock" => nil } }).table("rate")
    assert_nil table.figure("one", "C")
    assert_nil table.figure("two", "Penstock")
    refute_predicate table, :ratios?
  end

  def test_sides_keep_their_order_if_the_first_figure_is_missing
    rows = { "one" => { "Penstock" => [1] }, "two" => { "Penstock" => [1], "C" => [1] } }
    assert_equal %w[C Penstock], result(rows, sides: { "C" => "", "Penstock" => "", "Java" => "" }).table("rate").sides
  end

  def test_a_division_by_zero_makes_no_ratio
    table = result({ "one" => { "C" => [0], "Penstock" => [2] }, "two" => { "C" => [2], "Penstock" => [0] } }).table("rate")
    assert_equal [nil, 0.0], [table.ratio("one", "Penstock"), table.ratio("two", "Penstock")]
  end

  def test_a_bar_is_met_if_the_ratio_is_at_least_its_minimum
    met = [0.89, 0.9, 0.91].map { |least| bar(result(bars: [{ table: "rate", case: "one", side: "Penstock", to: "C", least: }])) }
    assert_equal [[0.9, true], [0.9, true], [0.9, false]], met
  end

  def test_a_bar_may_compare_with_another_case_of_the_same_side
    rows = { "none" => { "Penstock" => [3.0] }, "1,000 idle" => { "Penstock" => [4.0] } }
    bars = [{ table: "rate", case: "1,000 idle", side: "Penstock", of_case: "none", least: 0.9 }]
    with_bar = result(rows, better: "less", bars:)
    assert_equal [0.75, false], bar(with_bar)
    assert_equal "Penstock", with_bar.bars.first["to"]
  end

  def test_a_bar_may_compare_with_another_case_of_another_side
    rows = { "none" => { "C" => [3.0] }, "1,000 idle" => { "Penstock" => [4.0], "C" => [7.0] } }
    bars = [{ table: "rate", case: "1,000 idle", side: "Penstock", to: "C", of_case: "none", least: 0.9 }]
    assert_equal [1.33, true], bar(result(rows, bars:))
  end

  def test_a_bar_with_a_missing_figure_is_not_measured
    bars = [{ table: "rate", case: "one", side: "Penstock", to: "Java", least: 1 }]
    assert_equal [nil, nil], bar(result(bars:))
  end

  def test_a_bar_is_met_if_the_figure_is_zero_and_less_is_better
    bars = [{ table: "rate", case: "one", side: "Penstock", to: "C", least: 5 }]
    assert_equal [nil, true], bar(result({ "one" => { "C" => [2], "Penstock" => [0] } }, better: "less", bars:))
  end

  def test_inconsistent_results_raise
    assert_raises(KeyError) { result(bars: [{ table: "rat", case: "one", side: "Penstock", to: "C", least: 1 }]) }
    assert_raises(ArgumentError) { result(better: "nicer") }
    assert_raises(ArgumentError) { result({ "one" => { "Someone" => [1] } }, sides: {}) }
    assert_raises(FloatDomainError) { result({ "one" => { "C" => [Float::NAN] } }) }
  end

  def test_a_written_result_can_be_read_and_has_a_picture_beside_it
    Dir.mktmpdir do |directory|
      made = result(rows(3, 4), bars: [{ table: "rate", case: "25 producers", side: "Penstock", to: "C", least: 0.5 }],
                                differs: { "Java" => [], "Penstock" => ["acks"] }, left_out: { "Java" => "no Java" })
      file = made.write(File.join(directory, "kafka"))
      assert_equal %w[producers.json producers.svg], Dir.children(File.dirname(file)).sort
      assert_equal made.to_h, Bench::Result.read(file).to_h
      assert_equal({ "Penstock" => ["acks"] }, made.differs)
    end
  end

  def test_results_are_kept_by_the_kind_of_the_cluster
    kinds = ["embedded cluster", "Apache Kafka 4.3.1", "10.0.0.1:9092"].map { |cluster| result(cluster:).cluster_kind }
    assert_equal %w[embedded kafka 10.0.0.1-9092], kinds
  end

  # ---- what the table and the page show ----

  def test_numbers_are_rounded_to_three_digits
    shown = [0, 7, 4003, 12.34, 9.996, 99.96, 123.4, 1234.5, 12_345, 612_345, 1_234_567.8, 0.5, 0.01234, 0.0000123, -45.678]
            .map { |value| Bench::Words.number(value) }
    assert_equal %w[0 7 4,003 12.3 10.0 100 123 1,235 12,300 612,000 1,230,000 0.500 0.0123 0.0000123 -45.7], shown
  end

  def test_the_unit_suits_most_figures
    figures = { "s" => 0.00002, "us" => 12_000.0, "ns" => 1_000_000, "ms" => 12.5,
                "bytes" => 50_000_000, "KiB" => 0.5, "% of a core" => 0.001 }
    shown = figures.map do |unit, value|
      scale = Bench::Scale.new(result({ "one" => { "C" => [value] } }, unit:).tables.first)
      "#{scale.text(value)} #{scale.unit}"
    end
    assert_equal ["20 µs", "12 ms", "1 ms", "12.5 ms", "47.7 MiB", "512 bytes", "0.00100 % of a core"], shown
  end

  def test_every_kind_of_result_makes_a_table_and_a_well_formed_page
    varied.each { |result| assert_includes Bench::Table.new(result).text, result.title }
    page = Bench::Report.html(varied).sub("<!DOCTYPE html>", "").gsub(/<meta[^>]*/, "\\0/")
    assert_equal varied.size, REXML::XPath.match(REXML::Document.new(page), "//section").size
  end

  def test_the_table_and_the_page_say_which_bars_are_met
    bars = [0.8, 0.95].map { |least| { table: "rate", case: "one", side: "Penstock", to: "C", least: } }
    made = result(bars: [*bars, { table: "rate", case: "one", side: "Penstock", to: "Java", least: 1 }])
    assert_equal ["met", "NOT MET", "not measured"], Bench::Table.new(made).text.scan(/^(?:met|NOT MET|not measured)\b/).first(3)
    assert_includes Bench::Report.html([made]), "1 of 3 met"
  end
end
