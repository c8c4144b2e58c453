# frozen_string_literal: true

require_relative "../test_helper"
require "penstock/app"

# The topics that an application declares.
class AppTopicsTest < PenstockTest
  def app(&block)
    Penstock.app do |app|
      app.kafka = { "bootstrap.servers": "127.0.0.1:1" }
      block&.call(app)
      app.group("g") { |group| group.topic "orders", to: ->(_) {} }
    end
  end

  def test_the_block_declares_topics
    made = app { |app| app.topics { |declare| declare.topic "orders", partitions: 12, config: { "retention.ms" => 1 } } }
    assert_equal [["orders", 12]], made.topics.map { |one| [one.name, one.partitions] }
    assert_equal ["orders"], made.with_groups(["g"]).topics.names
    assert_kind_of Penstock::Admin::TopicCatalog, app.topics
    assert_empty app.topics.names
  end

  def test_what_is_wrong_is_named
    assert_match(/requires a block/, assert_raises(Penstock::ConfigurationInvalidError) { app(&:topics) }.message)
    twice = ->(app) { 2.times { app.topics { |declare| declare.topic "orders" } } }
    assert_match(/twice/, assert_raises(Penstock::ConfigurationInvalidError) { app(&twice) }.message)
    assert_raises(ArgumentError) { app { |app| app.topics { |declare| declare.topic "orders", partitions: 0 } } }
  end
end
