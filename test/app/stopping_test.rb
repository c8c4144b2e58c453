# frozen_string_literal: true

require_relative "../test_helper"
require "penstock/testing"

# The hook `stopping`.
class AppStoppingTest < PenstockTest
  def setup
    super
    @seen = []
  end

  # A processor that notes its calls; it does in `stopping` what the block says.
  def noting(&stopping)
    seen = @seen
    Class.new(Penstock::Processor) do
      define_method(:process) { |message| seen << message.payload }
      define_method(:revoked) { seen << :revoked }
      define_method(:stopping) do
        seen << :stopping
        instance_exec(&stopping) if stopping
      end
    end
  end

  def drive(to, **options)
    Penstock::Testing.drive(Penstock.app do |app|
      app.kafka = { "bootstrap.servers": "nowhere" }
      app.group("billing") { |group| group.topic "orders", to:, **options }
    end, seed: 7)
  end

  def test_it_is_called_before_revoked_when_the_application_stops
    driver = drive(noting)
    driver.produce("orders", payload: "a")
    driver.run
    assert_predicate driver.stop, :complete?
    assert_equal ["a", :stopping, :revoked], @seen
  end

  def test_it_is_not_called_when_a_partition_is_taken_away
    driver = drive(noting)
    driver.produce("orders", payload: "a")
    driver.run
    driver.revoke("billing")
    driver.advance(40)
    assert_equal ["a", :revoked], @seen
  end

  def test_what_it_stores_is_committed
    last = nil
    driver = drive(Class.new(Penstock::Processor) do
      define_method(:process) { |message| last = message }
      define_method(:stopping) { checkpoint(last) }
    end, offsets: :manual)
    3.times { driver.produce("orders", payload: "a") }
    driver.run
    assert_predicate driver.stop, :complete?
    assert_equal 3, driver.committed("billing", "orders")
  end

  def test_an_error_in_it_is_reported_and_stopping_goes_on
    driver = drive(noting { raise "bad end" })
    driver.produce("orders", payload: "a")
    driver.run
    assert_predicate driver.stop, :complete?
    assert_equal [["bad end"], :revoked, 1],
                 [driver.errors.map(&:message), @seen.last, driver.committed("billing", "orders")]
  end
end
