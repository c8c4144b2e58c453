# frozen_string_literal: true

# Parses Prometheus' text format 0.0.4, and raises for anything else.
class Exposition
  # One line.
  Sample = Struct.new(:name, :labels, :value)

  NAME = /[a-zA-Z_:][a-zA-Z0-9_:]*/
  LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"/
  SUFFIXES = { "histogram" => %w[_bucket _sum _count] }.freeze

  # @return [Hash{String => String}]
  attr_reader :types, :helps
  # @return [Array<Sample>]
  attr_reader :samples

  def initialize(text)
    raise "no UTF-8" unless text.dup.force_encoding("UTF-8").valid_encoding?
    raise "the last line does not end with a newline" unless text.end_with?("\n")

    @types = {}
    @helps = {}
    @samples = []
    text.dup.force_encoding("UTF-8").each_line(chomp: true) { |line| read(line) }
    @types.each { |name, type| check_histogram(name) if type == "histogram" }
    twice = @samples.map { |sample| [sample.name, sample.labels] }.tally.select { |_, times| times > 1 }
    raise "twice: #{twice}" if twice.any?
  end

  # @return [Numeric, nil] the value of the sample that has at least these labels
  def value(name, **labels)
    found = named(name).select { |sample| labels.all? { |label, text| sample.labels[label.to_s] == text } }
    raise "#{name}: #{found.size} samples" if found.size > 1

    found.first&.value
  end

  # @return [Hash{Array(String, Hash) => Numeric}]
  def counters
    samples.select { |sample| @types[sample.name] == "counter" }.to_h { |sample| [[sample.name, sample.labels], sample.value] }
  end

  private

  def read(line)
    if (match = line.match(/\A# HELP (#{NAME}) (?:[^\\]|\\[\\n])*\z/o)) then once(@helps, match[1], line)
    elsif (match = line.match(/\A# TYPE (#{NAME}) (counter|gauge|histogram)\z/o)) then begin_family(match[1], match[2])
    elsif (match = line.match(/\A(#{NAME})(?:\{((?:#{LABEL},?)+)\})? (\S+)\z/o)) then sample(match[1], match[2], line[/\S+\z/])
    else
      raise "not a line of the format: #{line.inspect}"
    end
  end

  def expect(condition, message)
    raise message unless condition
  end

  def once(all, name, value)
    expect(!all.key?(name), "twice: #{name}")
    all[name] = value
  end

  def begin_family(name, type)
    expect(@helps.keys.last == name, "no HELP before TYPE #{name}")
    once(@types, @family = name, type)
  end

  def sample(name, text, value)
    type = @types[@family]
    expect(SUFFIXES.fetch(type, [""]).any? { |suffix| name == @family + suffix }, "#{name} is in the family #{@family}")
    expect(type != "counter" || name.end_with?("_total"), "a counter is named _total: #{name}")
    @samples << Sample.new(name, labels(text.to_s), Float(value))
  end

  def labels(text)
    pairs = text.scan(LABEL)
    expect(pairs.map { |label, content| "#{label}=\"#{content}\"" }.join(",") == text, "labels: #{text}")
    expect(pairs.map(&:first).uniq.size == pairs.size, "a label occurs twice: #{text}")
    pairs.to_h.transform_values { |content| content.gsub(/\\(.)/) { |escape| escape == "\\n" ? "\n" : escape[1] } }
  end

  def check_histogram(name)
    buckets = named("#{name}_bucket").group_by { |sample| sample.labels.except("le") }
    expect(buckets.any?, "#{name} has no buckets")
    expect(named("#{name}_sum").map(&:labels) == buckets.keys, "#{name} does not have exactly one sum for its buckets")
    counts = named("#{name}_count").to_h { |sample| [sample.labels, sample.value] }
    buckets.each { |labels, all| check_buckets(name, all, counts.fetch(labels)) }
  end

  def check_buckets(name, buckets, count)
    expect(buckets.last.labels["le"] == "+Inf", "#{name} does not end at +Inf")
    ends = buckets[0..-2].map { |sample| Float(sample.labels["le"]) }
    expect(ends == ends.sort.uniq, "#{name}: ends #{ends}")
    numbers = buckets.map(&:value)
    expect(numbers == numbers.sort && numbers.last == count, "#{name}: numbers #{numbers}, count #{count}")
  end

  def named(name) = samples.select { |sample| sample.name == name }
end
