# frozen_string_literal: true

require_relative "../../bench/result"

# Invented results.
module MadeUpResult
  SIDES = { "C" => "librdkafka 2.0.2", "Penstock" => "0.1.0", "Penstock, own thread" => "0.1.0", "confluent-kafka" => "2.12.0",
            "Java" => "Apache Kafka 4.3.1", "kafkajs" => "2.2.4", "ruby-kafka" => "1.5.0", "waterdrop" => "2.8.0" }.freeze

  # @param rows [Hash] the rounds of each side of each case of one table; or `tables` for several
  def result(rows = { "one" => { "C" => [100.0], "Penstock" => [90.0] } }, unit: "messages/s", better: "more", **options)
    sides = SIDES.slice(*rows.values.flat_map(&:keys))
    Bench::Result.build(scenario: "producers", title: "Producers", about: "What N producers deliver.", reference: "C", rounds: 3,
                        cluster: "Apache Kafka 4.3.1", environment: { ruby: "3.1.2", cores: 2, cpu: "A CPU" },
                        settings: { "linger.ms" => 5, "acks" => "all" }, sides:, date: "2026-11-22",
                        tables: [{ name: "rate", unit:, better:, rows: }], **options)
  end

  # All kinds of results that charts and pages must handle.
  def varied
    [result({ "all" => { "Penstock, own thread" => [20_000], "Java" => [900_000] } }),
     result(rows(1, 8)), result(rows(6, 6)), result(rows(12, 2)), result(rows(4, 1), reference: nil),
     result(rows(3, 3).merge("lacks some" => { "C" => [5.0] })),
     result({ "none" => { "C" => [0, 0, 0], "Penstock" => [0.001, 0.003] }, "many" => { "C" => [0.1, 60.5] } }, better: "less"),
     result({ "all" => { "C" => [0], "Penstock" => [0] } }),
     result({ "no figures" => { "C" => [], "Penstock" => nil } }),
     result(long_names, unit: "s", better: "less"),
     result({ "名前の長い場合" => { LONG => [1_234_567, 7_654_321] } }, sides: { LONG => "1" }, title: NASTY)]
  end

  NASTY = "<Odd> & \"quoted\" 'names'\u0001"
  LONG = "a side with a name of some length as well"

  def long_names
    { "a case whose name is much longer than any name that a scenario has for one of its cases, so that it needs several lines" =>
      { "C" => [2e-5, 3e-5], "Penstock" => [3.1e-5, 2.9e-5] },
      "w" * 150 => { "Penstock" => [1e-5] } }
  end

  # A given number of cases and sides, with figures from 3 to 3 million.
  def rows(cases, sides)
    (1..cases).to_h do |i|
      figures = SIDES.keys.first(sides).each_with_index.to_h do |side, j|
        [side, [3.0, 2.5, 4.0].map { |figure| figure * 10**((i + j) % 7) }]
      end
      ["#{i * 25} producers", figures]
    end
  end
end
