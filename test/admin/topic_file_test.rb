# frozen_string_literal: true

require "tmpdir"
require_relative "../test_helper"

# Topics that are declared in a file.
class TopicFileTest < PenstockTest
  Catalog = Penstock::Admin::TopicCatalog

  def load(text)
    Dir.mktmpdir do |directory|
      @path = File.join(directory, "topics.yml")
      File.binwrite(@path, text)
      Catalog.load_file(@path)
    end
  end

  def test_a_file_declares_topics
    catalog = load(<<~YAML)
      orders:
        partitions: 12
        replication_factor: 3
        exact: true
        config: &shared
          retention.ms: 604800000
          cleanup.policy: [compact, delete]
          segment.bytes: # the brokers' default
      refunds:
      payments:
        config:
          <<: *shared
          retention.ms: 1
    YAML
    assert_equal %w[orders refunds payments], catalog.names
    assert Ractor.shareable?(catalog)
    orders = catalog["orders"]
    assert_equal [12, 3, true], [orders.partitions, orders.replication_factor, orders.exact]
    assert_equal({ "retention.ms" => "604800000", "cleanup.policy" => "compact,delete", "segment.bytes" => nil }, orders.config)
    assert_equal [nil, {}], [catalog["refunds"].partitions, catalog["refunds"].config]
    assert_equal "1", catalog["payments"].config["retention.ms"]
    assert_equal catalog["orders"].config.keys.sort, catalog["payments"].config.keys.sort
  end

  WRONG = {
    "" => /declares no topics/, "# nothing" => /declares no topics/, "{}" => /declares no topics/,
    "- orders" => /must have names of topics.*Array/, "orders" => /must have names of topics/,
    "123:\n  partitions: 1" => /must be a String, not 123: put it in quotes/,
    "orders: 12" => /topic "orders" must have keys such as partitions, not 12/,
    "orders:\n  partition: 12" => /partition.*did you mean :partitions/,
    "orders:\n  partitions: many" => /topic "orders": partitions must be an Integer.*"many"/,
    "orders:\n  config: []" => /config.*must be a Hash/,
    "orders:\n  config:\n    retention.ms: 2026-01-01" => /not valid.*Date/,
    "a b:" => /1 to 249/,
    "orders:\norders:" => /has "orders" twice, also in line 2/,
    "orders:\n  config:\n    a.b: 1\n    a.b: 2" => /has "a.b" twice, also in line 4/,
    "orders:\n  1: 2" => /orders|unknown/,
    "orders: [" => /not valid.*line/, "orders: *none" => /not valid/, "a: !ruby/object:Object {}" => /not valid/,
    "\xFF\xFE\xFA" => //, "orders:\n  config:\n    \"a\\0\": 1" => /name of a setting/
  }.freeze

  def test_what_is_wrong_is_named_with_the_file
    WRONG.each do |text, message|
      error = assert_raises(ArgumentError, text.inspect) { load(text) }
      assert_match message, error.message, text.inspect
      assert_equal 1, error.message.scan(@path).size, error.message
    end
  end

  def test_a_file_that_is_not_there
    assert_raises(Errno::ENOENT) { Catalog.load_file("/not/there.yml") }
    assert_raises(TypeError) { Catalog.load_file(nil) }
  end
end
