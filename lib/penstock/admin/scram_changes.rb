# frozen_string_literal: true

module Penstock
  class Admin
    # Checks changes of SCRAM users, and makes the native client's rows.
    # @api private
    module ScramChanges
      # With librdkafka's numbers.
      MECHANISMS = { "SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2 }.freeze
      UPSERT = %i[mechanism password iterations].freeze
      ITERATIONS = 8192
      private_constant :MECHANISMS, :UPSERT, :ITERATIONS

      class << self
        # @return [Array<Array>] name, mechanism, and for an upsertion iterations and a {Secret}
        def rows(upsert, delete)
          rows = each_of("upsert", upsert) { |name, spec| upsertion(name, spec) } +
                 each_of("delete", delete) { |name, mechanism| [name, mechanism(name, mechanism)] }
          (name, number), = rows.map { |row| row.first(2) }.tally.find { |_, count| count > 1 }
          raise ArgumentError, "user #{name.inspect}: #{MECHANISMS.key(number)} is given twice" if name

          rows
        end

        # @return [Array<Array>] the rows, of each user at most one in each Array
        def rounds(rows)
          waiting = rows.group_by(&:first).values
          Array.new(waiting.map(&:size).max || 0) { |i| waiting.filter_map { |of_user| of_user[i] } }
        end

        # @return [ScramCredential]
        def received(user, mechanism, iterations)
          ScramCredential.new(user:, mechanism: MECHANISMS.key(mechanism) || :unknown, iterations:)
        end

        # librdkafka does not know where a name ends if an error follows it: bytes of the error's code may be part of the name.
        # @param given [String] the name in an answer
        # @param names [Array<String>] what was asked for
        # @return [String] the name that was asked for, or the given one
        def asked(given, error, names)
          return given if error.nil? || names.include?(given)

          names.select { |name| given.start_with?(name) }.max_by(&:size) || given
        end

        # @param rows [Array<Array(String, Error)>] of an answer
        # @return [Hash{String => Error, nil}]
        def by_user(rows, names) = rows.to_h { |given, error| [asked(given, error, names), error] }

        private

        def each_of(what, given)
          raise ArgumentError, "#{what} must be a Hash, not #{given.class}" unless given.is_a?(Hash)

          given.flat_map do |name, specs|
            name = Names.of("the name of a user", name)
            specs = [specs] unless specs.is_a?(Array)
            raise ArgumentError, "user #{name.inspect}: nothing to #{what} is given" if specs.empty?

            specs.map { |spec| yield(name, spec) }
          end
        end

        # No error shows the specification, which may be a password.
        def upsertion(name, spec)
          raise ArgumentError, "user #{name.inspect} must have a Hash, not #{spec.class}" unless spec.is_a?(Hash)

          wrong = spec.keys.find { |key| !UPSERT.include?(key) }
          if wrong
            shown = wrong.is_a?(Symbol) ? " #{wrong.inspect}#{Suggestion.hint(wrong, UPSERT)}" : ""
            raise ArgumentError, "user #{name.inspect}: unknown key#{shown}; known are #{UPSERT.join(", ")}"
          end
          iterations = iterations(name, spec.fetch(:iterations, ITERATIONS))
          [name, mechanism(name, spec[:mechanism]), iterations, password(name, spec[:password])]
        end

        def mechanism(name, mechanism)
          MECHANISMS.fetch(MECHANISMS.keys.find { |key| key.name == mechanism } || mechanism) do
            raise ArgumentError, "user #{name.inspect}: the mechanism must be #{MECHANISMS.keys.map(&:inspect).join(" or ")}"
          end
        end

        def iterations(name, iterations)
          return iterations if Seconds.integer?(iterations) && iterations.between?(1, (2**31) - 1)

          raise ArgumentError, "user #{name.inspect}: iterations must be an Integer above 0"
        end

        def password(name, password)
          valid = (password.is_a?(String) || password.is_a?(Secret)) && Settings.text?(password) && !password.empty?
          raise ArgumentError, "user #{name.inspect}: the password must be non-empty UTF-8 without a zero byte" unless valid

          password.is_a?(Secret) ? password : Secret.new(password)
        end
      end
    end
    private_constant :ScramChanges
  end
end
