# frozen_string_literal: true

module Penstock
  class Admin
    # How the methods of an admin client ask the coordinators of groups. All these requests may be repeated.
    #
    # - A coordinator that has just started loads the group first, and another broker may have become the coordinator.
    # - While the coordinators are moving, librdkafka stops looking for them after some retries, and the request gets no answer at
    #   all. So each attempt has a time of its own, at first two seconds and then twice as long.
    #
    # Decision 0024.
    # @api private
    module CoordinatorRequests
      NOT_READY = %i[coordinator_load_in_progress coordinator_not_available not_coordinator].freeze
      PAUSE = 0.1 # seconds
      FIRST_ATTEMPT = 2.0 # seconds
      private_constant :NOT_READY, :PAUSE, :FIRST_ATTEMPT

      private

      # @param rows [Array] one for each group
      # @param deadline [Deadline]
      # @yieldparam rows [Array] those to ask for
      # @yieldparam attempt [Deadline] the time that they have
      # @yieldreturn [Array] an answer for each of them
      # @return [Array] an answer for each
      # @raise [AdminTimeoutError] when no broker can be asked
      def ask_coordinators(rows, deadline)
        answers = []
        again = rows.each_index.to_a
        seconds = FIRST_ATTEMPT
        loop do
          found = attempt(deadline, seconds, again.size) { |time| yield(rows.values_at(*again), time) }
          again.zip(found) { |i, answer| answers[i] = answer_of(answers[i], answer) }
          again = again.zip(found).filter_map { |i, answer| i if repeat?(answer) }
          return answers if again.empty? || over?(deadline)

          seconds *= 2 if found.any?(AdminTimeoutError)
          sleep PAUSE
        end
      end

      def attempt(deadline, seconds, size)
        yield attempt_of(seconds, deadline)
      rescue AdminTimeoutError => e
        over?(deadline) ? raise : [e] * size
      end

      def over?(deadline) = deadline.left <= 2 * PAUSE

      # The last attempt gets what is left: at least half of the whole time.
      def attempt_of(seconds, deadline)
        left = deadline.left
        Deadline.new(left < 2 * seconds ? left : seconds)
      end

      # Of a change, a timeout must be reported: it may have taken effect. Of a question, any other answer says more.
      # @param before [Array, Error, nil]
      # @param answer [Array, Error]
      def answer_of(before, answer)
        return answer if before.nil? || !repeat?(answer)

        timeouts, others = [before, answer].partition { |one| one.is_a?(AdminTimeoutError) }
        timeouts.reject(&:retriable?).first || others.last || answer
      end

      # @param answer [Array, Error] rows with an error in some
      def repeat?(answer)
        return answer.is_a?(AdminTimeoutError) || NOT_READY.include?(answer.code) if answer.is_a?(Error)

        answer.any? { |row| row.any? { |field| field.is_a?(Error) && NOT_READY.include?(field.code) } }
      end
    end
  end
end
