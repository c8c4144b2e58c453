# frozen_string_literal: true

require_relative "test_helper"
require_relative "support/made_up_result"
require_relative "../bench/table"

# What bench/table.rb prints.
class BenchTableTest < Minitest::Test
  include MadeUpResult

  def text(...) = Bench::Table.new(result(...)).text

  def test_each_case_is_a_row_and_each_side_a_column
    rows = { "1 producer" => { "C" => [612_345, 600_000, 640_400], "Penstock" => [560_000] },
             "25" => { "C" => [1.5], "Penstock" => [1.0] } }
    assert_includes text(rows), <<~TEXT.chomp
      rate: messages/s, more is better
                                            C                            Penstock
                     median       worst..best     median       worst..best   to C
      1 producer    612,000  600,000..640,000    560,000  560,000..560,000  0.915
    TEXT
    assert_match(/^25 +1\.50 +1\.50\.\.1\.50 +1 +1\.\.1 +0\.667$/, text(rows))
  end

  def test_a_single_case_has_a_line_for_each_side
    assert_includes text({ "all" => { "C" => [4, 5, 6], "Penstock" => [10, 20, 30], "Java" => [2] } }), <<~TEXT.chomp
                         median  worst..best   to C
      all    C                5         4..6
             Penstock        20       10..30   4.00
             Java             2         2..2  0.400
    TEXT
  end

  def test_many_sides_have_a_line_each_and_no_line_is_too_long
    varied.each do |result|
      Bench::Table.new(result).text.lines.each { |line| assert_operator line.chomp.size, :<=, 150 }
    end
    assert_match(/^25 producers +C +30 +25\.\.40$/, text(rows(6, 6)))
  end

  def test_a_missing_figure_is_a_dash
    assert_match(/^two +1 +1\.\.1 +–$/, text({ "one" => { "C" => [1], "Penstock" => [1] }, "two" => { "C" => [1] } }))
  end

  def test_bars_are_shown_as_met_not_met_or_not_measured
    bars = [0.8, 0.95].map { |least| { table: "rate", case: "one", side: "Penstock", to: "C", least: } }
    bars << { table: "rate", case: "one", side: "Penstock", to: "Java", least: 1 }
    bars << { table: "rate", case: "one", side: "Penstock", of_case: "none", least: 0.9 }
    assert_includes text(bars:), <<~TEXT.chomp
      Bars          ratio    bar
      met           0.900  0.800   rate, one: Penstock to C
      NOT MET       0.900  0.950   rate, one: Penstock to C
      not measured      –   1.00   rate, one: Penstock to Java
      not measured      –  0.900   rate, one: Penstock to itself with none
    TEXT
  end

  def test_the_table_lists_settings_versions_and_omitted_clients
    shown = text(left_out: { "Java" => "there is no Java" }, differs: { "Penstock" => ["no acks", "no linger.ms"] })
    parts = ["Producers (producers; Apache Kafka 4.3.1, 2026-11-22)\nWhat N producers deliver.\n",
             "Medians of 3 rounds, taken in turn. A ratio is to C: above 1 is better, whichever way the unit goes.\n",
             "Settings: linger.ms=5, acks=all (equal on all sides, but Penstock: no acks, no linger.ms).\n",
             "\nRuby 3.1.2, 2 cores, A CPU\n", "\nC: librdkafka 2.0.2\nPenstock: 0.1.0\n", "\nLeft out: Java: there is no Java"]
    parts.each { |part| assert_includes shown, part }
    assert_includes text(settings: {}), "Settings: the defaults of each side."
  end

  def test_output_is_coloured_only_on_a_terminal
    with_bar = result(bars: [{ table: "rate", case: "one", side: "Penstock", to: "C", least: 0.95 }])
    terminal = StringIO.new
    def terminal.tty? = true
    outputs = [terminal, StringIO.new].each { |output| Bench::Table.show(with_bar, output) }.map(&:string)
    assert_equal [true, false], (outputs.map { |output| output.include?("\e[31mNOT MET") })
    refute_includes outputs.last, "\e"
  end

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
end
