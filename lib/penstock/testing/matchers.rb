# frozen_string_literal: true

module Penstock
  module Testing
    # Matchers for RSpec about a {Driver}: `RSpec.configure { |config| config.include Penstock::Testing::Matchers }`. They need
    # nothing of RSpec.
    #
    #     expect(driver).to have_produced("bills", ["ann"])
    #     expect(driver).to have_dead_letters(["nobody"], error: RuntimeError)
    #     expect(driver).to have_committed(2, "billing", "orders")
    #     expect(driver).to be_finished
    module Matchers
      # What matchers share. Matchers are objects that RSpec calls; programs only pass them on.
      # @api private
      class Expectation
        # @return [String]
        def failure_message = "expected #{description}, #{@found} (with the seed #{@seed})"

        # @return [String]
        def failure_message_when_negated = "expected not #{description} (with the seed #{@seed})"

        # @param driver [Driver]
        # @return [Boolean]
        def matches?(driver)
          @seed = driver.seed
          match(driver)
        end

        private

        def same?(payloads, found)
          @found = "but got #{found.inspect}"
          found.map(&:to_s).sort == payloads.map(&:to_s).sort && found.count(nil) == payloads.count(nil)
        end
      end

      # @api private
      class Produced < Expectation
        def initialize(topic, payloads)
          super()
          @topic = topic
          @payloads = payloads
        end

        def description = "the messages #{@payloads.inspect} to be sent to #{@topic}"

        private

        def match(driver) = same?(@payloads, driver.produced(@topic.to_s).map { |message| message[:payload] })
      end

      # @api private
      class DeadLetters < Expectation
        def initialize(payloads, error)
          super()
          @payloads = payloads
          @error = error
        end

        def description = "the dead letters #{@payloads.inspect}#{" because of #{@error}" if @error}"

        private

        def match(driver)
          letters = driver.dead_letters
          return false unless same?(@payloads, letters.map { |message| message[:payload] })

          errors = letters.map { |message| message[:headers]["error_class"] }.uniq
          @found = "but the errors were #{errors.inspect}"
          @error.nil? || errors.empty? || errors == [@error.to_s]
        end
      end

      # @api private
      class Committed < Expectation
        def initialize(offset, group, topic, partition)
          super()
          @offset = offset
          @place = [group, topic, partition]
        end

        def description = "the group #{@place[0]} to have committed #{@offset.inspect} of #{@place[1]}/#{@place[2]}"

        private

        def match(driver)
          found = driver.committed(*@place)
          @found = "but it has committed #{found.inspect}"
          found == @offset
        end
      end

      # @api private
      class Finished < Expectation
        def initialize(group)
          super()
          @group = group
        end

        def description = "everything to be finished and committed"

        private

        def match(driver)
          left = driver.unfinished(@group)
          errors = driver.errors.last(3).map { |error| Text.describe(error) }
          list = left.map { |by, topic, partition, count| "#{Text.count(count, "message")} of #{topic}/#{partition} by #{by}" }
          @found = "but it is not: #{list.join(", ")}#{"; the last errors: #{errors.join("; ")}" unless errors.empty?}"
          left.empty?
        end
      end

      # rubocop:disable Naming/PredicatePrefix -- RSpec's way

      # @param topic [String, Symbol]
      # @param payloads [Array<String, nil>] of all messages that processors have sent there, in any order
      def have_produced(topic, payloads) = Produced.new(topic, payloads)

      # @param payloads [Array<String, nil>] of all dead letters, in any order
      # @param error [Class, String, nil] of all of them; nil: any
      def have_dead_letters(payloads, error: nil) = DeadLetters.new(payloads, error)

      # @param offset [Integer, nil]
      # @param group [String, Symbol]
      # @param topic [String, Symbol]
      # @param partition [Integer]
      def have_committed(offset, group, topic, partition = 0)
        Committed.new(offset, group, topic, partition)
      end

      # rubocop:enable Naming/PredicatePrefix

      # @param group [String, Symbol, nil] nil: by all groups
      def be_finished(group = nil) = Finished.new(group)
    end
  end
end
