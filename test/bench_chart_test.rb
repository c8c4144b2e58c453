# frozen_string_literal: true

require "rexml/document"
require_relative "test_helper"
require_relative "support/made_up_result"

# The layout of the charts of bench/chart.rb.
class BenchChartTest < Minitest::Test
  include MadeUpResult

  Box = Struct.new(:left, :top, :right, :bottom, :text) do
    def overlaps?(other) = left < other.right && other.left < right && top < other.bottom && other.top < bottom
  end

  def picture(result, **options) = REXML::Document.new(Bench::Chart.new(result, **options).svg).root

  def all(picture, name) = picture.get_elements("//#{name}")

  def numbers(element, *names) = names.map { |name| Float(element.attributes[name]) }

  def texts(picture) = all(picture, "text").map(&:text)

  # Bars are the only rectangles with a tooltip.
  def bars(picture) = all(picture, "rect[title]")

  # @return [Array<Float>] the length of each bar
  def lengths(picture) = bars(picture).map { |bar| numbers(bar, "width").first }

  # @return [Array<Array(Float, Float)>] the ends of each whisker
  def whiskers(picture)
    all(picture, "line[@class='text']").map { |line| numbers(line, "x1", "x2") }.reject { |from, to| from == to }
  end

  # Estimates the width independently of the chart: 0.55 of the font size for each character, 1 for a Chinese character.
  def box(element)
    left, baseline, size = numbers(element, "x", "y", "font-size")
    width = element.text.each_char.sum { |char| char.ord > 0x2E80 ? 1.0 : 0.55 } * size
    left -= { "start" => 0, "middle" => 0.5, "end" => 1 }.fetch(element.attributes["text-anchor"]) * width
    Box.new(left, baseline - (0.75 * size), left + width, baseline + (0.2 * size), element.text)
  end

  # Yields all kinds of results, each as a file and for the page of a phone.
  def each_picture
    { 860 => true, 360 => false }.each do |width, alone|
      varied.each { |result| yield picture(result, width:, alone:), width }
    end
  end

  def test_bar_lengths_are_proportional_to_the_medians
    drawn = picture(result({ "one" => { "C" => [100], "Penstock" => [50] }, "two" => { "C" => [10], "Penstock" => [0] } }))
    longest, *others = lengths(drawn)
    assert_operator longest, :>, 300
    assert_equal [0.5, 0.1, 0], others.map { |length| (length / longest).round(3) }
    assert_empty texts(drawn).grep(/logarithmic/)
  end

  def test_the_axis_is_logarithmic_and_labelled_so_if_a_short_bar_would_be_invisible
    drawn = picture(result({ "one" => { "C" => [20], "Penstock" => [200], "Java" => [2000] } }))
    first, second, third = lengths(drawn)
    assert_in_delta second - first, third - second, 0.1
    assert_operator first, :>, 10
    assert_equal ["logarithmic: each mark is 10 times the last"], texts(drawn).grep(/logarithmic/)
    assert_empty %w[10 100 1,000] - texts(drawn)
  end

  def test_the_axis_stays_linear_for_a_factor_of_thirty
    drawn = picture(result({ "one" => { "C" => [10], "Penstock" => [300] } }))
    assert_empty texts(drawn).grep(/logarithmic/)
  end

  def test_a_zero_has_length_zero_on_a_logarithmic_axis
    drawn = picture(result({ "one" => { "C" => [0, 0, 5], "Penstock" => [1], "Java" => [1000] } }))
    assert_equal 0, lengths(drawn).first
    assert_includes texts(drawn), "0"
  end

  def test_the_smallest_bar_is_visible_even_if_it_is_a_power_of_ten
    assert_operator lengths(picture(result({ "one" => { "C" => [100], "Penstock" => [100_000] } }))).first, :>, 10
  end

  def test_a_narrow_logarithmic_axis_has_at_least_two_marks
    drawn = picture(result({ "one" => { "C" => [200_000], "Penstock" => [9_000_000] } }), width: 300)
    assert_empty ["100,000", "1,000,000"] - texts(drawn)
  end

  def test_grid_lines_cross_all_bars_of_their_case
    each_picture do |drawn, _width|
      ends = bars(drawn).map { |bar| numbers(bar, "y", "height").sum }
      lines = all(drawn, "line[@class='grid']").map { |line| numbers(line, "y1", "y2") }
      assert_empty(ends.reject { |y| lines.any? { |from, to| y.between?(from, to) } })
    end
  end

  def test_whiskers_go_from_the_smallest_to_the_largest_round
    %w[more less].each do |better|
      drawn = picture(result({ "one" => { "C" => [80, 100, 150], "Penstock" => [10, 20, 40] } }, better:))
      start = numbers(bars(drawn).first, "x").first
      unit = lengths(drawn).first / 100
      assert_equal [[80, 150], [10, 40]], whiskers(drawn).map { |ends| ends.map { |x| ((x - start) / unit).round(1) } }
    end
  end

  def test_whiskers_are_vertically_centred_on_their_bars
    drawn = picture(result(rows(3, 3)))
    middles = bars(drawn).map { |bar| numbers(bar, "y", "height") }.map { |top, height| top + (height / 2) }
    lines = all(drawn, "line[@class='text']").map { |line| numbers(line, "y1", "y2") }
    assert_equal middles, lines.select { |from, to| from == to }.map(&:first)
  end

  def test_ticks_are_round_numbers_at_the_correct_position
    [0.0035, 0.7, 3.35, 7, 99, 612_345].each do |longest|
      drawn = picture(result({ "one" => { "C" => [longest], "Penstock" => [longest / 7.0] } }))
      ticks = all(drawn, "text[@class='muted']").select { |text| text.text.match?(/\A[\d.,]+\z/) }
      assert_operator ticks.size, :>=, 3
      start = numbers(bars(drawn).first, "x").first
      ticks.each do |tick|
        assert_match(/\A[0.,]*[1-9]?[05]?[0,]*\z/, tick.text.delete(".")) # 1, 1.5, 20, 350
        assert_in_delta tick.text.delete(",").to_f / longest, (numbers(tick, "x").first - start) / lengths(drawn).first, 0.001
      end
    end
  end

  def test_each_bar_is_labelled_with_its_figure_and_its_ratio
    drawn = picture(result({ "one" => { "C" => [612_345], "Penstock" => [560_001] } }))
    assert_empty ["C", "612,000", "Penstock", "560,000 (0.915)"] - texts(drawn)
    assert_equal "one, Penstock: 560,000 messages/s, worst..best round 560,000..560,000", bars(drawn).last.elements["title"].text
  end

  def test_a_missing_figure_is_labelled
    drawn = picture(result({ "one" => { "C" => [1] }, "two" => { "C" => [1], "Penstock" => [1] } }))
    assert_equal 1, texts(drawn).count("no figure")
    assert_equal 3, bars(drawn).size
  end

  def test_figures_use_a_suitable_unit
    drawn = picture(result({ "one" => { "C" => [0.0000212], "Penstock" => [0.0000301] } }, unit: "s", better: "less"))
    assert_empty ["rate: µs, less is better", "21.2", "30.1 (0.704)"] - texts(drawn)
  end

  def test_everything_drawn_is_within_the_picture
    each_picture do |drawn, width|
      height = numbers(drawn, "height").first
      outside = all(drawn, "text").map { |text| box(text) }.reject do |box|
        box.left >= 0 && box.right <= width && box.top >= 0 && box.bottom <= height
      end
      assert_empty outside.map(&:text)
      all(drawn, "line").each { |line| numbers(line, "x1", "x2").each { |x| assert_includes 0..width, x } }
      all(drawn, "rect").each { |rect| assert_includes 0..width, numbers(rect, "x", "width").sum }
    end
  end

  def test_no_text_overlaps_another_text_or_a_bar_or_a_whisker
    each_picture do |drawn, _width|
      texts = all(drawn, "text").map { |text| box(text) }
      rects = bars(drawn).map { |bar| numbers(bar, "x", "y", "width", "height") }
      drawn_ones = rects.map { |left, top, width, height| Box.new(left, top, left + width, top + height, "a bar") } +
                   all(drawn, "line[@class='text']").map { |line| Box.new(*numbers(line, "x1", "y1", "x2", "y2"), "a whisker") }
      pairs = texts.combination(2).to_a + texts.product(drawn_ones)
      assert_empty pairs.select { |one, other| one.overlaps?(other) }.map { |pair| pair.map(&:text) }
    end
  end

  def test_any_text_in_a_result_makes_a_well_formed_chart
    title = all(picture(varied.last), "title").first.text
    assert_equal "<Odd> & \"quoted\" 'names'\uFFFD: rate", title
  end

  def test_the_description_element_contains_the_figures
    drawn = picture(result({ "one" => { "C" => [100], "Penstock" => [50] } }))
    assert_equal "rate (messages/s, more is better). one: C 100, Penstock 50 (0.500).", drawn.elements["desc"].text
    assert_equal "img", drawn.attributes["role"]
  end

  def test_a_chart_file_states_what_was_measured_how_and_where
    made = result(left_out: { "Java" => "there is no Java" }, differs: { "Penstock" => ["no acks"] })
    shown = texts(picture(made)).join(" ")
    ["Producers", "What N producers deliver.", "C: librdkafka 2.0.2",
     "Settings: linger.ms=5, acks=all (equal on all sides, but Penstock: no acks).",
     "Apache Kafka 4.3.1; Ruby 3.1.2, 2 cores, A CPU; 2026-11-22", "Medians of 3 rounds",
     "Left out: Java: there is no Java"].each do |text|
      assert_includes shown, text
    end
  end

  def test_each_table_has_a_chart
    tables = %w[p50 p99].map do |name|
      { name:, unit: "ms", better: "less", rows: { "one" => { "C" => [1], "Penstock" => [2] } } }
    end
    drawn = picture(result(tables:))
    assert_equal 4, bars(drawn).size
    assert_empty ["p50: ms, less is better", "p99: ms, less is better"] - texts(drawn)
    assert_equal 2, bars(picture(result(tables:), tables: result(tables:).tables.last(1))).size
  end

  def test_each_side_has_a_colour_of_its_own
    colours = bars(picture(result(rows(3, 8)))).map { |bar| bar.attributes["fill"] }
    assert_equal 8, colours.uniq.size
    assert_equal colours.first(8) * 3, colours
  end

  def test_all_colours_contrast_with_a_light_and_a_dark_background
    chart = Bench::Chart
    [Bench::Drawing::LIGHT, Bench::Drawing::DARK].each do |set|
      %i[text muted].each { |name| assert_operator contrast(set[name], set[:ground]), :>=, 4.5 }
      [chart::REFERENCE, *chart::OURS, *chart::OTHERS].each do |colour|
        assert_operator contrast(colour, set[:ground]), :>=, 3, colour
        assert_operator contrast(colour, set[:text]), :>=, 3, "a whisker on #{colour}"
      end
    end
  end

  # The contrast ratio as WCAG defines it.
  def contrast(*colours)
    darker, lighter = colours.map { |colour| luminance(colour) }.sort
    (lighter + 0.05) / (darker + 0.05)
  end

  def luminance(colour)
    parts = colour.scan(/\h\h/).map { |part| part.hex / 255.0 }
                  .map { |part| part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055)**2.4 }
    parts.zip([0.2126, 0.7152, 0.0722]).sum { |part, weight| part * weight }
  end
end
