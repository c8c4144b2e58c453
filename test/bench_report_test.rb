# frozen_string_literal: true

require "rexml/document"
require_relative "test_helper"
require_relative "support/made_up_result"
require_relative "../bench/report"

# The page that bench/report.rb makes.
class BenchReportTest < Minitest::Test
  include MadeUpResult

  BAR = { table: "rate", case: "one", side: "Penstock", to: "C", least: 0.8 }.freeze

  # The page as XML. Closes the only element that HTML leaves open.
  def page(*results)
    html = Bench::Report.html(results)
    REXML::Document.new(html.sub("<!DOCTYPE html>", "").gsub(/<meta[^>]*/, "\\0/")).root
  end

  def text(element) = REXML::XPath.match(element, ".//text()").map(&:value).join(" ").squeeze(" \n")

  def all(page, path) = REXML::XPath.match(page, path)

  def test_the_report_and_its_contents_list_every_scenario_of_every_cluster
    made = page(result(title: "First"), result(title: "Second", scenario: "second"),
                result(title: "Third", cluster: "embedded cluster"))
    links = all(made, "//ul/li/a").to_h { |link| [link.text, link.attributes["href"]] }
    assert_equal({ "First" => "#kafka-producers", "Second" => "#kafka-second", "Third" => "#embedded-producers" }, links)
    assert_equal links.values, all(made, "//section").map { |section| "##{section.attributes["id"]}" }
    assert_equal %w[First Second Third], all(made, "//section/h3").map(&:text)
    assert_empty ["Apache Kafka 4.3.1", "embedded cluster"] - all(made, "//h2").map(&:text)
  end

  def test_the_report_begins_with_all_bars_and_the_number_of_bars_met
    results = [result(bars: [BAR, BAR.merge(least: 0.95)]), result(bars: [BAR.merge(to: "Java")], cluster: "embedded cluster")]
    made = page(*results)
    assert_equal "1 of 3 met, 1 not met, 1 not measured.", all(made, "//strong").first.text
    rows = all(made, "//table[@class='bars']//tr[@class]")
    assert_equal %w[met missed unknown], (rows.map { |row| row.attributes["class"] })
    assert_equal ["met", "NOT MET", "not measured"], (rows.map { |row| row.elements["td"].text })
    assert_equal %w[0.900 0.900 –], (rows.map { |row| row.elements["td[2]"].text })
    assert_equal %w[0.800 0.950 0.800], (rows.map { |row| row.elements["td[3]"].text })
  end

  def test_a_report_without_bars_says_so
    assert_includes text(page(result)), "None of these scenarios has a bar."
  end

  def test_a_scenario_shows_its_figures_settings_versions_and_machine
    made = page(result(rows(2, 2), left_out: { "Java" => "there is no Java" }, differs: { "Penstock" => ["no acks"] },
                                   about: "How many."))
    shown = text(all(made, "//section").first)
    ["How many.", "rate: messages/s, more is better", "25 producers", "30", "25..40", "10.0", "to C", "Medians of 3 rounds",
     "linger.ms=5, acks=all (equal on all sides, but Penstock: no acks)", "C: librdkafka 2.0.2", "Java: there is no Java",
     "Apache Kafka 4.3.1; Ruby 3.1.2, 2 cores, A CPU; 2026-11-22"].each { |part| assert_includes shown, part }
  end

  def test_each_table_of_a_result_has_a_table_and_two_pictures_for_wide_and_narrow_screens
    tables = %w[p50 p99].map do |name|
      { name:, unit: "ms", better: "less", rows: { "one" => { "C" => [1], "Penstock" => [2] } } }
    end
    made = page(result(tables:))
    assert_equal 2, all(made, "//table[@class='figures']").size
    assert_equal %w[860 360 860 360], (all(made, "//*[local-name()='svg']").map { |svg| svg.attributes["width"] })
  end

  def test_each_date_and_machine_appears_once
    environments = [{ ruby: "3.1.2", cores: 2 }, { ruby: "3.1.2", cores: 2 }, { ruby: "3.4.1", cores: 1 }]
    results = environments.zip(%w[2026-11-22 2026-11-20 2026-11-21]).map { |environment, date| result(environment:, date:) }
    assert_equal "2026-11-20 to 2026-11-22. Ruby 3.1.2, 2 cores; Ruby 3.4.1, 1 core.", all(page(*results), "//body/p").first.text
  end

  def test_the_report_loads_no_resources_and_runs_no_scripts
    html = Bench::Report.html(varied)
    refute_match(/<(script|link|img|iframe|object)\b|\bsrc=|@import|url\(|\son\w+=/, html)
    assert_equal ["http://www.w3.org/2000/svg"], html.scan(%r{\bhttps?://[^"<\s]+}).uniq
    assert_empty html.scan(/href="([^"]*)"/).flatten.grep_v(/\A#/)
  end

  def test_the_report_escapes_any_text_of_results
    nasty = "<b title=\"x\">&'"
    texts = { title: nasty, about: nasty, cluster: nasty, settings: { nasty => nasty }, environment: { nasty => nasty },
              left_out: { nasty => nasty }, sides: { nasty => nasty, "C" => nasty } }
    bars = [{ table: "rate", case: nasty, side: nasty, to: "C", least: 0.5 }]
    made = page(result({ nasty => { nasty => [1], "C" => [1] } }, bars:, **texts))
    assert_empty all(made, "//b")
    assert_equal nasty, all(made, "//section/h3").first.texts.map(&:value).join
  end

  def test_all_kinds_of_results_make_a_well_formed_page
    assert_equal varied.size, all(page(*varied), "//section").size
  end

  def test_a_report_without_results_raises
    assert_raises(ArgumentError) { Bench::Report.html([]) }
  end
end
