# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/consumer_test_case"

# Patterns of Consumer#subscribe match whole names. test/integration/consumer_test.rb has both protocols.
class TopicPatternTest < ConsumerTestCase
  include SharedCluster::ForGroups

  slow(/classic/) # joins groups, which takes some seconds

  NAMES = %w[a b ab aab abb a.b a-b A AB orders orders2 orders.eu orders-eu ORDERS xorders ordersx _x 7 77 a7 b.7].freeze
  POSSIBLE = [
    /orders/, /^orders$/, /\Aa|b\z/, /orders\.\w+/, /[\w.-]+/, /a(?:b|\.)*?/, /(?<n>a){2,3}b?/, /a-#{/B/i}/, /ab/i,
    /[[:alpha:]&&[^a]]+/,
    /\p{Upper}+/, /\h{,4}/, /a{2,}b/, /./, /.*/, /\D+\d/, /[^o.]/, /[^\W_]{1,2}/, /(a|b)+?/, /a \. b # a name
    /x, /orders[.-]eu/, /\S{3}/, "^orders", "^orders$", "^orders.*", "^[a-z]+", "^a|b$"
  ].freeze
  IMPOSSIBLE = {
    /(?=a)b/ => "(?=", /(?!a)b/ => "(?!", /a(?<=a)/ => "(?<=", /a(?<!a)/ => "(?<!", /(?>a)/ => "(?>", /(?i)a/ => "(?i",
    /\ba/ => "\\b", /(a)\1/ => "\\1", /a\z.b/ => "\\z", /(^a)/ => "^", /a$b/ => "$", /a!/ => "!", /\s/ => "\\s", /\x61/ => "\\x",
    /a|/ => "an empty alternative", /()/ => "an empty alternative", // => "an empty alternative", /a*+/ => "two counts",
    /a{2}?/ => "two counts", /a{256}/ => "a count above 255", "^a(?!b)" => "(?!"
  }.freeze

  def translated(pattern) = Penstock.const_get(:TopicPattern).of(pattern)

  def whole(pattern) = /\A(?:#{pattern.is_a?(String) ? Regexp.new(pattern) : pattern})\z/

  def test_the_translation_matches_the_whole_names_that_ruby_matches
    POSSIBLE.each do |pattern|
      assert_equal NAMES.grep(whole(pattern)), NAMES.grep(Regexp.new(translated(pattern))), pattern.inspect
    end
  end

  # What POSIX and RE2/J understand alike.
  def test_the_translation_has_only_what_all_understand
    POSSIBLE.each { |pattern| assert_match(/\A\^\(([\w.|()*+?-]|\\\.|\[[\w.-]+\]|\{\d+(,\d*)?\})+\)\$\z/, translated(pattern)) }
  end

  def test_what_cannot_be_expressed_raises_and_nothing_is_subscribed
    one = unreachable_consumer("group.id": "g")
    IMPOSSIBLE.each do |pattern, what|
      error = assert_raises(ArgumentError, pattern.inspect) { one.subscribe("orders", pattern) }
      assert_includes error.message, "cannot have #{what}"
    end
    error = assert_raises(ArgumentError) { one.subscribe("^(a") }
    assert_match(/unmatched parenthesis/, error.message)
    assert_nil one.membership.state
  end

  thorough def test_a_pattern_matches_whole_names_with_the_classic_protocol
    cluster = own_cluster
    NAMES.each { |name| cluster.create_topic(name, partitions: 1) }
    [/orders/, /a[.-]?b|\d+/i, /orders\W\w+/, "^a|b$", /(?<n>a){2}b{1,2}/].each do |pattern|
      one = group_consumer(servers: cluster.bootstrap_servers).subscribe(pattern)
      eventually { one.poll(timeout: 0.1) || !one.assignment.empty? }
      assert_equal NAMES.grep(whole(pattern)).sort, one.assignment.keys.sort, pattern.inspect
    end
  end
end
