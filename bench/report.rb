# frozen_string_literal: true

require "cgi/escape"
require "erb"
require_relative "result"

module Bench
  # One self-contained HTML page of many results: no scripts, and nothing to load.
  class Report
    TEMPLATE = File.join(__dir__, "report.html.erb")

    def self.html(results) = new(results).html

    def initialize(results)
      raise ArgumentError, "no results" if results.empty?

      @results = results
    end

    def html = ERB.new(File.read(TEMPLATE), trim_mode: "-").result(binding)

    private

    def h(text) = Drawing.escape(text)

    # @return [Hash{String => Array<Result>}]
    def clusters = @results.group_by(&:cluster)

    def id(result) = h("#{result.cluster_kind}-#{result.scenario}".gsub(/[^\w-]+/, "-"))

    # @return [Array<Array(Result, Hash)>]
    def bars = @results.flat_map { |result| result.bars.map { |bar| [result, bar] } }

    # @return [String] "3 of 5 met, 1 not met, 1 not measured"
    def score
      met, missed, unknown = [true, false, nil].map { |state| bars.count { |_, bar| bar["met"] == state } }
      ["#{met} of #{bars.size} met", *("#{missed} not met" if missed.positive?),
       *("#{unknown} not measured" if unknown.positive?)].join(", ")
    end

    def bar_class(bar) = { true => "met", false => "missed", nil => "unknown" }.fetch(bar["met"])

    def dates = @results.map(&:date).uniq.minmax.uniq.join(" to ")

    def machines = @results.map { |result| Words.environment(result.environment) }.uniq

    # The same chart twice. The style sheet shows the one that fits.
    def chart(result, table)
      { "wide" => Chart::WIDTH, "narrow" => Chart::NARROW }.map do |name, width|
        "<div class=\"#{name}\">#{Chart.new(result, tables: [table], width:, alone: false).svg}</div>"
      end.join("\n")
    end
  end
end
