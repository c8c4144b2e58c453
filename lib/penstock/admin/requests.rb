# frozen_string_literal: true

module Penstock
  class Admin
    # How the methods of an admin client ask the native client.
    # @api private
    module Requests
      LONGEST_TIMEOUT = 3600 # seconds; librdkafka accepts no longer one
      private_constant :LONGEST_TIMEOUT

      private

      # Each call begins with it, so that a closed client says so.
      # @return [Deadline] raises for an invalid timeout
      def deadline_of(timeout)
        raise ErrorFactory.build(AdminClosedError, "the admin client is closed", admin_id: id) if closed?

        timeout = config.timeout / 1000.0 if timeout.nil?
        valid = timeout.is_a?(Numeric) && timeout.real? && timeout.positive? && timeout <= LONGEST_TIMEOUT
        valid or raise ArgumentError, "a timeout must be a number of seconds, above 0 and at most #{LONGEST_TIMEOUT}, not " \
                                      "#{timeout.inspect}#{hint_at_milliseconds(timeout)}"
        Deadline.new(timeout.to_f)
      end

      def hint_at_milliseconds(timeout)
        return "" unless timeout.is_a?(Integer) && timeout > LONGEST_TIMEOUT

        " seconds: did you mean milliseconds (timeout: #{timeout / 1000.0})?"
      end

      # @param deadline [Deadline]
      # @return [Hash{Symbol => Object}] options for the native client
      def options(deadline, **more) = { timeout: milliseconds_left(deadline), **more }

      # @return [Float] for a call that this call makes
      # @raise [AdminTimeoutError]
      def seconds_left(deadline)
        left = deadline.left
        return left if left.positive?

        raise ErrorFactory.build(AdminTimeoutError, "the time is over before all was asked", admin_id: id)
      end

      def milliseconds_left(deadline) = [(deadline.left * 1000).ceil, 1].max

      # For requests that brokers answer when they have done the work, or when this time is over; it leaves some for the answer.
      def operation(deadline) = milliseconds_left(deadline) * 4 / 5

      # @return [Object] the answer of one request
      # @raise [AdminError] its error
      def only(answers)
        answer = answers.first
        answer.is_a?(Error) ? raise(answer) : answer
      end

      # @param rows [Array] with a key and a value or error in each
      # @return [Results]
      def results(rows) = Results.new(rows.to_h)

      # @param names [Array<String>] what was asked for
      # @param rows [Array<Array>] a name and its answer in each
      # @yieldparam answer [Array] of a name
      # @yieldreturn [Object, Error]
      # @param kind [:topic, :group, nil] the attribute of an error that has the name
      # @return [Results] for each name; an error for a name that the answer lacks
      def results_for(names, rows, kind = nil)
        found = rows.to_h { |name, *answer| [name, answer] }
        results(names.map do |name|
          [name, found.key?(name) ? yield(*found[name]) : unanswered(**{ kind => name }.slice(:topic, :group))]
        end)
      end

      # @return [AdminError]
      def unanswered(**about)
        ErrorFactory.build(AdminError, "the answer of the brokers does not contain it", **about, admin_id: id)
      end

      # @param method [Symbol] of the native client, which has it only if librdkafka has the function
      # @raise [UnsupportedError]
      def require_support(method, version, what)
        return if @client.respond_to?(method)

        raise ErrorFactory.build(UnsupportedError, "librdkafka #{Penstock.librdkafka_version} cannot #{what}: " \
                                                   "this requires #{version} or newer", admin_id: id)
      end

      # @return [Array<Symbol>, nil]
      def operations_of(numbers) = numbers&.map { |number| OPERATIONS.fetch(number, :unknown) }&.sort

      # @return [Array<String>] frozen copies
      # @raise [ArgumentError]
      def names_of(what, names) = different(what, names.map { |name| Names.of(what, name) })

      # @return [Array<String>] the same
      def topic_names(names) = different("the name of a topic", names.map { |name| Names.topic(name) })

      # @return [String] the same
      def group_id(id) = Names.of("the id of a group", id)

      def different(what, names)
        twice = names.tally.find { |_, count| count > 1 }&.first
        twice ? raise(ArgumentError, "#{what} #{twice.inspect} is given twice") : names
      end
    end
  end
end
