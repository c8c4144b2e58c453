# frozen_string_literal: true

module Penstock
  module Testing
    # Assertions about a {Driver} for Minitest, and for other libraries whose tests have `assert`. Include it in test classes.
    #
    #     class OrdersTest < Minitest::Test
    #       include Penstock::Testing::Assertions
    #
    #       def test_a_bill_for_each_order
    #         driver = Penstock::Testing.drive(APP)
    #         driver.produce("orders", payload: "ann")
    #         driver.advance(10)
    #         assert_produced driver, "bills", ["ann"]
    #         assert_finished driver
    #       end
    #     end
    module Assertions
      # @param driver [Driver]
      # @param topic [String, Symbol]
      # @param payloads [Array<String, nil>] of all messages that processors have sent there, in any order
      # @return [true]
      def assert_produced(driver, topic, payloads)
        expectation = Matchers::Produced.new(topic, payloads)
        assert expectation.matches?(driver), expectation.failure_message
      end

      # @param driver [Driver]
      # @param payloads [Array<String, nil>] of all dead letters, in any order
      # @param error [Class, String, nil] of all of them; nil: any
      # @return [true]
      def assert_dead_letters(driver, payloads, error: nil)
        expectation = Matchers::DeadLetters.new(payloads, error)
        assert expectation.matches?(driver), expectation.failure_message
      end

      # @param driver [Driver]
      # @param offset [Integer, nil]
      # @param group [String, Symbol]
      # @param topic [String, Symbol]
      # @param partition [Integer]
      # @return [true]
      def assert_committed(driver, offset, group, topic, partition = 0)
        expectation = Matchers::Committed.new(offset, group, topic, partition)
        assert expectation.matches?(driver), expectation.failure_message
      end

      # That everything that was produced is finished and committed. Let time pass before: commits happen every 5 s.
      # @param driver [Driver]
      # @param group [String, Symbol, nil] nil: by all groups
      # @return [true]
      def assert_finished(driver, group = nil)
        expectation = Matchers::Finished.new(group)
        assert expectation.matches?(driver), expectation.failure_message
      end
    end
  end
end
